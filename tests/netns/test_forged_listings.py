"""Rules that somebody else put there to be read as ours: the attack itself, on every backend and by every command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laboratory import NetworkNamespace
from netinit import backends
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel.detect import loaded_sets, owned_sets
from netinit.kernel.netlink import list_nft_chains, list_nft_rules
from netinit.options import Options
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.sets import MAX_ELEMENTS
from programming import FOLDERS, needs, run_tool, variant_of
from sweeps import choose, in_turn, pairs

ROUTE = "link add eth0 type veth peer outside\naddress add 192.0.2.1/24 dev eth0\nlink set eth0 up\nlink set outside up\n"
OPTIONS = ("-p", "15001", "-u", "1337", "-b", "80", "-i", "*", "--ipv6", "off")
BACKENDS = ("iptables-nft", "iptables-legacy", "libiptc")
one_backend = in_turn("backend", BACKENDS)
SEPARATORS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
LIMIT = 255  # bytes of a comment (XT_MAX_COMMENT_LEN less its end)


@pytest.fixture
def inside(require_netns):
    with NetworkNamespace("forged") as namespace:
        yield namespace


def program(backend, family=IPV4):
    return variant_of(backend).replace("iptables", family.program)


def call(namespace, *command):
    namespace.run(list(command), check=True)


def output(namespace, *command):
    with namespace.entered():
        return os.fsdecode(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def good_listing(backend):
    """What a correct pod lists."""
    with NetworkNamespace("good") as namespace:
        done = run_tool(namespace, "apply", *OPTIONS, "--backend", backend)
        assert done.returncode == 0, done.stderr
        text = namespace.run([program(backend) + "-save"], check=True).stdout
    return [line for line in text.split("\n") if line and not line.startswith("#")]


def forge(namespace, backend):
    """One chain with no-op rules whose comments hold a correct pod's whole listing; the last one hides the tail."""
    pieces, at_hand = [], "\nCOMMIT\n"
    lines = good_listing(backend)
    lines.insert(lines.index("*nat") + 1, ":ZZ - [0:0]")  # where a reader of lines finds the beginnings of the real rules
    for line in lines:
        if len(at_hand) + len(line) > LIMIT - 5:
            pieces.append(f"{at_hand}#")
            at_hand = "\n"
        at_hand += f"{line}\n"
    pieces.append(f"{at_hand}#")
    call(namespace, program(backend), "-w", "-t", "nat", "-N", "ZZ")
    for piece in pieces:
        call(namespace, program(backend), "-w", "-t", "nat", "-A", "ZZ", "-m", "comment", "--comment", piece, "-j", "RETURN")


def count_redirects(namespace, backend):
    return output(namespace, "sh", "-c", f"{program(backend)} -w -t nat -S ISTIO_REDIRECT 2>/dev/null || true").count("-A ISTIO_REDIRECT ")


@one_backend
def test_a_listing_forged_in_comments_deceives_no_command(inside, backend):
    needs(backend)
    forge(inside, backend)
    theirs = inside.run([program(backend), "-w", "-t", "nat", "-S", "ZZ"], check=True).stdout
    chosen = (*OPTIONS, "--backend", backend)

    verified = run_tool(inside, "verify", *chosen)
    assert verified.returncode == 3, verified.stdout + verified.stderr
    assert "as planned" not in verified.stdout
    assert "no rules of netinit here" in verified.stdout

    inside.run(["ip", "-batch", "-"], stdin=ROUTE, check=True)
    explained = run_tool(inside, "explain", "--live", "outbound", "--to", "192.0.2.4:80")
    assert explained.returncode == 0, explained.stderr
    assert "captured" not in explained.stdout.splitlines()[0] + explained.stdout.splitlines()[1], explained.stdout

    examined = run_tool(inside, "doctor", *OPTIONS)
    assert "leftovers" not in examined.stdout, f"forged chains pass for ours: {examined.stdout}"

    applied = run_tool(inside, "apply", *chosen)
    assert applied.returncode == 0, applied.stderr
    assert f"programmed by {backend}" in applied.stderr
    assert count_redirects(inside, backend) == 1
    verified = run_tool(inside, "verify", *chosen)
    assert (verified.returncode, "as planned: 37 rules" in verified.stdout) == (0, True), verified.stdout

    reconciled = run_tool(inside, "apply", *chosen, "-b", "90", "--reconcile")
    assert (reconciled.returncode, "programmed by" in reconciled.stderr) == (0, True), reconciled.stderr
    forced = run_tool(inside, "apply", *chosen, "-b", "90", "--force-apply")
    assert forced.returncode == 0, forced.stderr
    examined = run_tool(inside, "doctor", *chosen)
    assert examined.returncode == 0, examined.stdout + examined.stderr

    removed = run_tool(inside, "remove")
    assert removed.returncode == 0, removed.stderr
    assert count_redirects(inside, backend) == 0
    assert inside.run([program(backend), "-w", "-t", "nat", "-S", "ZZ"], check=True).stdout == theirs, "the foreign rules are as they were"


HOSTILE = {
    "ends with a hash": "x\n#",
    "quotes": '"\'" -j ISTIO_REDIRECT "',
    "ends with a backslash": "x\\",
    "backslash before quote": '\\"',
    "separators": SEPARATORS,
    "invalid UTF-8": b"\xff\x85\x9b\n\xc3",
    "255 bytes": "\n" * LIMIT,
    "a table": "\nCOMMIT\n*filter\n:FORWARD DROP [0:0]\n-A INPUT -j DROP\nCOMMIT\n",
}


TOGETHER = choose(  # a third of the comments on each backend, all at once; each alone on each
    [(backend, [*HOSTILE][place :: len(BACKENDS)]) for place, backend in enumerate(BACKENDS)], [(backend, [kind]) for backend in BACKENDS for kind in HOSTILE]
)


@pytest.mark.parametrize(("backend", "kinds"), TOGETHER, ids=lambda one: one if isinstance(one, str) else ", ".join(one))
def test_hostile_comments_in_rules_that_are_ours_go_with_them_and_are_fed_to_nobody(inside, backend, kinds):
    """Before ours in a built-in chain, as a jump to ours, and in a chain of ours."""
    needs(backend)
    chosen = (*OPTIONS, "--backend", backend)
    assert run_tool(inside, "apply", *chosen).returncode == 0
    for comment in map(HOSTILE.get, kinds):
        for where in (("-I", "OUTPUT", "-j", "ISTIO_OUTPUT"), ("-A", "ISTIO_OUTPUT", "-j", "RETURN"), ("-I", "OUTPUT", "-p", "udp", "-j", "LOG")):
            call(inside, program(backend), "-w", "-t", "nat", *where, "-m", "comment", "--comment", comment)
        prefix = (comment.encode() if isinstance(comment, str) else comment).replace(b"\n", b"\r")[:29]
        call(inside, program(backend), "-w", "-t", "nat", "-A", "OUTPUT", "-j", "LOG", "--log-prefix", prefix)
    verified = run_tool(inside, "verify", *chosen)
    assert (verified.returncode, "as planned" in verified.stdout) == (3, False), verified.stdout
    repaired = run_tool(inside, "apply", *chosen, "--reconcile")
    assert repaired.returncode == 0, repaired.stderr
    assert run_tool(inside, "verify", *chosen).stdout.splitlines()[-1].startswith("as planned")
    removed = run_tool(inside, "remove")
    assert removed.returncode == 0, removed.stderr
    left = output(inside, program(backend), "-w", "-t", "nat", "-L")
    assert left.count("\nLOG ") == 2 * len(kinds), left
    assert "Chain ISTIO" not in left


BARE = {
    "an interface that reads as a whole rule": ("-i", "lo -j RETURN"),
    "an interface with a newline": ("-i", "x\n#", "-j", "RETURN"),
    "an interface with a quote": ("-i", 'x "', "-j", "RETURN"),
    "an interface that is no UTF-8": ("-o", b"\xff", "-j", "RETURN"),
}


@pytest.mark.parametrize(("backend", "kind"), pairs(BACKENDS, BARE))
def test_names_that_iptables_prints_bare_are_names_to_every_command(inside, backend, kind):
    needs(backend)
    call(inside, program(backend), "-w", "-t", "nat", "-N", "ZZ")
    call(inside, program(backend), "-w", "-t", "nat", "-A", "ZZ", *BARE[kind])
    work_beside(inside, backend, lambda: output(inside, program(backend), "-w", "-t", "nat", "-S", "ZZ"))


@one_backend
def test_a_name_with_a_newline_cannot_hide_a_rule_behind_a_quote(inside, backend):
    """hashlimit prints its name bare: one rule opens a quote, swallows the next, and prints what shall be read."""
    needs(backend)
    limit = ("-m", "hashlimit", "--hashlimit-upto", "5/sec", "--hashlimit-mode", "srcip", "--hashlimit-name")
    nat = (program(backend), "-w", "-t", "nat")
    call(inside, *nat, "-N", "ZZ")
    call(inside, *nat, "-A", "ZZ", *limit, 'x\n-A ZZ -j ACCEPT\n-A ZZ -m hashlimit "')
    call(inside, *nat, "-A", "ZZ", "-j", "RETURN")
    call(inside, *nat, "-A", "ZZ", *limit, 'y" ')
    listed = inside.run([program(backend) + "-save", "-t", "nat"], check=True).stdout
    assert "-A ZZ -j ACCEPT\n" in listed, "the attack is what it was"
    work_beside(inside, backend, lambda: output(inside, program(backend), "-w", "-t", "nat", "-S", "ZZ"))


def work_beside(namespace, backend, theirs):
    """Every command does what it does where nothing is, and `theirs`, a question for what is there, is answered as before."""
    chosen = (*OPTIONS, "--backend", backend)
    before = theirs()
    verified = run_tool(namespace, "verify", *chosen)
    assert (verified.returncode, "no rules of netinit here" in verified.stdout) == (3, True), verified.stdout + verified.stderr
    for command in (("apply", *chosen), ("apply", *chosen, "-b", "90", "--reconcile"), ("apply", *chosen, "--reconcile")):
        done = run_tool(namespace, *command)
        assert (done.returncode, "programmed by" in done.stderr) == (0, True), f"{command}: {done.stderr}"
        assert theirs() == before
    verified = run_tool(namespace, "verify", *chosen)
    assert (verified.returncode, "as planned: 37 rules" in verified.stdout) == (0, True), verified.stdout + verified.stderr
    namespace.run(["ip", "-batch", "-"], stdin=ROUTE, check=True)
    explained = run_tool(namespace, "explain", "--live", "outbound", "--to", "192.0.2.4:80")
    assert "captured" in explained.stdout.splitlines()[0] + explained.stdout.splitlines()[1], explained.stdout
    removed = run_tool(namespace, "remove")
    assert removed.returncode == 0, removed.stderr
    assert theirs() == before
    assert count_redirects(namespace, backend) == 0


@pytest.mark.parametrize("name", ["a b", "a\nb", 'a"', "a\n-A OUTPUT -j DROP\n#"])
def test_a_chain_made_by_netlink_with_an_odd_name_is_left_alone(inside, name):
    needs("iptables-nft")
    make = {"nftables": [{"add": {"table": {"family": "ip", "name": "nat"}}}, {"add": {"chain": {"family": "ip", "table": "nat", "name": name}}}]}
    inside.run(["nft", "-j", "-f", "-"], stdin=json.dumps(make), check=True)

    def theirs():
        with inside.entered():
            return [chain.name for chain in list_nft_chains() if chain.name == name]

    work_beside(inside, "iptables-nft", theirs)


comments = st.binary(min_size=1, max_size=LIMIT) | st.text(alphabet=f"{SEPARATORS}\"'\\ #*:-A[]\x1b\x7f\u202eab", min_size=1, max_size=80).map(
    lambda text: text.encode()[:LIMIT]
)


def usable(comment):
    return b"\0" not in comment


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=choose(5, 15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(comments.filter(usable), min_size=1, max_size=4))
def test_the_reader_gives_exactly_what_is_in_the_kernel_whatever_its_comments(inside, backend, texts):
    needs(backend)
    for family in FAMILIES:
        command = (program(backend, family), "-w", "-t", "mangle")
        inside.run([*command, "-F"])
        inside.run([*command, "-X"])
        call(inside, *command, "-N", "ZZ")
        for text in texts:
            call(inside, *command, "-A", "ZZ", "-m", "comment", "--comment", text, "-j", "RETURN")
    with inside.entered():
        listings = backends.load(backend, Options(), FAMILIES).observe().listings
    for family in FAMILIES:
        rules = [parse_rule(spec, family) for spec in listings[family]["mangle"].rules["ZZ"]]
        assert [os.fsencode(rule.comment) for rule in rules] == texts
        assert {name: len(found) for name, found in listings[family]["mangle"].rules.items() if found} == {"ZZ": len(texts)}


def test_an_object_that_is_longer_than_the_kernel_s_first_message_hides_none_behind_it(inside):
    """The kernel ends such a list without an error where it does not know yet how much its reader takes."""
    devices = [f"d{number:014d}" for number in range(250)]
    pairs_of_devices = zip(devices[::2], devices[1::2], strict=True)
    inside.run(["ip", "-batch", "-"], stdin="".join(f"link add {one} type veth peer {other}\n" for one, other in pairs_of_devices), check=True)
    chain = f"chain long {{ type filter hook ingress devices = {{ {', '.join(devices)} }} priority 0; }}"
    rule = "ip saddr 10.0.0.1 " * 60 + "accept"
    nft(inside, f"table netdev a {{ {chain}; }}; table ip b {{ chain long {{ {rule}; }}; chain short {{ accept; }}; }}")
    with inside.entered():
        assert [one.name for one in list_nft_chains()] == ["long", "long", "short"]
        assert len(list_nft_rules(IPV4.number)) == 2, "rules that nobody sees are obeyed all the same"
    done = run_tool(inside, "apply", *OPTIONS, "--backend", "iptables-nft")
    again = run_tool(inside, "apply", *OPTIONS, "--backend", "iptables-nft")
    assert (done.returncode, again.returncode, "nothing to do" in again.stderr) == (0, 0, True), again.stderr


# nft's own tables


def nft(namespace, script):
    namespace.run(["nft", "-f", "-"], stdin=script, check=True)


def test_a_comment_with_a_newline_is_no_second_rule_of_a_native_table(inside):
    """nft prints comments as they are: one rule with another's text in its comment reads like two."""
    needs("iptables-nft")
    chosen = (*OPTIONS, "--native-nftables", "--rule-comments")
    assert run_tool(inside, "apply", *chosen).returncode == 0
    before = inside.run(["nft", "-a", "--stateless", "list", "chain", "inet", "istio-proxy-nat", "istio-output"], check=True).stdout
    lines = [line.strip() for line in before.split("\n") if "# handle" in line and "comment" in line]
    (one, first), (two, second) = [(line.partition(" # handle ")[0], line.rpartition(" ")[2]) for line in lines[-2:]]
    comment = f"{one.rpartition(' comment ')[2][1:-1]}\"\n\t\t{two[:-1]}"
    rules = {"nftables": []}
    listed = json.loads(inside.run(["nft", "-j", "-a", "list", "chain", "inet", "istio-proxy-nat", "istio-output"], check=True).stdout)
    for item in listed["nftables"]:
        if "rule" in item and str(item["rule"]["handle"]) in (first, second):
            rules["nftables"].append({"delete": {"rule": {key: item["rule"][key] for key in ("family", "table", "chain", "handle")}}})
            if str(item["rule"]["handle"]) == first:
                forged = {**item["rule"], "comment": comment}
                del forged["handle"]
                rules["nftables"].append({"add": {"rule": forged}})
    done = inside.run(["nft", "-j", "-f", "-"], stdin=json.dumps(rules))
    if done.returncode:
        pytest.skip(f"this nft takes no such comment: {done.stderr[:200]}")
    after = inside.run(["nft", "-a", "--stateless", "list", "chain", "inet", "istio-proxy-nat", "istio-output"], check=True).stdout
    assert two in after, "the attack is what it was"
    verified = run_tool(inside, "verify", *chosen)
    assert verified.returncode == 3, verified.stdout + verified.stderr
    assert run_tool(inside, "apply", *chosen, "--reconcile").returncode == 0
    assert run_tool(inside, "verify", *chosen).returncode == 0


def test_a_name_of_an_interface_is_no_list_of_names_of_a_native_table(inside):
    needs("iptables-nft")
    chosen = (*OPTIONS, "--native-nftables", "-c", "a,b")
    assert run_tool(inside, "apply", *chosen).returncode == 0
    text = inside.run(["nft", "list", "ruleset", "inet"], check=True).stdout
    assert '{ "a", "b" }' in text, text
    data = json.loads(inside.run(["nft", "-j", "list", "ruleset", "inet"], check=True).stdout)
    changed = json.dumps(data["nftables"][1:]).replace('{"set": ["a", "b"]}', json.dumps({"set": ['a", "b']}))
    inside.run(["nft", "flush", "ruleset"], check=True)
    inside.run(["nft", "-j", "-f", "-"], stdin=json.dumps({"nftables": [{"add": item} for item in json.loads(changed)]}), check=True)
    verified = run_tool(inside, "verify", *chosen)
    assert verified.returncode == 3, verified.stdout + verified.stderr


def test_a_native_table_that_nft_cannot_list_is_no_planned_one_and_is_replaced(inside):
    """nft 1.0.6 ends by a failed assertion where a name is no UTF-8 (newer ones may leave the words out)."""
    needs("iptables-nft")
    chosen = (*OPTIONS, "--native-nftables")
    assert run_tool(inside, "apply", *chosen).returncode == 0
    script = b'add rule inet istio-proxy-nat istio-output iifname "\xff" return\n'
    with inside.entered():
        subprocess.run(["nft", "-f", "-"], input=script, check=True)
    verified = run_tool(inside, "verify", *chosen)
    assert verified.returncode == 3, verified.stdout + verified.stderr
    assert run_tool(inside, "apply", *chosen, "--reconcile").returncode == 0
    assert "as planned" in run_tool(inside, "verify", *chosen).stdout
    nft(inside, "add rule inet istio-proxy-nat istio-output return")
    assert run_tool(inside, "verify", *chosen).returncode == 3
    assert run_tool(inside, "remove").returncode == 0


# address sets


def fill(namespace, name, count, options=""):
    lines = [f"create {name} hash:net family inet maxelem {count + 1}{options}"]
    lines += [f"add {name} 10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(count)]
    namespace.run(["ipset", "restore"], stdin="\n".join(lines) + "\n", check=True)


@pytest.mark.skipif(shutil.which("ipset", path=FOLDERS) is None, reason="ipset is not installed: apt-get install ipset")
def test_a_set_of_our_name_that_is_too_long_or_has_comments_is_not_read_and_is_replaced(inside):
    long_list = ("-x", "10.0.0.0/8,11.0.0.0/8", "--ipset-threshold", "1")
    chosen = (*OPTIONS[:-4], "-i", "*", "--ipv6", "off", "--backend", "iptables-nft", *long_list)
    fill(inside, "netinit-nft-exclude-4", MAX_ELEMENTS + 1)
    fill(inside, "netinit-nft-capture-4", 2, " comment")
    call(inside, "ipset", "add", "netinit-nft-capture-4", "192.0.2.1", "comment", "a\nadd netinit-nft-exclude-4 10.0.0.0/8\n")
    call(inside, "ipset", "create", "netinit-odd name", "hash:ip")
    call(inside, "ipset", "create", "odd'\\ \x1b", "hash:ip")
    verified = run_tool(inside, "verify", *chosen)
    assert verified.returncode == 3, verified.stderr
    assert "unknown elements: it has 200,001, and more than 200,000 are not read" in verified.stdout
    repaired = run_tool(inside, "apply", *chosen, "--reconcile")
    assert repaired.returncode == 0, repaired.stderr
    assert run_tool(inside, "verify", *chosen).returncode == 0
    assert run_tool(inside, "remove").returncode == 0
    assert sorted(output(inside, "ipset", "list", "-n").split("\n")) == ["", "netinit-odd name", "odd'\\ \x1b"]


@pytest.mark.skipif(shutil.which("ipset", path=FOLDERS) is None, reason="ipset is not installed: apt-get install ipset")
def test_the_elements_of_a_foreign_set_are_counted_and_not_read(inside):
    fill(inside, "big", 100_000)
    with inside.entered():
        assert [(one.name, one.size) for one in loaded_sets()] == [("big", 100_000)]
        assert owned_sets() == {}

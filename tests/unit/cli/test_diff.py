"""`netinit diff` as a command line: what it compares, what it says, and how git calls it."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import peers
from schemas import check_schema

ROOT = Path(__file__).parents[3]
SIDECAR = "apply -b * -i * -u 1337 --ipv6=on"
POD = (ROOT / "examples" / "pod.yaml").read_text()


def ask(run, *words):
    done = run(["netinit", "diff", *words])
    tree = json.loads(done.out) if done.out.startswith("{") else None
    if tree:
        check_schema(tree, "diff")
    return done, tree


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SIDECAR, f"netinit {SIDECAR}"),
        (f"{SIDECAR} -x 10.0.0.0/8,10.1.0.0/16", f"{SIDECAR} -x 10.0.0.0/8"),
        (f"{SIDECAR} -x 10.0.0.0/9,10.128.0.0/9", f"{SIDECAR} -x 10.0.0.0/8"),
        (f"{SIDECAR} -d 80,81", f"{SIDECAR} -d 81,80"),
        (f"{SIDECAR} -b 80,443 -d 9", f"{SIDECAR} -b 443,80"),
    ],
)
def test_other_rules_that_do_the_same_are_proved_equal(run, before, after):
    done, _ = ask(run, before, after)
    assert done.code == 0
    assert "no packet is treated differently: proved for all packets of IPv4 and IPv6" in done.out


def test_packets_that_are_treated_differently_are_shown_before_and_after_with_an_example(run):
    done, tree = ask(run, SIDECAR, f"{SIDECAR} -x 10.0.0.0/8", "--json")
    assert done.code == 3
    (pair,) = tree["compared"]
    (one,) = pair["differences"]
    assert one["who"] == ["IPv4: TCP outbound to 10.0.0.0/8, uid other than 1337, gid other than 1337"]
    assert one["before"] == "captured, to port 15001"
    assert one["after"] == "direct"
    assert "--istio-service-exclude-cidr" in one["because_after"]
    assert one["example"].startswith("TCP from 192.0.2.10 to 10.0.0.1:8080")


def test_a_mark_that_changes_is_a_difference(run):
    done, tree = ask(run, f"{SIDECAR} -m TPROXY", f"{SIDECAR} -m TPROXY -t 1400", "--json")
    assert done.code == 3
    assert tree["compared"][0]["result"] == "different"


def test_what_matters_less_is_counted_and_shown_on_demand(run):
    short, _ = ask(run, SIDECAR, f"{SIDECAR} -m TPROXY")
    long, _ = ask(run, SIDECAR, f"{SIDECAR} -m TPROXY", "--full")
    assert "kinds more, of packets that are less ordinary (--full shows all)" in short.out
    assert len(long.out) > len(short.out)
    assert "--full shows all" not in long.out


@pytest.fixture
def manifests(tmp_path):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(POD)
    new.write_text(POD.replace("15021", "15021,8080"))
    return str(old), str(new)


def test_pods_of_two_files_are_compared_by_name(run, manifests):
    done, tree = ask(run, "--pod", manifests[0], "--pod", manifests[1], "--json")
    assert done.code == 3
    (pair,) = tree["compared"]
    assert pair["differences"][0]["who"] == ["TCP inbound on port 8080"]
    same, _ = ask(run, *manifests[:1] * 2)
    assert same.code == 0


def test_a_pod_that_only_one_file_has_is_named(run, manifests, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(f"{POD}\n---\n{POD.replace('name: web', 'name: shop', 1)}")
    done, tree = ask(run, "--pod", manifests[0], "--pod", str(other), "--json")
    assert done.code == 3
    assert {pair["result"] for pair in tree["compared"]} >= {"only after"}
    told = run(["netinit", "diff", "--pod", manifests[0], "--pod", str(other)]).out
    assert re.search(r"^\+ .*shop.*: only after$", told, re.MULTILINE), told


def test_one_pod_on_each_side_is_compared_whatever_its_name(run, manifests, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(POD.replace("name: web", "name: shop", 1))
    done, tree = ask(run, "--pod", manifests[0], "--pod", str(other), "--json")
    assert done.code == 0, done
    assert [pair["result"] for pair in tree["compared"]] == ["equal"]


def test_two_pods_of_one_name_in_a_file_are_refused_since_one_would_be_dropped(run, manifests, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(f"{POD}\n---\n{POD}")
    done = run(["netinit", "diff", "--pod", manifests[0], "--pod", str(other)])
    assert (done.code, "occurs twice" in done.err) == (2, True), done


def test_options_may_be_longer_than_the_name_of_a_file(run):
    ports = ",".join(map(str, range(2000, 4000, 2)))
    done, _ = ask(run, f"{SIDECAR} -d {ports}", f"{SIDECAR} -d {ports}")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "nothing to compare"), (["one"], "give two things to compare"), (["--pod", "a"], "nothing to compare"),
        (["none.yaml", SIDECAR], "'none.yaml' is neither a file nor options"), ([SIDECAR, "apply -b 0"], "'0' is not a port"),
        ([SIDECAR, "apply '"], "No closing quotation"), (["--git", "a", "b"], "2 words were given"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_so(run, words, complaint):
    done, _ = ask(run, *words)
    assert done.code == 2
    assert complaint in done.err


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed: apt-get install git")
def test_git_shows_what_a_revision_of_a_manifest_treats_differently(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", f"diff.netinit.command={shlex.quote(sys.executable)} -m netinit diff --git"]
        return subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}).stdout

    git("init", "-q")
    (tmp_path / ".gitattributes").write_text("*.yaml diff=netinit\n")
    (tmp_path / "pod.yaml").write_text(POD)
    git("add", ".")
    git("commit", "-qm", "one")
    (tmp_path / "pod.yaml").write_text(POD.replace("15021", "15021,8080"))
    assert "TCP inbound on port 8080" in git("diff")
    (tmp_path / "pod.yaml").write_text(POD + "# a comment\n")
    assert "no packet is treated differently" in git("diff")


# ---- rules in files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", peers.load_rules(), ids=lambda case: case.name)
def test_a_peer_s_rules_differ_from_ours_in_what_is_known_alone(run, case):
    ours = peers.convert_line(case.peer, case.args).options
    families = () if "ip6tables" in case.text else ("--ipv6", "off")
    done, tree = ask(run, str(case.path), shlex.join(["apply", *ours.to_argv(), *families, "--istio-exact"]), "--json")
    (pair,) = tree["compared"]
    assert done.code == (3 if case.differing else 0), done.err
    assert pair["families"] == (["IPv4"] if families else ["IPv4", "IPv6"])
    used = set()
    for one in pair["differences"]:
        for who in one["who"]:
            found = {pattern for pattern in case.differing if re.search(pattern, who)}
            assert found, f"not known: {who}: {one['before']} / {one['after']}"
            used |= found
    assert used == set(case.differing)


def rules_of(*lines):
    return "\n".join(["*nat", ":PREROUTING ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", *lines, "COMMIT", ""])


CAPTURES = "-A OUTPUT -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 15001"


def test_rules_are_read_from_stdin_with_or_without_counters(run, monkeypatch, tmp_path):
    counted = rules_of(CAPTURES).replace("-A OUTPUT", "[12:720] -A OUTPUT")
    (tmp_path / "rules").write_text(rules_of(CAPTURES))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(counted.encode())))
    done, tree = ask(run, "-", str(tmp_path / "rules"), "--json")
    assert (done.code, tree["compared"][0]["result"]) == (0, "equal")
    assert tree["compared"][0]["families"] == ["IPv4"]


def test_the_family_of_rules_is_what_their_program_says_or_their_addresses(run, tmp_path):
    texts = {
        "said": "# Generated by ip6tables-save v1.8.9 on Sun Nov 22\n" + rules_of(CAPTURES),
        "seen": rules_of("-A OUTPUT -d ::1/128 -j RETURN", CAPTURES),
        "both": rules_of(CAPTURES) + "# Generated by ip6tables-save\n" + rules_of(CAPTURES),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    families = {name: ask(run, str(tmp_path / name), SIDECAR, "--json")[1]["compared"][0]["families"] for name in texts}
    assert families == {"said": ["IPv6"], "seen": ["IPv6"], "both": ["IPv4", "IPv6"]}


def test_rules_of_different_families_are_not_compared(run, tmp_path):
    (tmp_path / "four").write_text("# Generated by iptables-save\n" + rules_of(CAPTURES))
    (tmp_path / "six").write_text("# Generated by ip6tables-save\n" + rules_of(CAPTURES))
    done, _ = ask(run, str(tmp_path / "four"), str(tmp_path / "six"))
    assert done.code == 2
    assert "one side has only IPv4 rules, the other IPv6; save those of the same family" in done.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (rules_of("-A NOWHERE -j RETURN"), 'the chain "NOWHERE" is not declared before: the rules are not all there; give what `iptables-save` prints'),
        (rules_of(CAPTURES).replace("COMMIT\n", ""), "the listing is cut off: the table nat (line 1) does not end with COMMIT"),
        (rules_of() + rules_of(), "the table nat of IPv4 is there twice"),
        (rules_of('-A OUTPUT -m comment --comment "open -j RETURN'), "a quote does not close: the listing is cut off"),
    ],
)
def test_rules_that_cannot_be_read_safely_are_an_error_that_names_the_file(run, tmp_path, text, told):
    path = tmp_path / "rules"
    path.write_text(text)
    done, _ = ask(run, str(path), SIDECAR)
    assert done.code not in (0, 3)
    assert told in done.err
    assert str(path) in done.err


def test_stdin_without_rules_is_an_error(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))
    done, _ = ask(run, "-", SIDECAR)
    assert done.code == 1
    assert "stdin: no rules in it; give what `iptables-save` prints" in done.err


def test_tproxy_in_a_listing_is_mentioned_for_its_route_is_not_there(run, tmp_path):
    rule = "-A PREROUTING -p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff"
    path = tmp_path / "rules"
    path.write_text(rules_of().replace("nat", "mangle").replace("COMMIT", f"{rule}\nCOMMIT"))
    done, _ = ask(run, str(path), SIDECAR)
    assert "a listing lacks the route for their mark" in done.err


CLASSIC = "apply --layout classic -z 15006 -u 1337 -g 1337 -i * -b * --ipv6 off"


def test_from_the_classic_layout_to_the_current_one_nothing_changes_for_what_goes_out_to_other_hosts(run):
    """As docs/commands/diff.md says: loopback, port 22 and port 15008."""
    done, tree = ask(run, CLASSIC, "apply -i * -b * --ipv6 off", "--full", "--json")
    assert done.code == 3
    (pair,) = tree["compared"]
    who = [(found["direction"], text) for found in pair["differences"] for text in found["who"] if text.startswith("IPv4")]
    assert {direction for direction, _ in who} == {"outbound", "inbound"}
    assert [text for direction, text in who if direction == "outbound" and "within the pod" not in text] == []
    assert [text for direction, text in who if direction == "inbound" and not {"port 22", "port 15008"} & {f"port {word}" for word in text.split()}] == []
    changes = {(found["direction"], found["before"], found["after"]) for found in pair["differences"]}
    assert ("outbound", "captured, to port 15001", "direct") in changes
    assert ("outbound", "captured, to port 15001", "captured, to port 15006") in changes
    assert ("inbound", "direct", "captured, to port 15006") in changes
    assert ("inbound", "captured, to port 15006", "direct") in changes


def test_where_the_two_ports_are_excluded_the_layouts_treat_what_comes_in_alike_but_for_the_tunnel(run):
    _, tree = ask(run, CLASSIC, "apply -i * -b * -d 22 --ipv6 off", "--full", "--json")
    (pair,) = tree["compared"]
    inbound = [text for found in pair["differences"] if found["direction"] == "inbound" for text in found["who"]]
    assert [text for text in inbound if "IPv6" in text] == [
        "IPv6: inbound in the state NEW or RELATED or INVALID or UNTRACKED (subset)",
    ]  # fmt: skip
    inbound = [text for text in inbound if "IPv4" in text]
    assert inbound
    assert [text for text in inbound if "15008" not in text] == []


def test_a_side_may_begin_with_variables_as_audit_prints_them(run):
    one, other = "ISTIO_OUTBOUND_OWNER_GROUPS=7 apply -i '*'", "apply -i '*'"
    assert run(["netinit", "diff", one, one]).code == 0
    done = run(["netinit", "diff", one, other])
    assert (done.code, "gid other than" in done.out) == (3, True), done


def test_an_example_is_of_the_packets_that_it_stands_for_and_of_no_others(run):
    """Packets that differ in what conntrack says, in a mark or in their way out are told apart; each does as it is said to."""
    _, tree = ask(run, "apply -i '*' -b '*' --ipv6 off --istio-exact", "apply -i '*' -b '*' --ipv6 off -c cni0", "--full", "--json")
    (pair,) = tree["compared"]
    examples = [one["example"] for one in pair["differences"]]
    assert len(set(examples)) == len(examples) >= 7
    assert any("leaving through cni0" in one for one in examples)
    assert any("in the state INVALID" in one for one in examples)
    assert any("a SYN on an old conntrack entry" in one for one in examples)

"""Live commands without any options: which options made the rules is read from the rules, on every backend."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, reject, settings
from hypothesis import strategies as st

import older_rules
from laboratory import Pod, start_servers
from netinit.base.errors import NetinitError
from netinit.base.net import FAMILIES
from netinit.lab import APP_ID
from netinit.options.command_line import format_options
from programming import FOLDERS, SIDECAR, apply_in, load, needs, run_tool
from strategies import made_options
from sweeps import choose, crossed, in_turn, pairs

OUTSIDE = "203.0.113.7"
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
backends = in_turn("backend", BACKENDS)
MODES = {
    "sidecar": (*SIDECAR, "--ipv6", "on"),
    "TPROXY and DNS": (*SIDECAR, "-m", "TPROXY", "--redirect-dns", "--dns-servers", "203.0.113.7", "--drop-invalid", "--ipv6", "on"),
    "lists": ("-b", "80,443", "-i", "203.0.113.0/24,2001:db8::/32", "-x", "203.0.113.9/32", "-c", "eth9", "-o", "22", "--ipv6", "on"),
    "classic": ("--layout", "classic", "-b", "*", "-i", "*", "-d", "9000", "--ipv6", "off"),
}


def read(pod, *words):
    done = run_tool(pod, *words)
    assert done.returncode == 0, done.stderr
    return done


@crossed(mode=MODES, backend=BACKENDS)
def test_rules_are_verified_against_the_options_that_they_show(pod, backend, mode):
    read(pod, "apply", *MODES[mode], "--backend", backend)
    done = read(pod, "verify", "--json")
    found = json.loads(done.stdout)
    assert (found["ok"], found["backend"], found["differences"]) == (True, backend, []), done.stdout
    again = read(pod, "verify", *MODES[mode], "--json")
    if backend != "nftables":  # whose sets do not tell the order of ports, which the hash is made of
        assert json.loads(again.stdout)["hash"] == found["hash"]
    assert json.loads(again.stdout)["ok"]
    assert "no options were given" in done.stderr


@backends
def test_a_rule_of_ours_has_its_purpose_without_any_option(pod, backend):
    start_servers(pod)
    read(pod, "apply", *MODES["sidecar"], "--backend", backend)
    for _ in range(2):
        assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
    done = read(pod, "explain", "--live", "--to", f"{OUTSIDE}:80", "--uid", str(APP_ID), "--json")
    told = json.loads(done.stdout)
    assert told["sentence"].startswith("captured: goes to the proxy on 15001")
    assert "not netinit's" not in told["sentence"]
    assert [step["packets"] for step in told["path"] if step["rule"]] == [2, 2, 2], told["path"]
    assert told["options"] == "netinit apply -b '*' -d 15090,15021,15020 -i '*' --ipv6 on" or "-d 15020,15021,15090" in told["options"]
    assert {"change": "add 203.0.113.7/32 to --istio-service-exclude-cidr", "verdict": "direct"} in told["changes"]
    assert not [text for text in told["warnings"] if "uncaptured" in text]


def test_the_rules_of_legacy_iptables_are_explained_without_its_programs(pod):
    needs("libiptc")
    read(pod, "apply", *MODES["TPROXY and DNS"], "--backend", "libiptc")
    words = ("explain", "--live", "--to", f"{OUTSIDE}:80", "--uid", str(APP_ID), "--json")
    by_program = json.loads(read(pod, *words).stdout)
    assert by_program["verdict"] == "captured"
    programs = Path(shutil.which("iptables-legacy-save", path=FOLDERS) or "").resolve()
    hidden = ("unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {programs}; exec "$@"', "sh")
    done = run_tool(pod, *words, prefix=hidden)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {**told, "path": [step | {"packets": None} for step in told["path"]]} == {
        **by_program, "path": [step | {"packets": None} for step in by_program["path"]],
    }  # fmt: skip


def test_what_would_change_it_leaves_foreign_rules_where_they_are(pod):
    read(pod, "apply", *MODES["sidecar"], "--istio-exact", "--backend", "iptables-nft")
    pod.run(["iptables-nft", "-t", "nat", "-I", "OUTPUT", "1", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"], check=True)
    told = json.loads(read(pod, "explain", "--live", "--to", f"{OUTSIDE}:80", "--json").stdout)
    assert told["verdict"] == "direct"
    assert "not netinit's" in told["sentence"]
    # An option helps against a rule that stands before ours in nat only by the rules in filter that --istio-exact leaves out.
    assert told["changes"] == [{"change": "--istio-exact=false", "verdict": "dropped"}]


def test_options_that_are_given_are_compared_with_those_that_the_rules_show(pod):
    read(pod, "apply", *MODES["sidecar"], "--backend", "iptables-nft")
    done = read(pod, "explain", "--live", "--to", f"{OUTSIDE}:80", "-b", "80", "-i", "*", "--ipv6", "on")
    assert "--istio-inbound-ports is '*' and not '80'" in done.stderr
    same = read(pod, "explain", "--live", "--to", f"{OUTSIDE}:80", *MODES["sidecar"])
    assert "are not those" not in same.stderr


MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers: [{name: istio-init, args: [istio-iptables, -b, "80", -i, "*", --ipv6, "on"]}]
  containers: [{name: app}]
"""


def test_a_manifest_and_the_live_rules_are_compared(pod, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(MANIFEST)
    read(pod, "apply", "-b", "80", "-i", "*", "--ipv6", "on", "--backend", "iptables-nft")
    assert read(pod, "verify", "--pod", str(file)).stdout.startswith("as planned")
    file.write_text(MANIFEST.replace('"80"', '"*"'))
    differs = run_tool(pod, "verify", "--pod", str(file))
    assert (differs.returncode, "--istio-inbound-ports" in differs.stdout) == (3, True), differs
    words = ("explain", "--pid", str(pod.pid), "--pod", str(file), "--to", f"{OUTSIDE}:80")
    told = read(pod.client, *words)
    assert "--istio-inbound-ports is '80' and not '*'" in told.stderr


@pytest.mark.parametrize("words", [("verify",), ("verify", *SIDECAR)])
def test_a_namespace_without_rules_has_none_and_that_is_said_in_one_line(pod, words):
    done = run_tool(pod, *words)
    assert done.returncode == 3
    assert done.stdout.startswith("no rules of netinit here")
    assert done.stdout.count("\n") == 1


READING = (("verify",), ("verify", *SIDECAR), ("explain", "--live", "--to", "1.2.3.4:80"), ("draw", "--live"), ("remove", "--dry-run"))


@pytest.mark.parametrize(("backend", "words"), pairs(BACKENDS, READING))
def test_root_without_net_admin_cannot_read_and_says_so(pod, backend, words):
    read(pod, "apply", *MODES["sidecar"], "--backend", backend)
    done = run_tool(pod, *words, without=["net_admin"])
    assert (done.returncode, done.stdout) == (1, ""), done
    assert "NET_ADMIN is missing" in done.stderr
    assert "\\n" not in done.stderr


@backends
def test_a_dry_run_of_remove_lists_what_remove_takes_away_and_changes_nothing(pod, backend):
    read(pod, "apply", *MODES["TPROXY and DNS"], "--backend", backend)
    before = pod.run(["nft", "--stateless", "list", "ruleset"]).stdout
    done = read(pod, "remove", "--dry-run")
    assert "redirect to :15001" in done.stdout or "--to-ports 15001" in done.stdout
    assert "would be removed: " in done.stdout
    assert "fwmark" in done.stdout
    assert pod.run(["nft", "--stateless", "list", "ruleset"]).stdout == before
    read(pod, "remove")
    assert read(pod, "remove", "--dry-run").stdout == "there are no rules to remove\n"


def rules_of(pod):
    return pod.run(["nft", "list", "ruleset"]).stdout


def test_the_classic_refusal_of_ipv6_leaves_its_table_which_no_chain_of_ours_tells(pod):
    read(pod, "apply", *MODES["classic"], "--backend", "iptables-nft")
    read(pod, "remove")
    assert rules_of(pod).split()[:4] == ["table", "ip6", "filter", "{"]
    assert rules_of(pod).count("table") == 1


@pytest.mark.parametrize("mode", sorted({*MODES} - {"classic"}))
def test_remove_takes_along_the_tables_that_it_made(pod, mode):
    assert rules_of(pod) == ""
    read(pod, "apply", *MODES[mode], "--backend", "iptables-nft")
    read(pod, "remove")
    assert rules_of(pod) == ""


def test_remove_speaks_to_people_wherever_its_words_go_and_in_json_on_demand(pod):
    read(pod, "apply", *MODES["sidecar"])
    assert read(pod, "remove").stderr == "removed all rules\n"
    assert read(pod, "remove").stderr == "there were no rules to remove\n"
    assert json.loads(read(pod, "remove", "--log_as_json").stderr)["msg"] == "there were no rules to remove"


def test_tables_and_chains_that_were_there_before_stay(pod):
    for words in ("-t mangle -A OUTPUT -j ACCEPT", "-t mangle -D OUTPUT -j ACCEPT", "-t nat -A POSTROUTING -j ACCEPT"):
        pod.run(["iptables-nft", *words.split()], check=True)
    before = rules_of(pod)
    read(pod, "apply", *MODES["TPROXY and DNS"], "--backend", "iptables-nft")
    read(pod, "remove")
    assert rules_of(pod) == before


def test_a_policy_that_somebody_has_set_meanwhile_keeps_the_chain(pod):
    read(pod, "apply", *MODES["TPROXY and DNS"], "--backend", "iptables-nft")
    pod.run(["iptables-nft", "-t", "mangle", "-P", "OUTPUT", "DROP"], check=True)
    read(pod, "remove")
    assert "policy drop" in rules_of(pod)
    assert "PREROUTING" not in rules_of(pod)


def test_a_table_without_chains_does_not_keep_us_from_working(pod):
    pod.run(["nft", "add", "table", "ip", "nat"], check=True)
    read(pod, "apply", *MODES["sidecar"], "--backend", "iptables-nft")
    assert read(pod, "verify", *MODES["sidecar"]).stdout.startswith("as planned")


RECORDED = (*SIDECAR, "--ipv6", "on", "-x", "10.0.0.0/8", "--backend", "nftables")
NAT_TABLE, OUTPUT_CHAIN = "inet istio-proxy-nat", "inet istio-proxy-nat istio-output"


def verify_alone(pod):
    done = run_tool(pod, "verify", "--json")
    return done.returncode, json.loads(done.stdout)["differences"], done.stderr


def replace_nat(pod, folder, text):
    (folder / "script").write_text(f"delete table {NAT_TABLE}\n{text}\n")
    pod.run(["nft", "-f", str(folder / "script")], check=True)


def test_a_deleted_rule_is_missing_from_the_options_that_the_table_records(pod):
    needs("nftables")
    read(pod, "apply", *RECORDED)
    code, _, notes = verify_alone(pod)
    assert (code, "those that the nft table's comment records" in notes) == (0, True)
    listed = pod.run(["nft", "-a", "list", "chain", *OUTPUT_CHAIN.split()], check=True).stdout
    (handle,) = [line.split()[-1] for line in listed.splitlines() if "10.0.0.0/8" in line]
    pod.run(["nft", f"delete rule {OUTPUT_CHAIN} handle {handle}"], check=True)
    code, differences, _ = verify_alone(pod)
    assert (code, [(one["kind"], one["rule"]) for one in differences]) == (3, [("missing", "ip daddr 10.0.0.0/8 counter return")])
    told = json.loads(read(pod, "explain", "--live", "--to", "10.1.1.1:80", "--json").stdout)
    assert told["verdict"] == "captured"
    assert [text for text in told["warnings"] if "--istio-service-exclude-cidr is '' and not '10.0.0.0/8'" in text]
    assert {"change": "netinit apply --reconcile", "verdict": "direct"} in told["changes"]
    compared = run_tool(pod, "diff", "--live", "--json")
    (pair,) = json.loads(compared.stdout)["compared"]
    assert (compared.returncode, pair["name"], pair["result"]) == (3, "the plan of the recorded options and the live rules", "different")


def test_a_record_follows_a_change_that_is_in_another_table(pod):
    needs("nftables")
    read(pod, "apply", *RECORDED)
    read(pod, "apply", *RECORDED, "--drop-invalid", "--reconcile")  # whose rule is in the mangle table alone
    code, _, notes = verify_alone(pod)
    assert (code, "--drop-invalid" in notes) == (0, True)


@pytest.mark.parametrize("comment", ["netinit apply --network-namespace /proc/1/ns/net", "netinit apply -b 0", "theirs"])
def test_a_comment_that_is_no_record_leaves_the_options_to_the_rules(pod, tmp_path, comment):
    needs("nftables")
    read(pod, "apply", *RECORDED)
    listing = pod.run(["nft", "list", "table", *NAT_TABLE.split()], check=True).stdout
    changed = "\n".join(f'\tcomment "{comment}"' if line.startswith("\tcomment") else line for line in listing.splitlines())
    assert changed != listing.rstrip("\n")
    replace_nat(pod, tmp_path, changed)
    code, differences, notes = verify_alone(pod)
    assert (code, differences) == (0, [])
    assert "those that the rules show: netinit apply" in notes
    assert "-x 10.0.0.0/8" in notes


def test_a_record_of_other_options_is_a_difference_and_not_believed(pod, tmp_path):
    needs("nftables")
    read(pod, "apply", *RECORDED)
    listing = pod.run(["nft", "list", "table", *NAT_TABLE.split()], check=True).stdout
    changed = listing.replace("-x 10.0.0.0/8", "-x 11.0.0.0/8")
    assert changed != listing
    replace_nat(pod, tmp_path, changed)
    code, differences, _ = verify_alone(pod)
    assert code == 3
    assert {one["kind"] for one in differences} == {"missing", "extra"}
    told = json.loads(read(pod, "explain", "--live", "--to", "10.1.1.1:80", "--json").stdout)
    assert told["verdict"] == "direct"
    assert "-x 10.0.0.0/8" in told["options"]


RECORDS = json.loads((Path(__file__).parents[1] / "conformance" / "istio_rules.json").read_text("utf-8"))
FEW = {
    (0, "tproxy (IPv6 off)"): "iptables-nft", (8, "HandleInboundIpv4RulesWithUidGid"): "iptables-legacy", (12, "inbound-ports-wildcard"): "iptables-nft",
    (23, "inbound-ports-wildcard"): "iptables-legacy", (27, "drop-invalid"): "nftables", (27, "inbound-ports-tproxy"): "nftables",
}  # fmt: skip
OF_RELEASES = {
    f"{record['case']} of 1.{record['releases'][0]}-{backend}": (record, backend)
    for record in RECORDS
    for backend in (("nftables",) if "nft" in record["rules"] else BACKENDS[:2])
    if choose(FEW.get((record["releases"][0], record["case"])) == backend, whole=True)
}  # fmt: skip


@pytest.mark.parametrize("name", OF_RELEASES)
def test_no_command_without_options_says_that_rules_of_another_istio_are_wrong(pod, name):
    record, backend = OF_RELEASES[name]
    first = record["releases"][0]
    older_rules.program(pod, backend, first, record["argv"], record["rules"], ipv6=record["ipv6"])
    told = older_rules.read_back(pod)
    assert not told.wrong
    assert told.releases.startswith("Istio 1.") or first in {0, 1, 2, 25} or backend == "nftables"


@pytest.mark.parametrize("beside", [(), ("OUTPUT",)])
def test_an_interface_that_somebody_excludes_from_the_rules_of_an_earlier_istio_is_a_difference(pod, beside):
    record = next(one for one in RECORDS if (one["releases"][0], one["case"]) == (12, "inbound-ports-wildcard"))
    older_rules.program(pod, "iptables-nft", 12, record["argv"], record["rules"], ipv6=False)
    pod.run(["iptables-nft", "-t", "nat", "-I", "PREROUTING", "-i", "eth0", "-j", "RETURN"], check=True)
    for chain in beside:  # one in another table is no exclusion either
        pod.run(["iptables-nft", "-t", "mangle", "-I", chain, "-o", "eth0", "-j", "RETURN"], check=True)
    done = run_tool(pod, "verify")
    assert done.returncode == 3, done.stdout
    assert "-i eth0 -j RETURN" in done.stdout


def test_a_rule_that_is_missing_from_istio_s_native_rules_is_a_difference_from_these(pod):
    record = next(one for one in RECORDS if one["case"] == "inbound-ports-tproxy" and "nft" in one["rules"])
    older_rules.program(pod, "nftables", 27, record["argv"], record["rules"], ipv6=False)
    chain = ("inet", "istio-proxy-mangle", "istio-inbound")
    listed = pod.run(["nft", "-a", "list", "chain", *chain], check=True).stdout
    (handle,) = [line.split()[-1] for line in listed.splitlines() if "tcp dport 31000" in line and "istio-divert" in line]
    pod.run(["nft", "delete", "rule", *chain, "handle", handle], check=True)
    done = run_tool(pod, "verify")
    assert done.returncode == 3
    first, last, *_ = done.stdout.splitlines()
    assert first.startswith("missing: nft istio-proxy-mangle istio-inbound rule 6: "), done.stdout
    assert last.endswith("those of Istio 1.27 and later, native nft")


OF_MESHES = {path.stem: path for path in sorted((Path(__file__).parents[1] / "migrations" / "rules").glob("[!i]*.txt"))}


@pytest.mark.parametrize(("name", "backend"), pairs(OF_MESHES, BACKENDS[:2]))
def test_verify_says_whose_the_rules_of_another_mesh_are(pod, name, backend):
    blocks = OF_MESHES[name].read_text("utf-8").split("# Generated by ")[1:]
    for family in FAMILIES:
        load(pod, backend, family, "".join("#" + block for block in blocks if block.startswith(f"{family.program}-")))
    mesh = name.partition("-")[0]
    done = run_tool(pod, "verify")
    assert done.returncode == 3
    assert done.stdout == (
        f"no rules of netinit here: they are {mesh.title()}'s; netinit audit and explain read them, netinit convert {mesh} finds the"
        " options for the same traffic\n"
    )


def tells_all(options):
    """Whether the rules tell all options: a VM's interfaces without captured networks are told by rules that may be anybody's."""
    captures_in = options.inbound_ports and options.inbound_mode != "NONE"
    return not (options.virtual_interfaces and not (options.outbound_cidrs or captures_in))


@settings(max_examples=choose(2, 150), phases=[Phase.generate], deadline=None, suppress_health_check=[*HealthCheck])
@given(options=made_options(), backend=st.sampled_from(BACKENDS), threshold=st.sampled_from((0, 1, 2, 100)))
def test_whatever_was_programmed_is_right_without_options(options, backend, threshold):
    assume(tells_all(options))
    with Pod() as own:
        try:
            apply_in(own, options.replace(backend=backend, ipset_threshold=threshold))
        except NetinitError:  # a combination that this backend refuses
            reject()
        done = run_tool(own, "verify")
        assert done.returncode == 0, f"{format_options(options)}\n{done.stderr}{done.stdout}"


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_networks_of_a_set_are_shown_in_the_order_of_the_rules_that_name_them(pod, backend):
    """A set has no order, and rules that log cannot change places without an effect."""
    networks = "::1/128,2001:db8::/32,::/0,10.9.0.0/16,10.1.0.0/16"
    words = ("-i", "*", "-x", networks, "--ipv6", "reject", "--reject-quic", "--log-rules")
    assert run_tool(pod, "apply", *words, "--backend", backend, "--ipset-threshold", "1").returncode == 0
    done = run_tool(pod, "verify")
    assert done.returncode == 0, done.stdout
    (shown,) = re.findall(r" -x (\S+)", done.stderr)
    for version in (":", "."):
        assert [one for one in shown.split(",") if version in one] == [one for one in networks.split(",") if version in one]


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("more", [(), ("-k", "eth1"), ("-x", "2001:db8::/32")], ids=" ".join)
def test_the_classic_layout_that_rejects_ipv6_is_told_by_rules_of_ipv4_alone(pod, backend, more):
    words = ("-i", "203.0.113.0/25", "--layout", "classic", "--ipv6", "reject", *more)
    assert run_tool(pod, "apply", *words, "--backend", backend).returncode == 0
    done = run_tool(pod, "verify")
    assert done.returncode == 0, done.stdout
    assert "--ipv6 reject" in done.stderr


def test_deleted_rules_of_ipv6_that_captured_inbound_connections_are_missing(pod):
    assert run_tool(pod, "apply", "-b", "*", "-i", "203.0.113.0/25", "--layout", "classic", "--ipv6", "on", "--backend", "iptables-nft").returncode == 0
    pod.run(["nft", "delete", "table", "ip6", "nat"], check=True)
    done = run_tool(pod, "verify")
    assert done.returncode == 3
    assert "missing: IPv6 nat ISTIO_INBOUND" in done.stdout


OF_1_0 = {  # where nothing is captured
    "iptables": """*nat
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -j ISTIO_REDIRECT
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
""",
    "ip6tables": """*filter
-A INPUT -m state --state ESTABLISHED -j ACCEPT
-A INPUT -j REJECT --reject-with icmp6-port-unreachable
COMMIT
""",
}


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_istio_1_0_which_refuses_ipv6_and_captures_nothing_is_not_taken_for_the_classic_layout(pod, backend):
    older_rules.program(pod, backend, 0, ("-u", "1337", "-m", "REDIRECT", "-b", "", "-i", ""), OF_1_0, ipv6=False)
    told = older_rules.read_back(pod)
    assert (told.wrong, told.releases) == ("", "Istio 1.0")

"""`netinit convert` as a command line: what it prints where, and how it ends."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest
import yaml

import netinit
import peers
from netinit.options import Options
from netinit.options.file import read_tree

SCHEMA = Path(netinit.__file__).parent / "data" / "convert.schema.json"
LINKERD = "netinit convert --from linkerd -- -p 4143 -o 4140 -u 2102 -g 2103 --inbound-ports-to-ignore 4190-4191,15008"
KUMA_FILE = "kumaDPUser: '5'\nredirect:\n  inbound: {includePorts: [80]}\n  dns: {enabled: true, captureAll: true, port: 53}\n"


def test_a_command_line_is_printed_that_apply_takes(run):
    done = run(LINKERD)
    assert done.code == 0
    assert done.out == "netinit apply -p 4140 -z 4143 -u 2102 -g 2103 -b '*' -d 4190-4191,15008 -c lo -i '*' --ipv6 on\n"
    assert not done.err
    again = run(shlex.split(done.out.replace("apply", "render --format json --dns-servers 10.0.0.10")))
    assert again.code == 0


def test_variables_stand_before_the_command(run):
    done = run("netinit convert --from istio -- ISTIO_OUTBOUND_OWNER_GROUPS=1,2 istio-iptables -p 15001")
    assert done.out == "ISTIO_OUTBOUND_OWNER_GROUPS=1,2 netinit apply -p 15001 -z 15006 -u 1337\n"


def test_what_has_no_equivalent_is_a_warning_and_exit_code_3(run):
    done = run(f"{LINKERD} --timeout-close-wait-secs 60 -w")
    assert done.code == 3
    assert done.out.startswith("netinit apply ")
    assert done.errors == [
        "note: --use-wait-flag: netinit always waits for the lock, as long as --lock-timeout",
        "warning: no equivalent: --timeout-close-wait-secs '60': netinit sets no such sysctl; set net.netfilter.nf_conntrack_tcp_timeout_close_wait in the pod's securityContext",
    ]


def test_a_bad_value_is_an_error_and_nothing_is_printed(run):
    done = run("netinit convert --from linkerd -- -p 4143 -o 4140 --proxy-uid root --nets x")
    assert (done.code, done.out) == (2, "")
    assert done.errors == [
        "netinit: linkerd: '--nets' is not a flag of Linkerd; did you mean --netns?",
        "netinit: linkerd: --proxy-uid: 'root' is not a user or group id: use a decimal number from 0 to 4294967294",
    ]


def test_an_unknown_peer_is_an_error(run):
    done = run("netinit convert --from cilium -- -p 1")
    assert done.code == 2
    assert "'cilium' is not one of" in done.err


def test_a_file_of_options_is_printed(run):
    done = run(f"{LINKERD} --netns /run/netns/pod".replace("--from", "--format config --from"))
    assert done.code == 0
    assert done.errors == ["warning: --network-namespace /run/netns/pod belongs to the command line, and not to the file"]
    texts = read_tree(yaml.safe_load(done.out), "file")
    assert Options.from_texts({}, {}, (), texts) == peers.convert_line("linkerd", LINKERD.partition("-- ")[2]).options


def test_an_object_is_printed_as_its_schema_says(run):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    done = run(f"{LINKERD} --timeout-close-wait-secs 60 -w".replace("--from", "--format json --from"))
    assert (done.code, done.err) == (3, "")
    tree = json.loads(done.out)
    jsonschema.validate(tree, schema)
    assert tree["command"][:4] == ["netinit", "apply", "-p", "4140"]
    assert [one["flag"] for one in tree["lacking"]] == ["--timeout-close-wait-secs"]
    assert [one["flag"] for one in tree["needless"]] == ["--use-wait-flag"]
    assert tree["options"]["istio-local-exclude-ports"] == ["4190-4191", 15008]


@pytest.mark.parametrize("given", ["--file", "--config"])
def test_the_peer_s_file_is_read_from_a_file_or_stdin(run, given, tmp_path, monkeypatch):
    path = tmp_path / "tp.yaml"
    path.write_text(KUMA_FILE)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(KUMA_FILE.encode())))
    lines = [f"netinit convert --from kuma {'-- ' * (given == '--config')}{given} {name}" for name in (str(path), "-")]
    outputs = [run(line) for line in lines]
    dns = "--redirect-dns --capture-all-dns --dual-stack --exclude-outbound-for-uids tcp:53:0-4294967294"
    assert {done.out for done in outputs} == {f"netinit apply -p 15001 -z 15006 -u 5 -b 80 -i '*' {dns}\n"}
    assert {done.code for done in outputs} == {3}
    assert "no equivalent: --redirect-dns-port '53': the proxy's resolver must listen on 15053" in outputs[0].err


def test_what_kuma_ignores_beside_a_list_of_ports_is_named_and_left_out(run, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    file = tmp_path / "tp.yaml"
    file.write_text("redirect:\n  inbound: {includePorts: [80], excludePorts: [81]}\n  outbound: {includePorts: [443], excludePorts: [444]}\n")
    tree = json.loads(run(f"netinit convert --format json --from kuma --file {file}").out)
    jsonschema.validate(tree, json.loads(SCHEMA.read_text()))
    assert [one["flag"] for one in tree["needless"]] == ["--exclude-inbound-ports", "--exclude-outbound-ports"]
    assert not {"81", "444"} & set(tree["command"])


def test_a_later_file_goes_before_an_earlier_one(run, tmp_path):
    for name, port in (("1.yaml", 11), ("2.yaml", 12)):
        (tmp_path / name).write_text(json.dumps({"kumaDPUser": "5", "redirect": {"outbound": {"port": port}}}))
    done = run(f"netinit convert --from kuma -- --config {tmp_path}/1.yaml,{tmp_path}/2.yaml")
    assert done.out.startswith("netinit apply -p 12 ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        ("a: [", "--file: tp.yaml:2:1: a value is missing here"),
        ("redirect: {}\nredirect: {}\n", "redirect"),
        ("redirect: {dsn: {port: 5}}", "'redirect.dsn.port' is not a key of it; did you mean redirect.dns.port?"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(run, tmp_path, monkeypatch, text, told):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("tp.yaml").write_text(text)
    done = run("netinit convert --from kuma --file tp.yaml")
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert "tp.yaml" in done.err


def test_dashes_before_the_peer_s_flags_may_be_left_out(run):
    assert run(LINKERD.replace(" -- ", " ")).out == run(LINKERD).out

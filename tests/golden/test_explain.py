"""The sentences and paths of `netinit explain`: one file a question, its command line on the first line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from netinit.cli import start
from sweeps import together

FOLDER = Path(__file__).parent / "explain"
SIDECAR = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15090,15021,15020"
QUESTIONS = {
    "outbound-captured": f"--to 203.0.113.7:443 {SIDECAR}",
    "outbound-excluded-network": f"--to 10.1.2.3:443 --uid 1000 {SIDECAR} -x 10.0.0.0/8",
    "outbound-excluded-port": f"--to 203.0.113.7:3306 {SIDECAR} -o 3306",
    "outbound-of-the-proxy": f"--to 203.0.113.7:443 --uid 1337 {SIDECAR}",
    "outbound-not-included": "--to 203.0.113.7:443 -i 10.0.0.0/8 -b 80",
    "outbound-included-port": "--to 203.0.113.7:9000 -i '' -q 9000",
    "outbound-ipv6": f"--to [2001:db8::7]:443 {SIDECAR}",
    "outbound-ipv6-off": f"--to [2001:db8::7]:443 {SIDECAR} --ipv6 off",
    "outbound-udp": f"--to 203.0.113.7:443 --udp {SIDECAR}",
    "application-to-itself": f"--to 192.0.2.10:8080 {SIDECAR}",
    "application-to-loopback": f"--to 127.0.0.1:8080 {SIDECAR}",
    "proxy-to-own-pod": f"--to 192.0.2.10:8080 --uid 1337 {SIDECAR}",
    "proxy-passes-on": f"--to 192.0.2.10:8080 --uid 1337 --from 127.0.0.6 outbound {SIDECAR}",
    "dns-captured": f"--to 10.96.0.10:53 --udp {SIDECAR} --redirect-dns --dns-servers 10.96.0.10",
    "dns-of-the-proxy": f"--to 10.96.0.10:53 --udp --uid 1337 {SIDECAR} --redirect-dns --dns-servers 10.96.0.10",
    "dns-elsewhere": f"--to 8.8.8.8:53 --udp {SIDECAR} --redirect-dns --dns-servers 10.96.0.10",
    "inbound-captured": f"--from 10.9.9.9 --to-port 8080 inbound {SIDECAR}",
    "inbound-excluded-port": f"--from 10.9.9.9 --to-port 15021 inbound {SIDECAR}",
    "inbound-tunnel": f"--from 10.9.9.9 --to-port 15008 inbound {SIDECAR}",
    "inbound-none": "--from 10.9.9.9 --to-port 8080 inbound -i '*' -b '*' -m NONE",
    "inbound-tproxy": f"--from 10.9.9.9 --to-port 8080 inbound {SIDECAR} -m TPROXY",
    "inbound-tproxy-own-service": f"--to 192.0.2.10:8080 --uid 1337 {SIDECAR} -m TPROXY",
    "virtual-machine": f"--from 10.8.0.9 --to 203.0.113.7:80 --interface net1 inbound {SIDECAR} -k net1",
    "excluded-interface": f"--from 10.8.0.9 --to-port 80 --interface eth1 --pod-ip 192.0.2.10 --to 192.0.2.10 {SIDECAR} -c eth1",
    "classic-inbound": "--from 10.9.9.9 --to-port 80 inbound --layout classic -p 15001 -u 1337 -i '*' -b 80",
    "classic-own-service": "--to 192.0.2.10:80 --layout classic -p 15001 -u 1337 -i '*' -b 80",
    "classic-ipv6-refused": "--from 2001:db8::9 --to-port 80 inbound --layout classic -i '*' -b 80 --ipv6 off",
}


def ask(line, capsys):
    code = start.run(["netinit", "explain", *shlex.split(line)], {})
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_the_one_on_file(name, capsys, golden):
    line = QUESTIONS[name]
    golden({FOLDER / f"{name}.txt": f"$ netinit explain {line}\n{ask(line, capsys)}"})


def test_every_file_has_its_question():
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(QUESTIONS)


@together("name", QUESTIONS)
def test_the_json_has_what_its_schema_says_and_tells_the_same(name, capsys):
    told = json.loads(ask(QUESTIONS[name] + " --json --all", capsys))
    schema = json.loads((Path(start.__file__).parent.parent / "data" / "explain.schema.json").read_text())
    check(told, schema)
    assert told["sentence"].startswith(told["verdict"])
    assert (told["redirect_port"] is not None) == (told["verdict"] == "captured")
    assert told["sentence"] == (FOLDER / f"{name}.txt").read_text().splitlines()[1]


KINDS = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}


def check(value, schema):
    """The keywords that our schema uses."""
    if "enum" in schema:
        assert value in schema["enum"]
    wanted = schema.get("type", [])
    kinds = [KINDS[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted)]
    assert not kinds or type(value) in kinds, (value, schema)
    if isinstance(value, dict):
        assert set(value) == set(schema["properties"]) == set(schema["required"])
        for key, item in value.items():
            check(item, schema["properties"][key])
    if isinstance(value, list):
        for item in value:
            check(item, schema["items"])

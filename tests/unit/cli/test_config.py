"""--config: where the file is read, and what happens where it cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import netinit

MAIN = Path(netinit.__file__).parent / "__main__.py"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "netinit.yaml"
    path.write_text("istio-inbound-ports: [80, 8000-8100]\nistio-service-cidr: '*'\nipv6: off\n")
    return path


@pytest.mark.parametrize("command", ["netinit apply -n", "netinit -n", "istio-iptables -n", "netinit render"])
def test_every_command_reads_the_file_by_flag_or_variable(command, file, run):
    by_flag = run(f"{command} --config {file}")
    assert by_flag.code == 0, by_flag.err
    assert "-A ISTIO_INBOUND -p tcp -m multiport --dports 80,8000:8100 -j ISTIO_IN_REDIRECT" in by_flag.out
    assert run(command, {"NETINIT_CONFIG": str(file)}).out == by_flag.out
    assert "--dport 443 " in run(f"{command} --config {file} -b 443").out
    assert "--dport 444 " in run(f"{command} --config {file}", {"ISTIO_INBOUND_PORTS": "444"}).out


def test_the_options_in_force_are_written_as_a_file_that_makes_the_same_rules(file, run, tmp_path):
    written = run(f"netinit render --format config --config {file} -o 22 -u 1337")
    assert written.out.startswith("# yaml-language-server: $schema=netinit/data/config.schema.json\n")
    assert 'istio-inbound-ports: [80, "8000-8100"]\n' in written.out
    again = tmp_path / "again.yaml"
    again.write_text(written.out)
    assert run(f"netinit render --config {again}").out == run(f"netinit render --config {file} -o 22 -u 1337").out


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"a: [1", "bad.yaml:2:1: the [ in the line above is not closed"),
        (b"envoy-port: 1\nenvoy-port: 2\n", "envoy-port"),
        (b"a" * (1 << 20) + b"b", "is longer than 1 MB"),
        (b"envoy-portt: 1\n", "did you mean envoy-port?"),
    ],
)
@pytest.mark.parametrize("command", ["netinit apply -n", "netinit lint"])
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(content, problem, command, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)  # messages cut long paths
    path = Path("bad.yaml")
    if content is not None:
        path.write_bytes(content)
    done = run(f"{command} --config {path} -p 0")
    assert done.code == 2
    assert problem in done.err
    assert str(path) in done.err
    assert "-p: '0' is not a port" in done.err, "all that is wrong is told at once"


def test_the_lean_path_reads_it_without_site_packages(file):
    done = subprocess.run([sys.executable, "-I", "-S", MAIN, "-n", "--config", file], capture_output=True, text=True, check=True)
    assert "--dports 80,8000:8100" in done.stdout


def test_the_mistakes_that_yaml_invites_are_named(run, tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("istio-service-cidr: *\n")
    assert "options.yaml:1:22: an alias has a name behind its *; quote a text that begins with *" in run(["netinit", "render", "--config", str(file)]).err
    file.write_text("ISTIO_INBOUND_PORTS: 80\n")
    done = run(["netinit", "render", "--config", str(file)])
    assert (done.code, "the keys are the long names of flags: write istio-inbound-ports" in done.err) == (2, True), done
    file.write_text("proxy-uid: 010\nenvoy-port: '0x10'\nistio-inbound-ports: [80, 0900]\n")
    done = run(["netinit", "render", "--config", str(file)])
    assert (done.code, done.out) == (2, "")
    assert "options.yaml:1:12: 010 is the number 8 in YAML: write it without the leading zero" in done.err
    file.write_text("proxy-uid: 0\ntproxy-mark: 0x10\n")
    assert "leading zero" not in run(["netinit", "render", "--config", str(file)]).err

"""A real application on the port of Istio's tunnel: reached as it is by default, captured where there is no tunnel."""

from __future__ import annotations

import json

import pytest

from lab_probes import Probe
from laboratory import start_servers
from netinit.lab import PROXY_ID
from netinit.options import Options
from netinit.pods.live import read_live
from programming import apply_in, arrivals, differences_in, needs, run_tool
from sweeps import crossed

POD = {4: "10.77.0.2", 6: "fd77::2"}
BACKENDS = ["iptables-nft", "iptables-legacy", "nftables", "libiptc"]
DNS = ("--redirect-dns", "--dns-servers", "203.0.113.7,2001:db8::7")
APP, PROXY = ("app", 15008), ("proxy", 15006)


@crossed(backend=BACKENDS, mode=("REDIRECT", "TPROXY"), more=((), DNS))
def test_without_a_tunnel_an_application_on_its_port_is_captured(pod, backend, mode, more):
    needs(backend)
    start_servers(pod, app=(15008,), **({"transparent": (15006,)} if mode == "TPROXY" else {}))
    arguments = ["-m", mode, "-b", "*", "-i", "*", "--ipv6", "on", "--backend", backend, *more]
    itself = [Probe(POD[family], 15008, uid=PROXY_ID, gid=PROXY_ID) for family in (4, 6)]
    outside = [Probe(POD[family], 15008) for family in (4, 6)]

    apply_in(pod, Options.from_argv(arguments))
    assert arrivals(pod.client, *outside) == ([APP] * 2 if mode == "REDIRECT" else [PROXY] * 2)
    assert arrivals(pod, *itself) == ([APP] * 2 if mode == "REDIRECT" else [PROXY] * 2)

    without = Options.from_argv([*arguments, "-e", "0"])
    assert differences_in(pod, without), "the rules of the tunnel are not missed"
    apply_in(pod, without.replace(reconcile=True))
    assert arrivals(pod.client, *outside) == [PROXY] * 2
    assert arrivals(pod, *itself) == [PROXY] * 2
    assert not apply_in(pod, without).changed
    with pod.entered():
        (found,) = read_live(Options()).inferred.values()
    assert (found.options.tunnel_port, found.unread) == (0, ())


MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers:
  - name: istio-init
    args: [-p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -b, "*", -d, "15021", --ipv6, "on"]
  containers:
  - {name: app}
  - {name: istio-proxy, env: [{name: ISTIO_META_ENABLE_HBONE, value: "%s"}]}
"""


@pytest.mark.parametrize(("enabled", "kind"), [("true", "tunnel"), ("false", "tunnel-port")])
def test_a_live_audit_names_who_listens_there_and_asks_the_manifest_who_should(pod, tmp_path, enabled, kind):
    needs("iptables-nft")
    (tmp_path / "pod.yaml").write_text(MANIFEST % enabled)
    apply_in(pod, Options.from_argv(["-b", "*", "-d", "15021", "-i", "*", "--ipv6", "on", "--backend", "iptables-nft"]))

    def audited():
        done = run_tool(pod, "audit", "--pid", str(pod.pid), "--pod", str(tmp_path / "pod.yaml"), "--json")
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)["pods"]
        assert [row["kind"] for row in found["traffic"] if row["kind"].startswith("tunnel")] == [kind]
        return [note for note in found["notes"] if "15008" in note]

    assert audited() == ["port 15008 is left to the proxy's tunnel (HBONE): no process listens there now"]
    start_servers(pod, app=(15008,))
    assert audited() == ["port 15008 is left to the proxy's tunnel (HBONE): user 1000 listens there"]

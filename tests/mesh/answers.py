"""The questions that are put to a pair of pods of the mesh, and the answers that every way of programming them must give.

Each question is a connection; its answer is who answered, whom they saw, and what each sidecar logged of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from calls import RESET, Call, listen_to, request
from mesh import NAME_SERVER, resolve
from pods import EXCLUDED_IN, EXCLUDED_OUT, GUARDED, HTTP, OUTSIDE, OUTSIDE_DIRECT, STREAM, MeshPod, Variant

EXTERNAL, UNKNOWN = "only.mesh.test", "elsewhere.test"
FLUSHED = 2.5  # Envoy writes its log once a second
TO_B = "outbound_.{port}_._.b.mesh.svc.cluster.local"


@dataclass
class Pair:
    """The pods `a` and `b`, b's cluster address, and who else is there: `guest` in the mesh, `plain` and `node` outside of it."""

    variant: Variant
    a: MeshPod
    b: MeshPod
    service: str
    guest: MeshPod
    plain: MeshPod
    plain_service: str
    node: object

    def await_endpoints(self):
        """Waits until the sidecars know each other: istiod tells them after the kubelet has called the pods ready."""
        callers = {"a": self.a.app, "b": self.b.app, "guest": self.guest.app}
        for who, caller in callers.items():
            self.a.plane.until(lambda caller=caller: request(caller, self.service, 80).outcome == self.b.name, f"{who} reaches b's service")

    def ask(self):
        """Puts all questions and returns the answers: question -> (outcome, log lines)."""
        made = {name: question(self, f"{name.replace(' ', '-')}-{time.monotonic_ns()}") for name, question in QUESTIONS.items()}
        time.sleep(FLUSHED)
        logs = [(who, pod.plane.access_log(pod.tree)) for who, pod in (("a", self.a), ("b", self.b))]
        return {name: (self.describe(call), self.find_lines(call, logs)) for name, call in made.items()}

    def roles(self):
        return {"a": self.a, "b": self.b, "guest": self.guest, "plain": self.plain}

    def describe(self, call):
        names = {pod.name: role for role, pod in self.roles().items()}
        addresses = {pod.address: role for role, pod in self.roles().items()}
        outcome = names.get(call.outcome, call.outcome)
        return f"{outcome}, called by {addresses.get(call.peer, call.peer)}" if call.peer else outcome

    def find_lines(self, call, logs):
        """The lines of one call: of a request by its identity, of other connections by whom they come from."""
        sources, lines = {call.source}, []
        for who, entries in logs:
            for entry in entries:
                if entry["request_id"] == call.identity if entry["request_id"] else entry["downstream_remote_address"] in sources:
                    sources.add(entry["upstream_local_address"])
                    lines.append(self.spell(who, entry))
        return tuple(sorted(lines))

    def spell(self, who, entry):
        """A log line without what differs from pair to pair."""
        refused = entry["response_flags"] != "-" and entry["response_code_details"]
        words = (who, entry["upstream_cluster"], entry["requested_server_name"], refused)
        text = " ".join(word for word in words if word)
        for name, role in ((self.b.name, "b"), (self.plain.name, "plain")):
            text = text.replace(f".{name}.", f".{role}.").replace(f"|{name}.", f"|{role}.")
        return text


def _probes(pair, _):
    return Call("ready" if pair.b.restarts() == 0 else "restarted", "")


def _names(pair, _):
    known, unknown = (resolve(pair.a.app, name, NAME_SERVER) for name in (EXTERNAL, UNKNOWN))
    heard = [name for name in (EXTERNAL, UNKNOWN) if name in pair.a.plane.names.asked]
    return Call(f"{known and known.rpartition('.')[0]}, {unknown}; the cluster's name server heard {heard}", "")


QUESTIONS = {
    "a to b's service": lambda x, i: request(x.a.app, x.service, 80, identity=i),
    "a to b's service, bytes": lambda x, _: listen_to(x.a.app, x.service, STREAM),
    "a to b's guarded port": lambda x, i: request(x.a.app, x.service, GUARDED, identity=i),
    "guest to b's guarded port": lambda x, i: request(x.guest.app, x.service, GUARDED, identity=i),
    "plain to b": lambda x, i: request(x.plain.app, x.b.address, HTTP, identity=i),
    "plain to b, excluded port": lambda x, i: request(x.plain.app, x.b.address, EXCLUDED_IN, identity=i),
    "a to plain's service": lambda x, i: request(x.a.app, x.plain_service, 80, identity=i),
    "a to plain, excluded port": lambda x, i: request(x.a.app, x.plain.address, EXCLUDED_OUT, identity=i),
    "a to an excluded network": lambda x, i: request(x.a.app, OUTSIDE_DIRECT, 80, identity=i),
    "a to an unknown network": lambda x, i: request(x.a.app, OUTSIDE, 80, identity=i),
    "b to its own service": lambda x, i: request(x.b.app, x.service, 80, identity=i),
    "b to 127.0.0.1": lambda x, i: request(x.b.app, "127.0.0.1", HTTP, identity=i),
    "b to its own address": lambda x, i: request(x.b.app, x.b.address, HTTP, identity=i),
    "port 15021": lambda x, i: request(x.node, x.b.address, 15021, "/healthz/ready", identity=i),
    "port 15020": lambda x, i: request(x.node, x.b.address, 15020, "/healthz/ready", identity=i),
    "port 15090": lambda x, i: request(x.node, x.b.address, 15090, "/stats/prometheus", identity=i),
    "b's probes": _probes,
    "names": _names,
    "a to a name of the mesh alone": lambda x, i: request(x.a.app, resolve(x.a.app, EXTERNAL, NAME_SERVER), 80, identity=i),
}


def expect(mode):
    """Returns the answers that a mesh with STRICT mTLS gives, whoever programmed the pods."""
    to_b, guarded, stream = (TO_B.format(port=port) for port in (80, GUARDED, STREAM))
    seen = "127.0.0.6" if mode == "REDIRECT" else "a"
    own = "127.0.0.6" if mode == "REDIRECT" else "b"
    return {
        "a to b's service": (f"b, called by {seen}", ("a outbound|80||b.mesh.svc.cluster.local", f"b inbound|{HTTP}|| {to_b}")),
        "a to b's service, bytes": (f"b, called by {seen}", (f"a outbound|{STREAM}||b.mesh.svc.cluster.local", f"b inbound|{STREAM}|| {stream}")),
        "a to b's guarded port": (f"b, called by {seen}", (f"a outbound|{GUARDED}||b.mesh.svc.cluster.local", f"b inbound|{GUARDED}|| {guarded}")),
        "guest to b's guarded port": ("403", (f"b inbound|{GUARDED}|| {guarded}",)),
        "plain to b": (RESET, ("b filter_chain_not_found",)),
        "plain to b, excluded port": ("b, called by plain", ()),
        "a to plain's service": ("plain, called by a", ("a outbound|80||plain.plain.svc.cluster.local",)),
        "a to plain, excluded port": ("plain, called by a", ()),
        "a to an excluded network": ("outside, called by a", ()),
        "a to an unknown network": ("outside, called by a", ("a PassthroughCluster",)),
        "b to its own service": (f"b, called by {own}", (f"b inbound|{HTTP}|| {to_b}", "b outbound|80||b.mesh.svc.cluster.local")),
        "b to 127.0.0.1": ("b, called by 127.0.0.1", ()),
        "b to its own address": ("b, called by b", ()),
        **{f"port {port}": ("200", ()) for port in (15021, 15020, 15090)},
        "b's probes": ("ready", ()),
        "names": (f"240.240.0, None; the cluster's name server heard ['{UNKNOWN}']", ()),
        "a to a name of the mesh alone": ("plain, called by a", (f"a outbound|80||{EXTERNAL}",)),
    }

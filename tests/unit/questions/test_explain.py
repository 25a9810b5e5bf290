"""What would change the fate of a connection: each change is planned once for all packets that are asked about."""

from __future__ import annotations

import pytest

from allpackets import around
from core import IPV4, Options, make_outbound, plan, settled
from netinit.base.errors import OptionError
from netinit.inject.deciding.podfile import read_object
from netinit.questions import explain as explaining
from netinit.questions.answers import explain_connection
from netinit.questions.audit.bypasses import audit
from netinit.questions.connections import Question
from netinit.questions.rule_sources import find_planned
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import load_plan, with_plan


def test_the_plans_of_changed_options_are_made_once_for_all_packets(monkeypatch):
    made, options = [], settled(Options(outbound_cidrs="*", exclude_outbound_ports=(8080, 8181)))
    monkeypatch.setattr(explaining, "plan", lambda given: made.append(given) or plan(given))
    explaining._load.cache_clear()
    ruleset, place = load_plan(plan(options), IPV4), around(IPV4)
    answers = []
    for uid in (1000, 1001):
        packet = make_outbound(place, "10.9.9.9", 8080, uid=uid, gid=uid)
        answers.append(explaining.explain(packet, ruleset, place, options=options).changes)
        assert len(made) == len({*made}) > 5
    assert answers[0] == answers[1]
    assert ("remove 8080 from --istio-local-outbound-ports-exclude", "captured") in answers[0]


@pytest.mark.parametrize(
    ("given", "own", "to", "change"),
    [
        ({}, "10.1.1.1", "2001:db8::1", ("IPv6 addresses of the pod", "captured")),
        ({"ipv6": "off"}, "10.1.1.1", "2001:db8::1", ("IPv6 addresses of the pod", "direct")),
        ({}, "2001:db8::9", "192.0.2.1", ("IPv4 addresses of the pod", "captured")),
    ],
)
def test_a_pod_without_a_family_reaches_nobody_of_it(given, own, to, change):
    source = find_planned(Options(outbound_cidrs="*", **given), pod_ip=(own,))
    answer = explain_connection([source], Question(to=to, to_port="80")).answers[0].answer
    assert answer.sentence.startswith("dropped: it is refused, with a notice to its sender, because the pod has no IPv")
    assert answer.changes == (change,)
    assert [(one.hook, one.outcome) for one in answer.trace.steps] == [("OUTPUT", f"it is not sent: the pod has no {change[0][:4]} address, so no route leads there")]


@pytest.mark.parametrize("to", ["::1", "fe80::1", "ff02::1"])
def test_addresses_that_every_device_has_reach_their_neighbours(to):
    source = find_planned(Options(outbound_cidrs="*"), pod_ip=("10.1.1.1",))
    assert explain_connection([source], Question(to=to, to_port="80")).verdict == "direct"


def injected(image, *args, name="istio-init", program=(), annotations=()):
    words = [*program, "-p", "15001", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090", *args]
    init = {"name": name, "image": image, "args": words, "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}}
    proxy = {"name": "istio-proxy", "image": image}
    return {"kind": "Pod", "metadata": {"name": "web", "annotations": dict(annotations)}, "spec": {"initContainers": [init], "containers": [{"name": "app", "image": "app"}, proxy]}}


@pytest.mark.parametrize(
    ("image", "port", "says"),
    [
        ("docker.io/istio/proxy_init:1.0.9", "80", "captured: goes to the proxy on 15001"),
        ("docker.io/istio/proxy_init:1.0.9", "15008", "captured: goes to the proxy on 15001"),
        ("docker.io/istio/proxyv2:1.6.14", "15008", "captured: goes to the proxy on 15006"),
        ("docker.io/istio/proxyv2:1.6.14", "22", "direct: arrives at port 22"),
        ("registry.example/mirrored-istio-proxyv2:1.16.3-distroless", "15008", "direct: arrives at port 15008"),
        ("registry.example/mirrored-istio-proxyv2:1.16.3-distroless", "22", "captured: goes to the proxy on 15006"),
        ("docker.io/istio/proxyv2:1.28.0", "22", "captured: goes to the proxy on 15006"),
        ("docker.io/istio/proxyv2:latest", "22", "captured: goes to the proxy on 15006"),
        ("docker.io/istio/proxyv2@sha256:00", "22", "captured: goes to the proxy on 15006"),
    ],
)  # fmt: skip
def test_an_image_of_istio_makes_the_rules_of_its_release(image, port, says):
    answer = explain_connection([find_planned(facts=read_object(injected(image)))], Question(source="10.9.9.9", to_port=port))
    assert answer.sentence.startswith(says)
    release = image.partition("1.")[2].partition(".")[0]
    named = f"the image is Istio 1.{release}'s, and the rules are those that this release makes"
    unnamed = "the image is Istio's and names no release: the rules are taken for those of Istio 1.25 and later"
    assert f'Pod "web": {named if release.isdigit() else unnamed}' in answer.notes


def without_nat(facts):
    """Whether the rules of a pod end connections for which nat is skipped, which Istio's own do not."""
    return any(traffic.kind.name == "untranslated" for traffic in audit(find_planned(facts=facts).rules))


@pytest.mark.parametrize(
    ("image", "program", "is_istio", "unknown"),
    [
        ("docker.io/istio/proxyv2:1.24.6", (), True, False),
        ("docker.io/istio/proxyv2:1.25.0", (), True, False),
        ("docker.io/istio/proxyv2:1.29.0-distroless", ("istio-iptables",), True, False),
        ("gcr.io/istio-release/proxyv2:1.30.1@sha256:00", (), True, False),
        ("r.example:5000/a/mirrored-istio-proxyv2:v1.28.2-debug", (), True, False),
        ("gcr.io/istio-testing/proxyv2:1.31-alpha.3a0b", (), True, False),
        ("registry.redhat.io/openshift-service-mesh/proxyv2-rhel8:2.6.1", (), True, True),  # a release of its own
        ("docker.io/istio/proxyv2:latest", (), True, True),
        ("docker.io/istio/proxyv2", (), True, True),
        ("r.example:5000/istio/proxyv2@sha256:00", (), True, True),
        ("r.example/base/side:3", ("istio-iptables",), True, True),
        ("r.example/base/side:3", ("/usr/local/bin/pilot-agent", "istio-iptables"), True, True),
        ("r.example/base/side:3", (), False, False),
        ("r.example/mesh/netinit:0.2.0", ("istio-iptables",), False, False),
        ("r.example/proxyv2/netinit:1.29.0", (), False, False),
    ],
)  # fmt: skip
def test_the_image_says_whether_rules_of_our_own_are_there(image, program, is_istio, unknown):
    facts = read_object(injected(image, program=program))
    taken = [one for one in find_planned(facts=facts).notes if one.endswith(": the rules are taken for those of Istio 1.25 and later")]
    assert (facts.program.is_istio, len(taken)) == (is_istio, unknown)
    assert without_nat(facts) is is_istio


def test_native_rules_of_istio_are_those_of_its_own_backend():
    source = find_planned(facts=read_object(injected("istio/proxyv2:1.29.0", "--native-nftables")), pod_ip=("10.1.1.1",))
    assert source.rules.made_by.ipv6 == "inet"
    assert without_nat(source.facts)


def test_containers_with_the_same_answer_are_named_together_above_it():
    pod = injected("r.example/netinit:1", "--exclude-outbound-for-uids", "tcp:*:9", program=("istio-iptables",))
    users = {"app": 7, "log": 8, "db": 9, "istio-proxy": 1337}
    pod["spec"]["containers"] = [{"name": name, "image": "i", "securityContext": {"runAsUser": uid}} for name, uid in users.items()]
    report = explain_connection([find_planned(facts=read_object(pod), pod_ip=("10.1.1.1",))], Question(to="192.0.2.1", to_port="80"))
    lines = report.text.splitlines()
    heads = [at for at, line in enumerate(lines) if line.startswith("container")]
    assert [lines[at] for at in heads] == ['containers "app", "log":', 'container "db":']
    assert [lines[at + 1].partition(":")[0] for at in heads] == ["captured", "direct"]
    assert [lines[at - 1] for at in heads[1:]] == [""], "a blank line stands between the answers"


def changes_of(facts, question):
    (answered,) = explain_connection([find_planned(facts=facts)], question).answers
    return [change for change, _ in answered.answer.changes]


STATUS = {"sidecar.istio.io/status": '{"initContainers": ["istio-init"], "containers": ["istio-proxy"]}'}


@pytest.mark.parametrize("annotations", [STATUS, {}])
def test_what_istios_image_does_not_read_is_offered_with_netinits_alone(annotations):
    """Without the status the author writes flags, of which Istio's program knows its own."""
    quic = Question(to="1.1.1.1", to_port="443", udp=True)
    facts = read_object(injected("istio/proxyv2:1.29.0", annotations=annotations))
    offered = 'annotation netinit.io/reject-quic: "true"' if annotations else "--reject-quic"
    assert changes_of(facts, quic) == [f"{offered} with netinit's image"]
    ours = read_object(injected("r.example/netinit:0.2.0", annotations=annotations))
    assert changes_of(ours, quic) == [offered]
    bypasses = {one.kind.name: one.closes for one in audit(find_planned(facts=facts).rules)}
    assert bypasses["untranslated"] == "use netinit's image, whose rules refuse them"
    assert "netinit" not in "".join(changes_of(facts, Question(source="10.9.9.9", to_port="15090")))


@pytest.mark.parametrize(("image", "found"), [("istio/proxyv2:1.29.0", ["NI103", "NI002"]), ("r.example/netinit:1", []), ("r.example/side:1", [])])
def test_what_istios_image_does_not_read_is_found(image, found):
    read = read_object(injected(image, "--reject-quic", program=("istio-iptables",), annotations={"netinit.io/log-rules": "true"}))
    told = [one for one in read.findings if "does not know it" in one.text]
    assert [one.kind.code for one in told] == found
    assert all(one.text.endswith("; use netinit's image") for one in told)


def test_options_of_istios_image_are_said_as_they_are_in_the_pod():
    facts = read_object(injected("istio/proxyv2:1.29.0"))
    assert facts.options.istio_exact
    assert "istio-exact" not in " ".join(facts.written_options.to_argv())


def test_a_release_of_long_ago_refuses_what_it_has_no_flag_for():
    facts = read_object(injected("istio/proxy_init:1.1.3", "--redirect-dns"))
    with pytest.raises(OptionError, match="--redirect-dns"):
        find_planned(facts=facts)


FOREIGN_TPROXY = """*mangle
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -i lo -p tcp -m mark --mark 0x1 -j TPROXY --on-port 7893 --on-ip 127.0.0.1 --tproxy-mark 0x1/0xffffffff
-A OUTPUT -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x1/0xffffffff
COMMIT
"""


def test_what_a_foreign_tproxy_takes_is_handed_to_the_socket_on_its_port():
    ruleset = with_plan(load_listing(parse_listing(FOREIGN_TPROXY), IPV4), plan(settled(Options(outbound_cidrs="*", exclude_outbound_ports=(80,)))))
    place = around(IPV4).replace(local_marks=frozenset([(1, 0xFFFFFFFF)]))
    answer = explaining.explain(make_outbound(place, "203.0.113.7", 80, uid=1000, gid=1000), ruleset, place)
    told = "direct: stays in the pod and is handed to the transparent socket on port 7893, with its destination 203.0.113.7:80, because of"
    assert answer.sentence.startswith(told), answer.sentence

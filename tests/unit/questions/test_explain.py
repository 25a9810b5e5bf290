"""What would change the fate of a connection: each change is planned once for all packets that are asked about."""

from __future__ import annotations

import pytest

from allpackets import around
from core import IPV4, Options, make_outbound, plan, settled
from netinit.base.errors import OptionError
from netinit.inject.deciding.podfile import read_object
from netinit.questions import explain as explaining
from netinit.questions.answers import explain_connection
from netinit.questions.connections import Question
from netinit.questions.rule_sources import find_planned
from netinit.simulate.ruleset import load_plan


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


def injected(image, *args, name="istio-init"):
    words = ["-p", "15001", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090", *args]
    init = {"name": name, "image": image, "args": words, "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}}
    proxy = {"name": "istio-proxy", "image": image}
    return {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"initContainers": [init], "containers": [{"name": "app", "image": "app"}, proxy]}}


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
    notes = [note for note in answer.notes if "this release" in note]
    old = f'Pod "web": the image is Istio 1.{release}\'s, and the rules are those that this release makes'
    assert notes == ([old] if release.isdigit() and int(release) < 25 else [])


def test_a_release_of_long_ago_refuses_what_it_has_no_flag_for():
    facts = read_object(injected("istio/proxy_init:1.1.3", "--redirect-dns"))
    with pytest.raises(OptionError, match="--redirect-dns"):
        find_planned(facts=facts)

"""What a report of `kubectl netinit report` gives away: nothing but what is on its allow list."""

from __future__ import annotations

import itertools
import json
import time

import pytest

from kubectl_calls import AGENTS
from netinit.inject.adding.kubernetes_types import json_types
from netinit.inject.deciding.annotations import known_keys
from netinit.inject.deciding.pod_options import ANNOTATIONS
from netinit.kubectl.redaction import is_allowed, redact, trim_version
from sweeps import choose

ADDRESSES = ["10.1.2.3", "v10.1.2.3", "10.1.2.3_a", "ip-10-1-2-3.ec2.internal", "10-1-2-3.shop.pod.cluster.local", "10-1-2-3", "10.1.2.3.nip.io", "fe80::42:aff:fe01:203", "02:42:0a:01:02:03", "02-42-0a-01-02-03", "0242.0a01.0203", "0042:0aff:fe01:0203", "0a-01-02-03", "0a:01:02:03", "0a010203", "0xa010203", "0x0A010203", "167838211", "::ffff:10.1.2.3", "64:ff9b::a01:203", "64:ff9b::10.1.2.3", "ff02::1:ff01:203", "fd00::a01:203", "010.001.002.003"]
NAMES = ["to_shop", "shop", "shop-db", "istiod.corp.internal", "registry.corp.internal/team/proxy", "API_TOKEN", "hunter2-secret", "payroll", "KUBE-SEP-X7Q2", "vethd34db33f", "cali12ab34cd56", "оплата", "b3BhcXVl"]
KEPT = ["127.0.0.6", "::6", "::1", "0.0.0.0/0", "192.0.2.10", "203.0.113.7", "2001:db8::10", "169.254.169.254", "fe80::1", "ff02::2", "255.255.255.0", "12:30:45", "1.2.3", "v1.31.2", "15001:15006", "1-65535", "0x539/0xfff", "0x40000000", "64KiB", "30s", "1337", "ISTIO_OUTPUT", "REDIRECT", "--dport", "eth0", "istio.io/rev", "traffic.sidecar.istio.io/excludeOutboundPorts", "6.1.0-18-amd64", "5.15.0-1052-gke", "4.18.0-477.10.1.el8_8.x86_64", "v1.31.2+k3s1"]


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_is_replaced_in_whatever_encoding(text):
    for around in ("{}", "to {}, then", "[{}]:443", "`-d {}/32 -j X`", '"{}"', "== {} (3)"):
        redacted = redact(around.format(text), {})
        assert text not in redacted, redacted
        assert not any(part in redacted.lower() for part in ("10.1.2", "10-1-2", "0a01", "0a:01", "0a-01", "a01:203", "ff01", "fe01")), redacted


def test_bytes_after_each_other_are_replaced_as_one():
    assert redact("payload 0a 01 02 03 and 0a 01 02 03 40", {}) == "payload BYTES-1 and BYTES-2"
    for listed in ("0a,01,02,03", "0a, 01, 02, 03", "0a|01|02|03", "0x0a 0x01 0x02 0x03", "10 11 12 13"):
        assert redact(f"[bytes {listed}]", {}) == "[bytes BYTES-1]"
    assert redact("ports 80,81,90,91 and 80, 81, 90, 91", {}) == "ports 80,81,90,91 and 80, 81, 90, 91"
    assert redact("[payload 16 2 == 1001] [payload 18 2 != 0203-6440, 1001]", {}) == "[payload 16 2 == BYTES-1] [payload 18 2 != BYTES-2]"


@pytest.mark.parametrize("text", NAMES)
def test_a_word_that_netinit_does_not_use_is_replaced(text):
    for around in ("{}", "chain {} of", "@{}", '"{}"', "({})", "--{}"):
        redacted = redact(around.format(text), {})
        assert text not in redacted
        assert "NAME-1" in redacted


@pytest.mark.parametrize("text", KEPT)
def test_what_is_the_same_in_every_cluster_stays(text):
    assert redact(f"{text} and `{text}`", {}) == f"{text} and `{text}`"


def test_of_other_scripts_and_symbols_only_netinit_s_own_stay():
    assert redact("\u2714 \u251c\u2500 \u2192 \U0001f511 \u092d\u0941\u0917", {}) == "\u2714 \u251c\u2500 \u2192 ? NAME-1?NAME-2"


def test_the_same_text_becomes_the_same_word_everywhere():
    text = "10.1.2.3 and 10.1.2.3:80 and 10.1.2.4, to [fd00::1]:443 from fd00:0::1, bank_a and bank_b and bank_a, 4026531840 4026531840"
    assert redact(text, {}) == (
        "ADDRESS-1 and ADDRESS-1:80 and ADDRESS-2, to [ADDRESS-3]:443 from ADDRESS-3, NAME-1 and NAME-2 and NAME-1, NUMBER-1 NUMBER-1"
    )


def test_the_pod_s_own_names_become_words_that_say_what_they_are():
    names = {"web": "OWNER", "web-1": "POD", "shop": "NAMESPACE", "": "nothing", '"rules"': '"CONTAINER-1"', '"till"': '"CONTAINER-2"'}
    text = 'web-1 of web in shop/web-1, web-1.shop.svc, my-web-1, "rules" and rules, "till" and till, "web-1"'
    assert redact(text, names) == (
        'POD of OWNER in NAMESPACE/POD, POD.NAMESPACE.svc, NAME-1, "CONTAINER-1" and rules, "CONTAINER-2" and CONTAINER-2, "POD"'
    )


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ('-j X` with comment "let the bank go to the proxy"  [3 packets]', "-j X` with comment of 28 characters  [3 packets]"),
        ('-m comment --comment "go to \\"the\\" proxy" -j X', "-m comment --comment of 19 characters -j X"),
        ("-m comment --comment proxy -j X", "-m comment --comment of 5 characters -j X"),
        ('with comment "inbound connections go to the proxy"', None),
        ('the value "of my bank" and "of my bank"', 'the value "TEXT-1" and "TEXT-1"'),
        ('"cut of the bank…\nthe proxy', '"TEXT-1\nthe proxy'),
        ('"the proxy"', None),
    ],
)
def test_of_a_foreign_comment_and_quotation_not_even_known_words_stay(text, redacted):
    assert redact(text, {}) == (redacted or text)


@pytest.mark.parametrize(
    ("version", "cut"),
    [("v1.31.2-eks-a18cd3a", "v1.31.2-eks…"), ("6.8.0-corp-7", "6.8.0…"), ("containerd://1.7.2-corp", "containerd://1.7.2…"), ("acme", "…"),
     ("v1.27.3-gke.100", "v1.27.3-gke.100"), ("cri-o://1.29.1", "cri-o://1.29.1"), ("6.1.0-18-amd64", "6.1.0-18-amd64")],
)  # fmt: skip
def test_a_version_is_cut_where_a_vendor_s_own_part_begins(version, cut):
    assert (trim_version(version), redact(cut, {})) == (cut, cut)


@pytest.mark.parametrize("piece", ['"\\', '"', '"a ', "aa ", "== aa", "== aa, ", ":", "a:", "1.", "x86_64_", "--comment ", "a b-c "])
def test_a_long_hostile_text_takes_time_in_proportion_to_its_length(piece):
    redact("warm up", {})
    taken = []
    for size in (1 << 16, choose(1 << 18, 1 << 19)):
        begun = time.process_time()
        redact(piece * (size // len(piece)) + "x", {})
        taken.append(time.process_time() - begun)
    assert taken[1] < choose(4, 8) * 6 * taken[0] + 0.5, taken


def test_examples_of_documentation_are_not_netinit_s_own_words():
    assert not [word for word in ("payments", "bank", "10.1.2.3", "web-1") if is_allowed(word)]


# ---- a whole pod ---------------------------------------------------------------------------------------------------------

NAME, SPACE = "zq0web", "zq0space"


class Marks:
    """Unique texts, and values of Kubernetes' types with one in each string."""

    def __init__(self):
        self.numbers, self.made = itertools.count(1), []

    def mark(self):
        self.made.append(f"zq{next(self.numbers)}m")
        return self.made[-1]

    def make(self, kind):
        kind = kind.removeprefix("*")
        if kind.startswith("[]"):
            return [self.make(kind[2:])]
        if kind.startswith("map["):
            return {self.mark(): self.make(kind.partition("]")[2])}
        if kind.startswith("v1.") and kind not in {"v1.Time", "v1.FieldsV1"}:
            return {name: self.make(one) for name, one in json_types(kind).items()}
        return True if kind == "bool" else 7 if kind.startswith("int") and kind != "intstr.IntOrString" else self.mark()

    def pod(self):
        """A pod with a mark in each field that its type has, and in each annotation, known or not."""
        metadata, spec = self.make("v1.ObjectMeta"), self.make("v1.PodSpec")
        metadata |= {"name": NAME, "namespace": SPACE, "annotations": {self.mark(): self.mark(), **{key: self.mark() for key in known_keys()}}}
        metadata["annotations"]["netinit.io/accepted-findings"] = f"NI212 = {self.mark()}"
        spec |= {"nodeName": "worker-1", "hostNetwork": False}
        secret = {"discoveryAddress": self.mark(), "statusPort": 15099, "interceptionMode": "TPROXY", "proxyMetadata": {
            "API_TOKEN": self.mark(), self.mark(): "x", "ISTIO_META_DNS_CAPTURE": "true", "ISTIO_META_ENABLE_HBONE": self.mark()}}  # fmt: skip
        metadata["annotations"]["proxy.istio.io/config"] = json.dumps(secret)
        condition = {name: self.mark() for name in ("type", "status", "reason", "message")}
        status = {"phase": "Running", "conditions": [condition], "message": self.mark(), "podIPs": [{"ip": "10.244.1.7"}], "hostIP": "10.9.9.9"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def report(kubectl, tree, texts=()):
    pod = {"words": f"get pod {NAME} -n {SPACE} --ignore-not-found -o json", "stdout": json.dumps(tree)}
    answers = [
        {"words": f"asked *{SPACE}/{NAME}*{verb}*", "stdout": json.dumps({"code": 3, "answer": text, "notes": text})}
        for verb, text in zip(("verify", "audit", "draw", "doctor"), texts, strict=False)
    ]
    node = {"status": {"nodeInfo": {"kernelVersion": "6.8.0-zq0node", "osImage": "zq0os Linux 3", "machineID": "zq0id"}}}
    done = kubectl(f"report {NAME} -n {SPACE}", pod, *AGENTS, *answers, {"words": "get node worker-1 *", "stdout": json.dumps(node)})
    assert done.code == 0, done
    return done.out


@pytest.mark.parametrize("invalid", [True, False])
def test_no_text_of_any_field_annotation_or_foreign_rule_is_in_the_report(kubectl, invalid):
    marks = Marks()
    tree = marks.pod()
    init, app = tree["spec"]["initContainers"][0], tree["spec"]["containers"][0]
    tree["spec"]["containers"].append({**marks.make("v1.Container"), "name": "istio-proxy", "image": f"{marks.mark()}.example/{marks.mark()}:{marks.mark()}"})
    init |= {"name": "istio-init", "env": []} | ({} if invalid else {"command": [], "args": ["-p", "15001", "-z", "15006", "-u", "1337"]})
    rules = [
        f'shadowing: IPv4 nat OUTPUT rule 1: `-o {marks.mark()} -m set --match-set {marks.mark()} dst -j {marks.mark()}` with comment "to {marks.mark()} proxy"',
        f"table ip {marks.mark()}, chain {marks.mark()}: @nh,128,32 0x0a010203 == 0a-01-02-03, sent to {app['name']} of {NAME}.{SPACE}",
        f"{marks.mark()}-{marks.mark()} --comment {marks.mark()}",
        f"error: {marks.mark()}: 10.244.1.7 and 10.9.9.9 and ip-10-244-1-7.{marks.mark()}",
    ]
    text = report(kubectl, tree, rules)
    assert [mark for mark in [*marks.made, NAME, SPACE, "zq0node", "zq0os", "zq0id", "worker-1"] if mark in text] == []
    for address in ("10.244.1.7", "10-244-1-7", "10.9.9.9", "0a010203", "0a-01-02-03"):
        assert address not in text
    assert ("cannot be read" in text) == invalid
    assert invalid or "interceptionMode: TPROXY, statusPort: 15099, ISTIO_META_DNS_CAPTURE: true, ISTIO_META_ENABLE_HBONE: set, " in text


def test_options_of_rules_keep_their_values_and_other_annotations_their_length(kubectl):
    values = {
        "traffic.sidecar.istio.io/excludeOutboundPorts": "5432,9000-9010", "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.9.8.0/24,127.0.0.0/8",
        "sidecar.istio.io/interceptionMode": "TPROXY", "netinit.io/ipv6": "reject", "netinit.io/exclude-cloud-metadata": "true",
        "sidecar.istio.io/userVolume": '{"v": {"secret": {"secretName": "tls"}}}', "sidecar.istio.io/proxyImage": "proxy",
        "traffic.sidecar.istio.io/excludeInboundPorts": "web", "example.com/owner": "proxy",
    }  # fmt: skip
    spec = {"nodeName": "worker-1", "containers": [{"name": "app"}], "initContainers": [{"name": "istio-init", "args": ["-p", "15001"]}]}
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME, "namespace": SPACE, "annotations": values}, "spec": spec, "status": {"podIPs": [{"ip": "10.244.1.7"}]}}
    lines = report(kubectl, tree).splitlines()
    assert {line for line in lines if line.startswith("annotation")} == {
        "annotation traffic.sidecar.istio.io/excludeOutboundPorts: 5432,9000-9010",
        "annotation traffic.sidecar.istio.io/includeOutboundIPRanges: ADDRESS-1/24,127.0.0.0/8",
        "annotation sidecar.istio.io/interceptionMode: TPROXY", "annotation netinit.io/ipv6: reject",
        "annotation netinit.io/exclude-cloud-metadata: true", "annotation sidecar.istio.io/userVolume: set, 40 characters",
        "annotation sidecar.istio.io/proxyImage: set, 5 characters", "annotation traffic.sidecar.istio.io/excludeInboundPorts: set, 3 characters",
        "annotations that netinit does not know: 1",
    }  # fmt: skip
    assert set(values) - {"example.com/owner"} <= {*known_keys()}
    assert {"netinit.io/ipv6", "traffic.sidecar.istio.io/excludeInboundPorts"} <= {*ANNOTATIONS}


def test_an_older_agent_that_draws_all_tables_unasked_is_not_asked_for_them(kubectl):
    pod = {"words": f"get pod {NAME} -n {SPACE} --ignore-not-found -o json", "stdout": json.dumps({**Marks().pod(), "metadata": {"name": NAME, "namespace": SPACE, "uid": "u"}})}
    refused = {"words": "asked *draw*--table*", "stdout": json.dumps({"code": 2, "answer": "", "notes": "'all' is not a table"})}
    answered = {"words": "asked *draw*", "stdout": json.dumps({"code": 0, "answer": "table filter", "notes": ""})}
    node = {"words": "get node worker-1 *", "stdout": json.dumps({"status": {}})}
    done = kubectl(f"report {NAME} -n {SPACE} --plain", pod, *AGENTS, refused, answered, node)
    section = done.out.split("## Rules\n")[1].split("## ")[0]
    assert "netinit draw: exit code 0" in section
    assert "table filter" in section

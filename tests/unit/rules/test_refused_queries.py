"""With --ipv6 reject, DNS over TCP from behind the pod is refused where it would be captured, whatever networks are."""

from netinit.base.net import IPV6
from netinit.options import Options, offline
from netinit.rules.layouts import plan
from netinit.rules.render import render
from sweeps import together

DNS = ["--redirect-dns", "--capture-all-dns", "--redirect-forwarded-dns"]
REFUSED = "-A ISTIO_REFUSE_IN -i eth1 -p tcp -m tcp --dport 53 -j REJECT --reject-with tcp-reset"


def lines(*words):
    options = Options.from_argv(["-k", "eth1", "--ipv6", "reject", *words]).settle(offline())
    return render(plan(options), "restore", (IPV6,)).splitlines()


@together("words", [["-b", "*", "-i", ""], ["-b", "*", "-i", "*"], ["-b", "", "-i", ""], ["-b", "*", "-i", "10.0.0.0/8"], ["-b", "*", "-i", "", "-c", "eth1"]])
def test_queries_of_a_vm_are_refused_before_what_it_sends_is_left_alone(words):
    found = lines(*words, *DNS)
    assert REFUSED in found, found
    left_alone = "-A ISTIO_REFUSE_IN -i eth1 -j RETURN"
    assert left_alone not in found[: found.index(REFUSED)], found


def test_queries_that_are_not_captured_are_not_refused():
    for words in (DNS[:2], [], ["--redirect-dns", "--redirect-forwarded-dns", "--dns-servers", "10.0.0.10"]):
        assert REFUSED not in lines("-b", "*", "-i", "", *words)

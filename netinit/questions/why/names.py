"""The step "dns": how a pod resolves a name: which queries it costs, and who answers them."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.findings import FindingKind
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tables import count
from netinit.base.tree import mapping, sequence, string
from netinit.inject.deciding.containers import named
from netinit.questions.why.asked import CLUSTER_DOMAIN, WhyQuestion, read_service_name
from netinit.questions.why.objects import SERVICE, ClusterObjects
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, failed, passed, unknown

NOT_CLUSTER_DNS = FindingKind(
    "NI332", "not-cluster-dns",
    "The pod does not ask the cluster's DNS (dnsPolicy Default or None, or ClusterFirst with hostNetwork), so that "
    "names of Services are unknown to it (NXDOMAIN). Set dnsPolicy: ClusterFirst, on its node's network "
    "ClusterFirstWithHostNet.",
)
MANY_QUERIES = FindingKind(
    "NI331", "many-queries",
    "A name with fewer dots than ndots is first looked up below each search domain, each time for A and AAAA: an "
    "external name costs eight queries or more instead of two. Write it with a dot at the end, or set ndots to 1 in "
    "dnsConfig.",
)

NAME = "dns"
CLUSTER_FIRST, CLUSTER_FIRST_HOST, DEFAULT, NONE = "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"
NDOTS_OF_CLUSTER, NDOTS_OF_LIBC = 5, 1
MAX_NDOTS, MAX_SEARCH = 15, 32  # limits of glibc and Kubernetes
MAX_SERVERS = 3  # MAXNS of resolv.h
FAMILIES = 2  # A and AAAA, each a query


class Resolver(Record):
    """What a pod's resolv.conf will say, as far as its manifest tells. `is_of_node`: the node's domains come from the node."""

    policy: str
    search: tuple[str, ...]
    ndots: int
    is_of_node: bool

    def list_queries(self, name: str) -> list[str]:
        """The names that are asked for in turn, until one is known."""
        if name.endswith("."):
            return [name]
        longer = [f"{name}.{domain}." for domain in self.search]
        return [*longer, f"{name}."] if name.count(".") < self.ndots else [f"{name}.", *longer]


def read_resolver(pod: PodInQuestion) -> Resolver:
    """Read dnsPolicy and dnsConfig as the kubelet does."""
    config = mapping(pod.spec.get("dnsConfig"))
    policy = string(pod.spec.get("dnsPolicy")) or CLUSTER_FIRST
    if policy == CLUSTER_FIRST and pod.host_network:
        policy = DEFAULT
    of_cluster = policy in (CLUSTER_FIRST, CLUSTER_FIRST_HOST)
    domains = [f"{pod.namespace}.svc.{CLUSTER_DOMAIN}", f"svc.{CLUSTER_DOMAIN}", CLUSTER_DOMAIN] if of_cluster else []
    more = [one.removesuffix(".") for one in sequence(config.get("searches")) if isinstance(one, str)]
    options = {string(one.get("name")): string(one.get("value")) for one in named(config.get("options"))}
    text = options.get("ndots", "")
    ndots = min(int(text), MAX_NDOTS) if text.isascii() and text.isdigit() and len(text) < 4 else None  # noqa: PLR2004 - digits
    return Resolver(
        policy=policy, search=tuple(dict.fromkeys([*domains, *more]))[:MAX_SEARCH],
        ndots=(NDOTS_OF_CLUSTER if of_cluster else NDOTS_OF_LIBC) if ndots is None else ndots,
        is_of_node=policy != NONE,
    )  # fmt: skip


def examine_name(pod: PodInQuestion, host: str, objects: ClusterObjects, asked: WhyQuestion) -> Iterator[Step]:
    """Say how the pod resolves a name."""
    resolver, about = read_resolver(pod), f"the name {quote(host)}"
    named_service = read_service_name(host, pod.namespace)
    service = named_service and objects.find(SERVICE, named_service.namespace, named_service.name)
    is_cluster_s = bool(service) or host.count(".") == 0 or host.removesuffix(".").endswith(f".svc.{CLUSTER_DOMAIN}") or ".svc" in host
    if is_cluster_s and resolver.policy in (DEFAULT, NONE):
        yield _judge_policy(pod, resolver, host, about)
    else:
        yield _count_queries(pod, resolver, host, about, is_known=named_service is not None and bool(service), asked=asked)
    yield from _judge_capture(pod)


def _judge_policy(pod: PodInQuestion, resolver: Resolver, host: str, about: str) -> Step:
    if resolver.policy == NONE:
        full = next((one for one in resolver.search if one.endswith(CLUSTER_DOMAIN)), "")
        search = quote(" ".join(resolver.search))
        text = f"dnsPolicy None: the pod asks the servers of its dnsConfig alone, with the search domains {search}"
        if full:
            return unknown(NAME, text, about, kind=NOT_CLUSTER_DNS)
        remedy = "add the cluster's search domains and server to dnsConfig, or use ClusterFirst"
        return failed(NAME, NOT_CLUSTER_DNS, text, about, remedy=remedy)
    why = "hostNetwork: true" if pod.host_network else "dnsPolicy Default"
    remedy = f"set dnsPolicy: {CLUSTER_FIRST_HOST if pod.host_network else CLUSTER_FIRST}"
    text = f"{why}: the pod asks its node's name servers, which do not know the cluster's {quote(host)} (NXDOMAIN)"
    return failed(NAME, NOT_CLUSTER_DNS, text, about, remedy=remedy)


def _count_queries(pod: PodInQuestion, resolver: Resolver, host: str, about: str, *, is_known: bool, asked: WhyQuestion) -> Step:
    queries = resolver.list_queries(host)
    found = _find_answer(pod, host, queries) if is_known or host.count(".") == 0 else f"{host.removesuffix('.')}."
    wasted = queries.index(found) if found in queries else len(queries) - 1
    number = (wasted + 1) * FAMILIES
    more = ", and two for each search domain of the node" if resolver.is_of_node and wasted == len(queries) - 1 and wasted else ""
    in_vain = f"{count(wasted, 'search domain')} {'is' if wasted == 1 else 'are'}" if wasted else "no search domain is"
    text = f"costs {number} queries (A and AAAA){more}: ndots is {resolver.ndots}, and {in_vain} asked in vain"
    if wasted < 2:  # noqa: PLR2004 - a name with a namespace costs one more
        return passed(NAME, text, about)
    shorter = read_service_name(host, pod.namespace) if is_known else None
    form = f"{shorter.name}.{shorter.namespace}, or {found}" if shorter and not shorter.pod else found
    remedy = f'write {form} with a dot at the end, or dnsConfig: options: [{{name: ndots, value: "{min(host.count("."), 1)}"}}]'
    if asked.name:
        return failed(NAME, MANY_QUERIES, f"{text}; each takes a round trip, or seconds if a datagram is lost", about, remedy=remedy)
    return unknown(NAME, f"{text}; if the first byte is slow, that is why", about, remedy=remedy, kind=MANY_QUERIES)


def _find_answer(pod: PodInQuestion, host: str, queries: list[str]) -> str:
    """The query that the cluster's DNS answers."""
    name = read_service_name(host, pod.namespace)
    full = f"{f'{name.pod}.' if name.pod else ''}{name.name}.{name.namespace}.svc.{CLUSTER_DOMAIN}." if name else ""
    return full if full in queries else queries[-1]


def _judge_capture(pod: PodInQuestion) -> Iterator[Step]:
    """Who answers the queries."""
    if pod.facts is None or not pod.in_mesh:
        return
    options = pod.facts.options
    if options.redirect_dns:
        yield passed(NAME, "queries are captured: the proxy's resolver answers for Services, and forwards the rest", pod.title)
    else:
        yield passed(NAME, "queries are not captured: they go to the cluster's DNS themselves", pod.title)

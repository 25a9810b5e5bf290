"""`netinit webhook compare`: how two injectors change the same pods."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import click

from netinit.base.documentation import address_of
from netinit.base.errors import NetinitError, OptionError, ParseError
from netinit.base.sanitize import Lines, lines, shorten
from netinit.base.tree import Tree, shown
from netinit.cli.console import answer_either
from netinit.cli.flags import FlagCommand, optional_packages
from netinit.cli.inject import inputs
from netinit.cli.inject.flags import CheckFlags
from netinit.cli.values import takes
from netinit.inject.deciding.manifests import Selection
from netinit.inject.deciding.webhooks import DEFAULT_REVISION
from netinit.installation.comparison import PodComparison, Review, ReviewOutcome, make_reviews, read_outcome
from netinit.library import manifest_files
from netinit.webhook.configuration import Served
from netinit.webhook.review import MAX_REVIEW_BYTES, answer

EQUAL, DIFFERENT = 0, 3
_SIDES = 2
_SECONDS = 10.0  # per answer: the API server's default timeout for webhooks
_MAX_ANSWER_BYTES = 4 * MAX_REVIEW_BYTES  # bytes: a patch may contain a pod of maximum size in base64, and more

Ask = Callable[[Review], bytes]
"""Returns an injector's answer. Raises ParseError if there is none that can be read."""


class CompareFlags(CheckFlags):
    """Flags of compare."""

    def _check(self) -> list[str]:
        problems = [] if self.filenames or self.context or self.kubeconfig else [
            "-f: no pods are given; name reviews or manifests, or a cluster with --context or --kubeconfig"
        ]  # fmt: skip
        if self.labels is not None:
            problems.append("--namespace-labels: belongs to check-inject; a webhook is asked whatever the labels are")
        return problems + self._problems_of_sidecars()


@click.command("compare", cls=FlagCommand, settings=CompareFlags, hides=("labels",))
@click.option(
    "--url", "urls", multiple=True, **takes("URL"), help="A running webhook, such as https://localhost:15017/inject. Once or twice."
)
@click.option(
    "--ca", "authorities", multiple=True, **takes("FILE"),
    help="The authority of its certificate, PEM: one for each --url, or one for both (default: those of the system).",
)  # fmt: skip
@click.option(
    "--server-name", "names", multiple=True, **takes("NAME"), help="The name in its certificate: one for each --url, or one for both."
)
def command(options: CompareFlags, urls: tuple[str, ...], authorities: tuple[str, ...], names: tuple[str, ...]) -> int:
    """Ask two injectors the same reviews, and show where the resulting pods differ.

    The pods are recorded AdmissionReviews, pods and workloads of files (-f), or the workloads of the cluster. Every review is
    a dry run. The injectors are two running webhooks (--url twice), or one and this netinit, with the configuration of files or of
    the cluster's ConfigMaps. Differences that the page on differences from Istio explains are marked.

    Exit codes: 0 all pods are equal, 1 something cannot be read, 2 wrong options, 3 pods differ.
    """
    compared = PodComparison()
    with ExitStack() as connections:
        sides = _sides(options, urls, authorities, names, connections)
        for review in _reviews(options):
            compared.add(review, *[_read_outcome(ask, review) for _, ask in sides])
    if not compared.pods:
        raise ParseError("-f: there are no pods, workloads or AdmissionReviews to compare")
    titles = [title for title, _ in sides]
    answer_either(_to_tree(compared, titles), _render(compared, titles), as_json=options.as_json)
    return DIFFERENT if compared.different else EQUAL


def _sides(
    flags: CompareFlags, urls: tuple[str, ...], authorities: tuple[str, ...], names: tuple[str, ...], connections: ExitStack
) -> list[tuple[str, Ask]]:
    if not 1 <= len(urls) <= _SIDES:
        raise OptionError("--url: give the URL of one webhook, to compare it with this netinit, or of two")
    for label, given in (("--ca", authorities), ("--server-name", names)):
        if len(given) not in {0, 1, len(urls)}:
            raise OptionError(f"{label}: is given {len(given)} times for {len(urls)} --url; give one for each, or one for both")
    sides = []
    for number, url in enumerate(urls):
        authority, name = (given[min(number, len(given) - 1)] if given else "" for given in (authorities, names))
        sides.append((url, _remote(url, authority, name, connections)))
    return sides if len(sides) == _SIDES else [*sides, ("this netinit", _in_process(flags))]


def _in_process(flags: CompareFlags) -> Ask:
    config = inputs.read_config_with_warnings(flags)
    settings = inputs.settings_of(flags.replace(revision=flags.revision or DEFAULT_REVISION))  # as in `webhook serve`
    served = Served(config=config, settings=settings, version="")
    return lambda review: answer(json.dumps(review.tree).encode(), served).body


def _remote(url: str, authority: str, name: str, connections: ExitStack) -> Ask:
    if not url.startswith("https://"):
        raise OptionError(f"--url: {shown(url)} must begin with https://, as webhooks are served")
    with optional_packages("asking a webhook needs a package that is"):
        import httpx2

        from netinit.kube.access import Access, make_context
    pem = manifest_files.read_text(authority) if authority else ""
    context = make_context(Access(server=url, certificate_authority=pem, origin=f"--ca {authority}"))
    client = connections.enter_context(httpx2.Client(verify=context, timeout=_SECONDS, trust_env=False))
    extensions = {"sni_hostname": name} if name else {}

    def ask(review: Review) -> bytes:
        try:
            with client.stream("POST", url, json=review.tree, extensions=extensions) as response:
                body = b""
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > _MAX_ANSWER_BYTES:
                        raise ParseError(f"it is longer than {_MAX_ANSWER_BYTES >> 20} MiB")
        except httpx2.ConnectError as error:
            raise NetinitError(
                f"--url: {url} cannot be reached: {error}; check that it is forwarded, and --ca and --server-name"
            ) from error
        except httpx2.InvalidURL as error:
            raise OptionError(f"--url: {shown(url)} is not a URL: {error}") from error
        except httpx2.HTTPError as error:
            raise ParseError(f"{type(error).__name__}: {error}") from error
        if response.status_code != httpx2.codes.OK:
            raise ParseError(f"status {response.status_code}: {shorten(body.decode(errors='replace').strip())}")
        return body

    return ask


def _read_outcome(ask: Ask, review: Review) -> ReviewOutcome:
    try:
        return read_outcome(review, ask(review))
    except ParseError as error:
        return ReviewOutcome(failure=f"no answer: {error}")


def _reviews(flags: CompareFlags) -> Iterator[Review]:
    selection = Selection(flags.select)
    if flags.filenames:
        trees = inputs.read_trees(flags)
    else:
        with optional_packages("reading a cluster needs a package that is"):
            from netinit.installation.survey import find_workloads
        trees = (("the cluster", tree) for tree in find_workloads(flags.context, flags.kubeconfig, flags.namespace))
    for name, tree in trees:
        try:
            yield from make_reviews(tree, flags.namespace or "default", selection.takes)
        except ParseError as error:
            raise ParseError(manifest_files.in_file(name, error)) from error
    selection.check("the input")


def _render(compared: PodComparison, titles: list[str]) -> Lines:
    printed = []
    for group in compared.groups():
        printed.append(f"{group.path}: {group.pods} of {compared.pods} pods")
        if group.documented:
            page = address_of("differences", group.documented.section)
            printed.append(f"  documented: {group.documented.row} ({page})")
        for title, one in group.examples:
            printed.append(f"  {title}")
            values = ["nothing" if value is None else shown(value) for value in (one.left, one.right)]
            printed += [f"    {side}: {value}" for side, value in zip(titles, values, strict=True)]
    others = compared.different - compared.undocumented
    equal = compared.pods - compared.different
    printed.append(f"{compared.pods} pods: {equal} equal, {compared.undocumented} differ, {others} differ as documented")
    return lines(printed)


def _to_tree(compared: PodComparison, titles: list[str]) -> Tree:
    groups = [
        {
            "path": group.path, "documented": address_of("differences", group.documented.section) if group.documented else None,
            "reason": group.documented.row if group.documented else None, "pods": group.pods,
            "examples": [{"subject": title, "left": one.left, "right": one.right} for title, one in group.examples],
        }
        for group in compared.groups()
    ]  # fmt: skip
    counts = {"pods": compared.pods, "different": compared.different, "undocumented": compared.undocumented}
    return {"left": titles[0], "right": titles[1], **counts, "groups": groups}

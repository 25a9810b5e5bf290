"""`netinit why`: from a symptom of a pod to its cause."""

from __future__ import annotations

import click

from netinit.base.errors import DriftError, OptionError
from netinit.base.output import show_object
from netinit.cli.console import answer, color_option, note, warn
from netinit.cli.flags import ANY_NAMESPACE, Decorator, FlagCommand, add_options, add_value
from netinit.cli.rule_options import outlook_options
from netinit.cli.values import OneOf, takes
from netinit.library.rule_reading import Outlook
from netinit.library.why import REPORT, why_of_files, why_of_report
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.questions.why.asked import WhyQuestion, read_asked
from netinit.questions.why.steps import WhyReport

TEXT, JSON = "text", "json"
asked_options = add_value(
    "asked",
    lambda to, client, port, probe, dns_name, udp, interface, uid: read_asked(
        to=to, client=client, port=port, probe=probe, name=dns_name, udp=udp, interface=interface, uid=uid
    ),
    click.option("--to", default="", **takes("HOST:PORT"), help="A connection to a Service, a host or an address."),
    click.option("--from", "client", default="", **takes("POD|ADDRESS"), help="A connection from a pod or an address."),
    click.option("--port", default="", **takes("PORT"), help="With --from: the port, of the Service or the pod."),
    click.option("--probe", is_flag=True, help="The kubelet's probes."),
    click.option("--dns", "dns_name", default="", **takes("NAME"), help="A name that the pod looks up."),
    click.option("--udp", is_flag=True, help="UDP instead of TCP."),
    click.option("--interface", default="", **takes("NAME"), help="With --from: where the connection comes in."),
    click.option("--uid", default="", **takes("USER"), help="With --to: who connects (default: the users of the containers)."),
)  # fmt: skip


def form_options(*names: str) -> Decorator:
    """Add the option of these names for the format, and --json."""
    described = f"Short for {names[-1]} json; netinit/data/why.schema.json describes it."
    return add_options(
        click.option(*names, "form", type=OneOf((TEXT, JSON)), default=TEXT, show_default=True, help="The format."),
        click.option("--json", "form", flag_value=JSON, help=described),
    )


@click.command("why", cls=FlagCommand, shows=ANY_NAMESPACE, rules=None)
@click.argument("files", nargs=-1, **takes("PATH..."))
@asked_options
@click.option("--select", default="", **takes("NAME"), help="Which pod: NAME, NAMESPACE/NAME or KIND/NAME.")
@outlook_options
@click.option(REPORT, "report", default="", **takes("FILE"), help="The file that kubectl netinit report wrote.")
@form_options("--format")
@color_option
def command(
    options: Options, asked: WhyQuestion, outlook: Outlook, *, files: tuple[str, ...], select: str, report: str, form: str
) -> int:
    """Find why a connection to or from a pod, its probes, a name, or its start fails; changes nothing.

    Files hold the pod and, as far as you have them, what it needs: Services, EndpointSlices, the pods at the other end, Namespaces,
    NetworkPolicies, PeerAuthentications, AuthorizationPolicies, DestinationRules, VirtualServices, ServiceEntries, Sidecars, the
    ConfigMap istio. Each step is ✔, ✘ or ? (not known); the first ✘ is the answer, with its remedy. With --pid or --netns the rules
    and listeners of the live pod count. `kubectl netinit why POD` fetches all this itself.

    Exit codes: 0 no step failed, 3 one did, 1 a file cannot be read, 2 wrong options.
    """
    if bool(files) == bool(report):
        missing = f"PATH: is missing; name files with the pod, or {REPORT} FILE"
        raise OptionError(f"{REPORT}: is read alone; leave out {quote_value(files[0])}" if files else missing)
    if report:
        _check_report(options, outlook, select)
        return show_report(why_of_report(asked, report), form)
    known = outlook.read()
    warn(known.warnings)
    return show_report(why_of_files(asked, files, select, options, known), form)


def _check_report(options: Options, outlook: Outlook, select: str) -> None:
    """Refuse what a report has no use for. Raises OptionError."""
    given = {"--pid": options.pid, "--netns": options.netns, "--select": select, "--assume": outlook.assume}
    if wrong := [name for name, value in given.items() if value]:
        raise OptionError(*[f"{name}: is about files and live pods; remove it with {REPORT}" for name in wrong])


def show_report(found: WhyReport, form: str) -> int:
    """Print a report; return 3 if a step failed."""
    if form == JSON:
        show_object(found.to_object())
    else:
        note([", ".join(found.sources)] if found.sources else [])
        answer(found.text)
    return DriftError.exit_code if found.cause else 0

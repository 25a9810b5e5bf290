"""Reads the rules that a question is about: manifests from files, live rules from a namespace, options from the agent's record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.sanitize import shorten
from netinit.inject.deciding.manifest_survey import FileSurvey, read_pods, survey_files, without_pods
from netinit.inject.deciding.manifests import ManifestFile
from netinit.inject.deciding.podfile import Foresee, PodFacts, read_object
from netinit.kernel.detect import read_name_servers
from netinit.library.manifest_files import FileExclusion, is_manifest_name, read_each, read_file, read_manifests
from netinit.library.safe_files import STDIN
from netinit.options import Options
from netinit.options.command_line import names_rules
from netinit.questions.rule_sources import (
    POD,
    RULES,
    Made,
    RuleSource,
    choose_one,
    complete_servers,
    describe_live,
    find_planned,
    name_namespace,
    refuse_given,
)

if TYPE_CHECKING:
    from netinit.base.tree import Tree
    from netinit.inject.adding.config import InjectionConfig

Manifest = str | Mapping[str, Any]
"""A file, a folder, a pattern or `-` for stdin; or a pod, or what makes pods, as an object."""


@dataclass(frozen=True, slots=True)
class Gate:
    """How a gate reads files that hold anything: it passes over those without pods, unless `requires_pods`; `exclude`: patterns."""

    exclude: tuple[str, ...] = ()
    requires_pods: bool = False


@dataclass(frozen=True, slots=True)
class Outlook:
    """How pods are judged that are not injected yet.

    `assume`: what becomes of them where it is not known: injected, cni or none. The files are those of the installation: the
    injector's configuration, the mesh's, and values; by default netinit's own. `config`: what was read of them.
    `addresses`: examples of what the cluster's pods have, if that is known.
    """

    assume: str = ""
    config_file: str = ""
    mesh_file: str = ""
    values_file: str = ""
    addresses: tuple[str, ...] = ()
    config: InjectionConfig | None = None

    def read(self) -> Outlook:
        """Read the files, if there are any, also where no pod needs them: a wrong one is not left unnoticed. Raises ConfigError."""
        return replace(self, config=self._read_config()) if self.config_file or self.mesh_file or self.values_file else self

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of the files, once they are read, has no effect."""
        return self.config.warnings if self.config else ()

    def complete(self, pods: Iterable[PodFacts]) -> tuple[PodFacts, ...]:
        """The pods, each with an example of its addresses if it has none yet and it is known what they will be."""
        return tuple([replace(one, addresses=one.addresses or self.addresses) for one in pods])

    def foresee_by(self, deciding: Sequence[Tree]) -> Foresee:
        """Say what becomes of pods; `deciding`: the namespaces and webhooks of their files."""
        from netinit.inject.adding.future_pods import foresee

        return foresee(deciding, lambda: self.config or self._read_config(), self.assume)

    def _read_config(self) -> InjectionConfig:
        from netinit.inject.adding.config import load_config
        from netinit.inject.adding.installations import refuse_empty
        from netinit.inject.adding.places import Files

        files = {"--injectConfigFile": self.config_file, "--meshConfigFile": self.mesh_file, "--valuesFile": self.values_file}
        source, mesh, values = (refuse_empty(read_file(name, label), label) if name else None for label, name in files.items())
        named = [f"{label} {name}" if name else "" for label, name in files.items()]
        return load_config(
            source, values=values, mesh=mesh, lazily=True, files=Files(templates=named[0], mesh=named[1], values=named[2])
        )


@dataclass(frozen=True, slots=True)
class PodChoice:
    """Which pods of manifests are meant, if any.

    `label`: the option that names them, empty for arguments. `given`: the rule options that were given beside them, by field, as
    written: a pod has its own. `gate`: for who checks whole repositories. `outlook`: what becomes of pods that are not injected
    yet. `stdin_name`: what a text from stdin is called.
    """

    pod: tuple[Manifest, ...] = ()
    select: str = ""
    label: str = POD
    given: Mapping[str, str] = field(default_factory=dict)
    gate: Gate | None = None
    outlook: Outlook = field(default_factory=Outlook)
    stdin_name: str = ""

    @property
    def names_any(self) -> bool:
        """Whether a pod is meant."""
        return bool(self.pod or self.select)

    def read(self) -> tuple[PodFacts, ...]:
        """Every pod that is meant. Raises OptionError, ParseError."""
        if not self.pod:
            raise OptionError("--select: names a pod of --pod; give --pod FILE")
        refuse_given(self.given, self.label)
        objects = self._read_objects()
        files = [one for one in self.pod if not isinstance(one, Mapping)]
        return self.outlook.complete((*objects, *(self._read_files(files) if files else ())))

    def _read_objects(self) -> list[PodFacts]:
        return [read_object(dict(one), foresee_by=self.outlook.foresee_by) for one in self.pod if isinstance(one, Mapping)]

    def _read_files(self, files: Sequence[str]) -> tuple[PodFacts, ...]:
        texts = [(self._name(name), text) for name, text in read_manifests(files, self.label, recursive=True)]
        try:
            return read_pods(texts, self.select, self.label, self.outlook.foresee_by)
        except (OptionError, ParseError):
            from netinit.questions.pasted_rules import refuse_as_rules

            for name, text in texts:  # what is wrong with rules as manifests is no help
                refuse_as_rules(name, text, self.label)
            raise

    def survey(self) -> FileSurvey:
        """Every pod that is meant and, for a gate, what is wrong with other files. Raises OptionError, ParseError."""
        if self.gate is None or not self.pod:
            return FileSurvey(self.read())
        refuse_given(self.given, self.label)
        excluded = FileExclusion(self.gate.exclude)
        files = [one for one in self.pod if isinstance(one, str)]
        read = read_each(files, self.label, recursive=True, takes=excluded.takes)
        found = survey_files(self._refuse_rules(read), self.select, self.outlook.foresee_by)
        found = replace(found, pods=(*self._read_objects(), *found.pods))
        if self.gate.requires_pods and not found.pods:
            raise ParseError(without_pods(self.label, shorten(", ".join(files))))
        return replace(found, pods=self.outlook.complete(found.pods), left_out=excluded.left_out)

    def _refuse_rules(self, files: Iterable[ManifestFile]) -> Iterator[ManifestFile]:
        """Refuse rules that somebody named or piped here; what a hook or a folder gives has the name of a manifest."""
        for one in files:
            if not is_manifest_name(one.name):
                from netinit.questions.pasted_rules import refuse_as_rules

                refuse_as_rules(one.name, one.text, self.label)
            yield one.replace(name=self._name(one.name))

    def _name(self, name: str) -> str:
        """The name of a file in messages and findings."""
        return self.stdin_name or name if name == STDIN else name

    def read_one(self) -> PodFacts:
        """The single pod that is meant. Raises OptionError, ParseError."""
        return choose_one(self.read(), ", ".join([one for one in self.pod if isinstance(one, str)]), self.label)


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """Which rules are asked for: those of pods in manifests, live ones, or else those planned from the options."""

    pods: PodChoice = field(default_factory=PodChoice)
    pod_ip: tuple[str, ...] = ()
    live: bool = False
    rules: tuple[str, ...] = ()  # files of dumps


LIVE = RuleChoice(live=True)


def find_rule_source(options: Options, choice: RuleChoice) -> RuleSource:
    """The rules; live ones are compared with a manifest or given options. Raises OptionError, ParseError, NetinitError."""
    if choice.rules:
        return read_dumps(choice.rules, options, choice.pods, choice.pod_ip, live=choice.live)
    facts = choice.pods.read_one() if choice.pods.names_any else None
    if choice.live or options.pid or options.netns:
        if choice.pod_ip:
            raise OptionError("--pod-ip: live rules are asked with the addresses of their own namespace; remove it")
        return find_live(options, facts)
    return plan_here(options, facts, choice.pod_ip)


def find_rule_sources(options: Options, choice: RuleChoice) -> list[RuleSource]:
    """The rules for every pod of a manifest."""
    ungated = replace(choice, pods=replace(choice.pods, gate=None))
    return survey_rule_sources(options, ungated)[0]


def survey_rule_sources(options: Options, choice: RuleChoice) -> tuple[list[RuleSource], FileSurvey]:
    """The rules for every pod of files, and what else they hold; nothing else for live rules and those of options."""
    if choice.pods.pod and not (choice.rules or choice.live or options.pid or options.netns):
        found = choice.pods.survey()
        made: Made = {}
        return [find_planned(options, facts, choice.pod_ip, read_name_servers, made) for facts in found.pods], found
    return [find_rule_source(options, choice)], FileSurvey()


def read_dumps(
    files: Sequence[str], options: Options, pods: PodChoice, pod_ip: Sequence[str] = (), *, live: bool = False
) -> RuleSource:
    """The rules in files of dumps; those of the options or of a pod, if one is named, are expected. Raises OptionError, ParseError."""
    from netinit.questions.pasted_rules import read_rules  # most questions are about no dump

    if live or options.pid or options.netns:
        raise OptionError(f"{RULES}: names the rules of a file; leave out --live, --pid and --netns")
    if list(files).count(STDIN) > 1:
        raise OptionError(f"{RULES}: '-' is given twice, and stdin can be read once; give it once")
    facts = complete_servers(pods.read_one(), options) if pods.names_any else None
    known = facts.options if facts else options if names_rules(options) else None
    texts = [(name, read_file(name, RULES)) for name in files]
    return read_rules(texts, known, pod_ip or (facts.addresses if facts else ()), tuple if facts else read_name_servers)


def plan_here(options: Options, facts: PodFacts | None = None, pod_ip: tuple[str, ...] = ()) -> RuleSource:
    """The rules that a pod, or the options with the name servers of this machine if they need any, would have."""
    return find_planned(options, facts, pod_ip, read_name_servers)


def find_live(options: Options, facts: PodFacts | None) -> RuleSource:
    """The live rules of the namespace that the options name, compared with a manifest's or the known options."""
    from netinit.pods.live import read_live

    facts = facts and complete_servers(facts, options)
    known, by = (facts.options, "the manifest") if facts else find_known(options)
    target = known.replace(pid=options.pid, netns=options.netns) if known else options
    return describe_live(name_namespace(options), read_live(target, given=known is not None), by if known else "", facts)


def find_known(options: Options) -> tuple[Options | None, str]:
    """The options that live rules should have, those given or those of the agent's record, and which; None without either."""
    return (options, "the options given") if names_rules(options) else (_find_recorded(options), "the agent's record")


def _find_recorded(options: Options) -> Options | None:
    """The options with which the node's agent programmed the namespace that the options name; None if it has no record of it."""
    path = options.netns or (f"/proc/{options.pid}/ns/net" if options.pid else "")
    if not path:
        return None
    from netinit.pods.attachments import USUAL_FOLDER, list_attachments

    try:
        return next((one.options for one in list_attachments(USUAL_FOLDER) if one.is_at(path)), None)
    except OSError:  # a plain user's; what names no namespace, or may not be entered, is reported where it is entered
        return None

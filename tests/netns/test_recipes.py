"""CONTRIBUTING's recipes, followed to the letter in a copy of the checkout: how many files each touches, and that no test is red then."""

from __future__ import annotations

import pytest

from netinit.options import Interception, interception
from netinit.options import kinds as option_kinds
from option_samples import SAMPLES
from recipes import Copy
from sweeps import WHOLE, choose

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1800)]  # each runs tests of its own, in one process; some tables are generated from what the kernel makes of rules
LONG = pytest.mark.skipif(not WHOLE, reason="the recipes run some thousand tests in a copy: make prove follows them")
REFERENCE, RECORD, GOLDENS = ("tests/reference.py",), ("tests/recorded.py",), ("-m", "pytest", "-q", "tests/golden/test_rules.py", "--update-golden")
RECORDED = "tests/unit/rules/recorded/"


def follow(folder, edits, commands, tests):
    """The files that a recipe's commands generate, and the tests that are red when it was followed."""
    copy = Copy(folder)
    copy.write(edits)
    for command in commands:
        copy.make(*command)
    generated = copy.generated
    return generated, copy.red(*tests)


def merge(*recipes):
    """Several recipes as one, since what takes time is to run the tests."""
    return {name: [change for recipe in recipes for change in recipe.get(name, ())] for recipe in recipes for name in recipe}


def of_package(edits):
    return {name for name in edits if name.startswith("netinit/")}


# ---- a flag of each kind ----------------------------------------------------------------------------------------------

OF_FLAGS = (
    "tests/unit/options/test_options.py", "tests/unit/options/test_flag_tables.py", "tests/unit/options/test_file.py",
    "tests/unit/inject/test_inject_annotations.py", "tests/unit/questions/audit/test_options_of_peers.py",
    "tests/unit/cli/test_reference.py", "tests/property/test_recover.py", "tests/golden/test_rules.py",
)  # fmt: skip
ALL_OF_FLAGS = (*OF_FLAGS, "tests/unit/cli", "tests/unit/inject", "tests/unit/options", "tests/unit/pods", "tests/unit/node", "tests/unit/questions", "tests/unit/rules", "tests/property", "tests/golden")


def list_kinds():
    """Each kind of the options that affect rules, once, with its expression in interception.py and the text of a default."""
    names = {id(kind): f"kinds.{name}" for name, kind in vars(option_kinds).items() if isinstance(kind, option_kinds.Kind)}
    names |= {id(kind): name for name, kind in vars(interception).items() if isinstance(kind, option_kinds.Kind)}
    found = {}
    for flag in Interception.flags:
        default = flag.kind.write(getattr(Interception(), flag.field))
        found.setdefault(flag.kind.metavar, (names.get(id(flag.kind)) or f"kinds.choice{flag.kind.words!r}", flag.kind, default))
    return list(found.values())


def problem_of(kind, text):
    """What the injection says of a bad value of an annotation."""
    try:
        kind.parse(text)
    except ValueError as problem:
        return f"it {problem}"
    raise AssertionError(f"{text!r} is a good {kind.metavar}")


def made_up_flags():
    """What is written by hand for a flag of each kind: any other value than its default lets a port of its own pass."""
    declared, rules, golden, drawn, audited, bad, fields = [], [], ["# Each of the flags lets a port pass.", "-b *", "-i *", "--ipv6 on"], [], [], [], []
    for number, (expression, kind, default) in enumerate(list_kinds()):
        field, flag, port = f"made_up_{number}", f"made-up-{number}", 4400 + number
        good, wrong = SAMPLES[kind.metavar]
        facts = f'default={expression}.read({default!r}), layouts=(CURRENT,), bypass="port", help_text="Tests made it up.")\n'
        if wrong:
            declared.append(f'    {field}: Any = ours("--{flag}", {expression}, annotated=True, {facts}')
            golden.append(f"--{flag}={good}")
            audited.append(f'    "{field}": (["--{flag}={good}"], ["port"], ["TCP outbound on port {port}, uid other than 1337, gid other than 1337"],'
                           f' "remove them from --{flag}"),\n')
            bad.append(f'    ("netinit.io/{flag}", {wrong!r}, {problem_of(kind, wrong)!r}),\n')
        else:  # where no text is bad, a variable alone sets it
            declared.append(f'    {field}: Any = variable("MADE_UP_{number}", {expression}, {facts}')
            golden.append(f"MADE_UP_{number}={good}")
        rules.append(f"    if options.{field} != options.flag('{field}').default:\n"
                     f"        builder.append(NAT, ISTIO_OUTPUT, Port(protocol='tcp', ports=({port},)), to=Return(), why='made up', origin='{field}')\n")
        # No rule repeats another value than that of a switch, so that no other could be read back
        drawn.append(f'    "{field}": ' + ("st.booleans(),\n" if kind is option_kinds.SWITCH else f"st.just({default!r}),\n"))
        fields.append(f'"{field}", ')
    return {
        "netinit/options/interception.py": [("    loopback_cidr: Network", "".join(declared))],
        "netinit/rules/layouts/outbound.py": [("    to_proxy = ", "".join(rules))],
        "tests/golden/rules/made-up-flags/options.txt": [("", "\n".join([*golden, ""]))],
        "tests/strategies.py": [('    "exclude_cloud_metadata": st.booleans', "".join(drawn))],
        "tests/unit/questions/audit/test_options_of_peers.py": [('    "reject_quic": (', "".join(audited))],
        "tests/unit/inject/test_inject_annotations.py": [('    *(("netinit.io/ipv6", value, "it is', "".join(bad))],
        "netinit/rules/infer_options/release_plans.py": [('"redirect_forwarded_dns", "exclude', "".join(fields))],
    }  # fmt: skip


@LONG
def test_a_flag_of_each_kind_is_two_files_of_the_package_and_a_line_about_releases(tmp_path):
    edits = made_up_flags()
    generated, red = follow(tmp_path, edits, (REFERENCE, GOLDENS), choose(OF_FLAGS, ALL_OF_FLAGS))
    assert red == []
    assert len(list_kinds()) > 20
    assert of_package(edits) == {
        "netinit/options/interception.py", "netinit/rules/layouts/outbound.py", "netinit/rules/infer_options/release_plans.py",
    }  # fmt: skip
    assert generated == {
        "docs/annotations.md", "docs/options.md", "netinit/data/completion.tsv", "netinit/data/config.schema.json", "tests/golden/purposes.txt",
        *[f"tests/golden/rules/made-up-flags/{name}.txt" for name in ("iptables", "ip6tables", "nft")],
    }  # fmt: skip


# ---- a match, a target ------------------------------------------------------------------------------------------------

OF_RULES = ("tests/unit/rules", "tests/unit/simulate/test_engine.py", "tests/golden/test_rules.py")
MATCH = '''class TimeToLive(Match):
    """The packet's TTL is `ttl` (section ttl)."""

    ttl: int
    negated: bool = False

    def xt(self) -> str:
        return format_extension("ttl", "--ttl-eq", f"{self.ttl}", self.negated)

    def nft(self) -> str:
        return format_one_of("ip ttl", [f"{self.ttl}"], self.negated)

    def struct(self, *_: Match) -> structs.Struct:
        return structs.pad("ttl", 0, pack("BB", self.negated, self.ttl))

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.unknown()

    def describe(self) -> str:
        return f"its TTL is {format_not(self.negated)}{self.ttl}"


'''
MATCH_READERS = """def _ttl_option(values: list[str], negated: bool, _: str) -> Match | None:
    ttl = read_number(values[0]) if len(values) == 1 else None
    return None if ttl is None else TimeToLive(ttl=ttl, negated=negated)


def _read_ttl(info: bytes, _: str, __: Family | None) -> list[Match] | None:
    mode, ttl = unpack_from("BB", info)
    return [TimeToLive(ttl=ttl, negated=bool(mode))] if mode in (0, 1) else None


"""
OF_A_MATCH = {
    "netinit/rules/matches/foreign.py": [("class EitherPort(Match):", MATCH)],
    "netinit/rules/structs.py": [('("limit", 0): 40,', '("ttl", 0): 8, ')],
    "netinit/rules/decoding/packet.py": [
        ("from netinit.rules.matches.packet import Destination", "from netinit.rules.matches.foreign import TimeToLive\n"),
        ("OPTIONS: dict", MATCH_READERS),
        ('    "multiport": {', '    "ttl": {"--ttl-eq": _ttl_option, "--ttl-lt": None, "--ttl-gt": None},\n'),
        ('    ("multiport", 1)', '    ("ttl", 0): _read_ttl,\n'),
    ],
    "tests/unit/rules/iptables/test_parse.py": [
        ("from netinit.rules.matches.packet import Destination", "from netinit.rules.matches.foreign import TimeToLive\n"),
        ('    ("-p 17", Protocol', '    ("-m ttl --ttl-eq 3", TimeToLive(ttl=3)),\n'),
    ],
    "tests/unit/rules/test_matches.py": [('    ("-p tcp", "meta l4proto tcp"', '    ("-m ttl ! --ttl-eq 3", "ip ttl != 3", "its TTL is not 3"),\n')],
    "tests/recorded.py": [('        "-A OUTPUT -j REJECT --reject-with icmp-port', '        "-A INPUT -m ttl ! --ttl-eq 3 -j DROP",\n')],
}
TARGET = '''class SetTimeToLive(Target):
    """Sets the packet's TTL (section TTL)."""

    only_observes = True
    xt_text, nft_text, words = "TTL --ttl-set {0.ttl}", "ip ttl set {0.ttl}", "set its TTL to {0.ttl}"
    ttl: int

    def struct(self, family: Family) -> structs.Struct:
        return structs.pad("TTL", 0, pack("BB", 0, self.ttl))

    def act(self, packet: Traversal) -> Verdict:
        return GO_ON


'''
TARGET_READER = """def _ttl_words(options: dict[str, str], _: str, __: Family) -> Target | None:
    ttl = read_number(options.get("--ttl-set", ""))
    return None if ttl is None or len(options) > 1 else SetTimeToLive(ttl=ttl)


"""
OF_A_TARGET = {
    "netinit/rules/foreign_targets.py": [("class UnknownTarget(", TARGET)],
    "netinit/rules/structs.py": [('("TPROXY", 1): 32,', '("TTL", 0): 8, ')],
    "netinit/rules/decoding/targets.py": [
        ("from netinit.rules.structs import UNREACH", "from netinit.rules.foreign_targets import SetTimeToLive\n"),
        ("_MESSAGES = {", TARGET_READER),
        ('    "NOTRACK": lambda options', '    "TTL": _ttl_words,\n'),
        ('    ("NOTRACK", 0): lambda', '    ("TTL", 0): lambda info, _: None if info[0] else SetTimeToLive(ttl=info[1]),\n'),
    ],
    "tests/unit/rules/test_targets.py": [('    ("DROP", ("drop"', '    ("TTL --ttl-set 64", ("ip ttl set 64",), "set its TTL to 64"),\n')],
    "tests/recorded.py": [('        "-A OUTPUT -m conntrack --ctstate RELATED', '        "-A OUTPUT -j TTL --ttl-set 64",\n')],
}


@LONG
def test_a_match_and_a_target_are_class_size_and_reader_and_a_line_in_each_table(tmp_path):
    generated, red = follow(tmp_path, merge(OF_A_MATCH, OF_A_TARGET), (RECORD,), OF_RULES)
    assert red == []
    assert [len(of_package(edits)) for edits in (OF_A_MATCH, OF_A_TARGET)] == [3, 3]
    assert generated
    assert all(name.startswith(RECORDED) for name in generated)


# ---- a finding, a command, a subcommand of kubectl --------------------------------------------------------------------

LINT = "netinit/questions/lint/options.py"
OF_A_FINDING = {LINT: [
    ("ERROR, WARNING = ", 'ODD_PORT = FindingKind("NI099", "odd-port", "Tests made this up. Use another port.")\n'),
    ("    backend = BACKENDS.get(options.wanted_backend)", '    if options.outbound_port == 4711:\n        yield Finding(WARNING, ODD_PORT, "--envoy-port", "4711 is odd; use another")\n'),
]}  # fmt: skip
GREETING = '''"""`netinit greet`."""

from __future__ import annotations

import click

from netinit.base.output import show
from netinit.base.sanitize import lines
from netinit.cli.console import color_option


@click.command("greet")
@color_option
def command() -> None:
    """Print a greeting."""
    show(lines(["hello"]))
'''
EXAMPLE = '    "{0}greet": ("{1}netinit greet", "{1}netinit greet --color never"),\n'
OF_A_COMMAND = {
    "netinit/cli/greet.py": [("", GREETING)],
    "netinit/cli/commands.py": [('        "version": ("cli.version"', '        "greet": ("cli.greet", "Print a greeting."),\n')],
    "netinit/cli/examples.py": [('    "version": (', EXAMPLE.format("", ""))],
}
OF_A_SUBCOMMAND = {
    "netinit/kubectl/greet.py": [("", GREETING)],
    "netinit/cli/commands.py": [('    "complete": ("kubectl.complete"', '    "greet": ("kubectl.greet", "Print a greeting."),\n')],
    "netinit/cli/examples.py": [('    "version": (', EXAMPLE.format("kubectl ", "kubectl "))],
    "pyproject.toml": [(' | preflight | report | why",', " | greet")],
}
OF_COMMANDS = (
    *(f"tests/unit/cli/test_{name}.py" for name in ("group", "reference", "complete", "help", "console", "other_systems", "settings_files")),
    "tests/unit/kubectl/test_kubectl_complete.py", "tests/unit/base/test_documentation.py", "tests/unit/questions/test_finding_codes.py",
    "tests/unit/questions/test_lint.py", "tests/unit/test_api.py", "tests/unit/test_architecture.py", "tests/property/test_answers.py",
)  # fmt: skip


@LONG
def test_a_finding_is_one_file_and_a_command_its_file_its_line_and_its_examples(tmp_path):
    generated, red = follow(tmp_path, merge(OF_A_FINDING, OF_A_COMMAND, OF_A_SUBCOMMAND), (REFERENCE,), choose(OF_COMMANDS, ("tests/unit",)))
    assert red == []
    assert {*OF_A_FINDING} == {LINT}
    assert {*OF_A_COMMAND} == {"netinit/cli/greet.py", "netinit/cli/commands.py", "netinit/cli/examples.py"}
    assert {*OF_A_SUBCOMMAND} == {"netinit/kubectl/greet.py", "netinit/cli/commands.py", "netinit/cli/examples.py", "pyproject.toml"}
    assert generated == {
        "docs/findings.md", "docs/commands.md", "docs/commands/greet.md", "docs/commands/kubectl.md", "netinit/data/completion.tsv",
    }  # fmt: skip


@LONG
def test_a_recipe_of_which_a_step_is_left_out_leaves_a_red_test(tmp_path):
    without_examples = {name: changes for name, changes in OF_A_COMMAND.items() if name != "netinit/cli/examples.py"}
    _, red = follow(tmp_path, without_examples, (REFERENCE,), ("tests/unit/cli/test_group.py",))
    assert [one.split(" - ")[0].split("::")[-1] for one in red] == ["test_every_help_ends_with_two_examples_of_the_command_and_its_page[greet]"]

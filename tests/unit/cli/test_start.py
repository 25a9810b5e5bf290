"""Who reads the command line, what the exit code is, and what a plain start imports."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from netinit.base.errors import ApplyError, ValidationFailedError
from netinit.cli import start
from netinit.options import Options
from readable import NOBODY
from sweeps import together

MAIN = str(Path(start.__file__).parent.parent / "__main__.py")
# Builtin or loaded by every start of the interpreter, then small C modules; nothing that is written in Python.
CHEAP = frozenset(
    (
        "_abc", "_codecs", "_frozen_importlib_external", "_io", "_signal", "abc", "codecs", "encodings", "encodings.aliases",
        "encodings.utf_8", "encodings.latin_1", "io", "marshal", "posix", "time", "zipimport", "winreg", "_weakref", "_thread", "_warnings", "_imp",
        "__future__", "_socket", "_struct", "gc", "fcntl", "grp", "pwd", "select",
    ),
)  # fmt: skip
OWN = frozenset(
    """
    netinit netinit.base netinit.options.declare netinit.options.interception netinit.pods netinit.rules.iptables netinit.pods.apply netinit.pods.init_run netinit.base.errors netinit.base.logs netinit.options netinit.base.records netinit.base.sanitize netinit.base.system netinit.pods.backend_choice netinit.pods.reset_connections netinit.options.kinds
    netinit.base.netlink_attributes netinit.kernel.plain_namespace
    netinit.backends netinit.backends.machine netinit.pods.transaction netinit.backends.routes netinit.backends.iptables netinit.backends.iptables_nft netinit.backends.compat_messages
    netinit.cli netinit.cli.init_container netinit.cli.start netinit.cli.imports
    netinit.kernel netinit.kernel.detect netinit.kernel.netlink netinit.kernel.namespaces netinit.kernel.nf_tables netinit.kernel.run
    netinit.rules netinit.rules.numbers netinit.rules.structs netinit.rules.model netinit.base.net netinit.rules.targets
    netinit.rules.iptables.write netinit.rules.rule_builder netinit.rules.expressions netinit.rules.expressions.compat
    netinit.rules.layouts netinit.rules.layouts.builder netinit.rules.layouts.current
    netinit.rules.layouts.inbound netinit.rules.layouts.outbound netinit.rules.layouts.untranslated
    netinit.rules.matches netinit.rules.matches.context netinit.rules.matches.packet netinit.rules.targets
    """.split(),  # noqa: SIM905 - a list to read and to edit
)
REMOVING_LEGACY = frozenset(
    """
    _ctypes netinit.backends.encoded_rules netinit.backends.legacy netinit.backends.legacy_edits netinit.backends.legacy_removal
    netinit.backends.lock netinit.base.snapshot netinit.kernel.files netinit.kernel.libc netinit.kernel.snapshot
    netinit.kernel.snapshot.legacy_tables netinit.kernel.table_replacement netinit.rules.iptables.table_order netinit.rules.xtables
    netinit.rules.xtables.building netinit.rules.xtables.editing
    """.split(),  # noqa: SIM905 - as above
)
SIDECAR = ["-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020"]


# What injecting plain manifests adds to the standard library's share; everything here is written in C or needed by re and json.
FOR_INJECTION = frozenset(
    """
    _collections _collections_abc _functools _json _operator _sre _typing binascii collections collections.abc copyreg enum functools itertools
    json json.decoder json.encoder json.scanner keyword math operator re re._casefix re._compiler re._constants re._parser reprlib types
    typing unicodedata zlib
    """.split(),  # noqa: SIM905 - as above
)
CONFIG = "policy: enabled\ntemplates:\n  sidecar: |\n    spec:\n      containers:\n      - name: istio-proxy\n        image: {{ .Values.image | quote }}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - {name: c, image: i}\n"


# Starts as by path, and names the modules that this has added.
NAME_MODULES = """
import posix, sys
known = set(sys.modules)
posix._exit = lambda code: (sys.stdout.write(" ".join(set(sys.modules) - known)), sys.exit(code))
main, sys.argv = sys.argv[1], sys.argv[1:]
exec(compile(open(main).read(), main, "exec"), {"__name__": "__main__", "__file__": main, "__package__": None})
"""


def imports(*command, words=SIDECAR):
    """What a command imports, by the interpreter's own account."""
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {row[2].strip() for row in rows[1:]}


@pytest.mark.netns
def test_a_plain_apply_imports_no_module_that_is_not_listed_here():
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-I", "-S", "-c", NAME_MODULES, MAIN, *SIDECAR],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded - CHEAP - OWN == set(), "a pod's start pays for each of these; import them where they are needed, or list them here"
    assert OWN - loaded == set(), "no longer imported: take them off the list"


@pytest.mark.netns
@pytest.mark.skipif(not shutil.which("iptables-legacy-save"), reason="iptables-legacy is not installed: apt-get install iptables")
def test_legacy_tables_are_removed_without_modules_that_decode_compare_or_start_programs():
    line = 'ip link set lo up && "$@" --backend iptables-legacy >/dev/null && exec "$@" --cleanup-only --backend iptables-legacy'
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", line, "sh", sys.executable, "-I", "-S", "-c", NAME_MODULES, MAIN, *SIDECAR],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    loaded = set(done.stdout.splitlines()[-1].split()) - CHEAP
    assert loaded - OWN == REMOVING_LEGACY


def test_a_plain_dry_run_imports_nothing_costly_either():
    loaded = imports(sys.executable, "-I", "-S", "-X", "importtime", MAIN, "-n")
    foreign = {name for name in loaded if not name.startswith("netinit")}
    assert foreign - CHEAP == set()


@pytest.mark.parametrize("name", ["inject", "kube-inject"])
def test_a_plain_injection_imports_pyyaml_and_little_else(name, tmp_path):
    files = {"-f": POD, "--injectConfigFile": CONFIG, "--meshConfigFile": "defaultConfig:\n  concurrency: 2\n", "--valuesFile": '{"image": "x"}'}
    words = [name]
    for number, (flag, text) in enumerate(files.items()):
        path = tmp_path / str(number)
        path.write_text(text)
        words += [flag, str(path)]
    loaded = imports(sys.executable, "-I", "-S", "-X", "importtime", MAIN, words=words)
    assert "netinit.inject.adding.stream" in loaded
    foreign = {name for name in loaded if not name.startswith("netinit")}
    for_yaml = imports(sys.executable, "-I", "-S", "-X", "importtime", "-c", "import site; site.main(); import yaml", words=[])
    assert foreign - CHEAP - FOR_INJECTION - for_yaml == set(), "each costs milliseconds; import them where they are needed, or list them here"
    assert FOR_INJECTION - loaded <= {"_typing", "unicodedata", "binascii", "collections.abc"}, "no longer imported: take them off the list"


def test_an_injection_with_unusual_flags_or_yaml_gives_the_same_pod(tmp_path):
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "plain.yaml").write_text(POD)
    (tmp_path / "unusual.yaml").write_text(POD.replace("name: p", "name: &a p").replace("image: i", 'image: "i"'))
    config = f"--injectConfigFile={tmp_path}/config"
    lines = (["-f", f"{tmp_path}/plain.yaml"], [f"-f{tmp_path}/plain.yaml"], ["-f", f"{tmp_path}/unusual.yaml"])
    texts = {
        subprocess.run([sys.executable, "-I", "-S", MAIN, "inject", config, *words], capture_output=True, text=True, check=True, timeout=30).stdout
        for words in lines
    }
    assert len({json.dumps(yaml.safe_load(text)) for text in texts}) == 1
    assert "istio-proxy" in texts.pop()


def test_injection_makes_no_garbage_that_grows_with_the_documents_since_nobody_collects_it(tmp_path):
    (tmp_path / "config").write_text(CONFIG)
    left = []
    for number in (2, 40):
        source = tmp_path / str(number)
        source.write_text("---\n".join(POD.replace("name: p", f"name: p{n}") for n in range(number)))
        code = (
            "import gc, sys; gc.disable(); from netinit.cli import start; start.run(sys.argv, {}); "
            "print(gc.isenabled(), gc.collect())"
        )
        words = ["inject", "-f", str(source), "-o", str(tmp_path / "out"), "--injectConfigFile", str(tmp_path / "config")]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, timeout=60)
        enabled, garbage = done.stdout.split()
        assert enabled == "False"
        left.append(int(garbage))
        assert (tmp_path / "out").read_text().count("kind: Pod") == number
    assert left[1] - left[0] < 38  # not one object a document


@together(
    ("argv", "program", "istio", "apply", "words"),
    [
        ("netinit apply -p 1", "netinit apply", False, True, ("-p", "1")),
        ("netinit istio-iptables -p 1", "netinit istio-iptables", True, True, ("-p", "1")),
        ("netinit -p 1", "netinit", False, True, ("-p", "1")),
        ("netinit --dry-run", "netinit", False, True, ("--dry-run",)),
        ("/usr/local/bin/istio-iptables -p 1", "istio-iptables", True, True, ("-p", "1")),
        ("istio-iptables", "istio-iptables", True, True, ()),
        ("netinit apply", "netinit apply", False, True, ()),
        ("netinit", "netinit", False, False, ()),
        ("netinit --help", "netinit", False, False, ("--help",)),
        ("netinit --version", "netinit", False, False, ("--version",)),
        ("netinit render -b 80", "netinit", False, False, ("render", "-b", "80")),
        ("istio-iptables apply", "istio-iptables", True, True, ("apply",)),
    ],
)
def test_the_names_and_first_words_decide_who_reads_the_rest(argv, program, istio, apply, words):
    assert start.read_call(argv.split()) == start.Call(program=program, istio=istio, apply=apply, words=words)


@pytest.mark.parametrize("line", ["netinit apply", "netinit istio-iptables", "netinit", "istio-iptables", "/bin/istio-iptables"])
def test_the_same_flags_mean_the_same_under_every_name(line, run, applied):
    assert run(f"{line} -p 4000 -u 7 -b=80,443 --redirect-dns=false").code == 0
    assert applied == [Options(outbound_port=4000, proxy_uids=(7,), inbound_ports=(80, 443))]


def test_the_environment_is_read(run, applied):
    run("istio-iptables -b *", {"PROXY_UID": "9", "NETINIT_LAYOUT": "classic", "ISTIO_INBOUND_PORTS": "80"})
    assert applied == [Options(proxy_uids=(9,), layout="classic", inbound_ports="*")]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("netinit apply -p 0", 2),
        ("netinit -p 0", 2),
        ("netinit -p", 2),
        ("netinit --nonsense", 2),
        ("netinit apply stray", 2),
        ("netinit istio-iptables -p 0", 1),
        ("netinit istio-iptables --nonsense", 1),
        ("istio-iptables -p 0", 1),
        ("istio-iptables -i -b", 1),
        ("istio-iptables stray", 1),
        ("netinit nonsense", 2),
        ("netinit render --nonsense", 2),
        ("netinit render -p 0", 2),
        ("netinit version extra", 2),
    ],
)
def test_a_wrong_command_line_ends_with_1_as_in_istio_or_with_2(line, code, run, applied):
    done = run(line)
    assert (done.code, done.out) == (code, "")
    assert done.err
    assert "Traceback" not in done.err
    assert applied == []


@pytest.mark.parametrize(
    ("error", "code"), [(ApplyError("the kernel said no"), 1), (ValidationFailedError("probes went astray"), 126), (KeyboardInterrupt("all is as before"), 130), (KeyboardInterrupt(), 130)]
)
@pytest.mark.parametrize("program", ["netinit apply", "istio-iptables"])
def test_a_failure_ends_with_its_own_code(program, error, code, run, monkeypatch):
    def fail(options, log):
        raise error

    monkeypatch.setattr("netinit.pods.init_run.main", fail)
    done = run(program)
    assert done.code == code
    assert done.errors == [str(one) for one in error.args]


def test_the_reason_goes_to_stderr_as_an_event_and_to_the_termination_log(run, monkeypatch):
    def fail(options, log):
        raise ApplyError("first line\nsecond \x1b[31mline")

    monkeypatch.setattr("netinit.pods.init_run.main", fail)
    done = run("istio-iptables -b 80")
    assert [line.split("\t")[1:] for line in done.err.splitlines()] == [["error", "first line"], ["error", r"second \x1b[31mline"]]
    assert done.told == ["first line\nsecond \x1b[31mline"]


def test_a_request_to_stop_is_told_as_the_environment_wants_the_log(run, monkeypatch):
    def stop(options, log):
        raise KeyboardInterrupt("all is as before")

    monkeypatch.setattr("netinit.pods.init_run.main", stop)
    done = run("netinit apply", {"LOG_AS_JSON": "true"})
    assert (done.code, json.loads(done.err)["msg"]) == (130, "all is as before")


def test_a_variable_that_is_no_text_stops_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "netinit", "version"], env={**os.environ, "OF_OTHERS": os.fsdecode(b"\xff")}, capture_output=True, check=False
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


def test_errors_are_json_where_the_log_is(run):
    for line, environ in (("netinit apply -p 0 --log_as_json", {}), ("netinit apply -p 0", {"LOG_AS_JSON": "true"})):
        done = run(line, environ)
        assert done.err.startswith('{"level":"error","time":"'), done.err
        assert done.err.endswith('"msg":"-p: \'0\' is not a port: use a decimal number from 1 to 65535"}\n')


def test_a_fault_of_the_program_is_one_line_and_a_traceback_only_with_debug(run, monkeypatch):
    def fail(options, log):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("netinit.pods.init_run.main", fail)
    done = run("istio-iptables")
    assert (done.code, done.errors) == (1, ["internal error: ZeroDivisionError: oops; --debug prints where"])
    for line, environ in (("istio-iptables --debug", {}), ("istio-iptables", {"NETINIT_DEBUG": "1"})):
        assert "Traceback (most recent call last)" in run(line, environ).err
    assert "Traceback" not in run("istio-iptables --debug=false", {"NETINIT_DEBUG": "1"}).err


def test_every_problem_of_a_command_line_is_told_in_one_run(run):
    done = run("istio-iptables --envy-port 1 -i -b 80 -z 0 stray", {"DUAL_STACK": "maybe"})
    assert done.errors == [
        "-i: '-b' looks like a flag; an empty value is written -i=''",
        "'--envy-port' is not an option; did you mean --envoy-port?",
        "'stray' is not an option; quote values that hold blanks or *",
        "-z: '0' is not a port: use a decimal number from 1 to 65535",
        "environment variable DUAL_STACK: 'maybe' is neither true nor false",
    ]
    assert done.told == ["\n".join(done.errors)]


def test_the_program_runs_uninstalled_without_site_packages_from_anywhere(tmp_path):
    link = tmp_path / "istio-iptables"
    link.symlink_to(MAIN)
    for command in ([MAIN], ["-m", "netinit"], [str(link)]):
        where = {"cwd": Path(MAIN).parent.parent} if command[0] == "-m" else {"cwd": tmp_path}
        options = [] if command[0] == "-m" else ["-I", "-S"]
        done = subprocess.run([sys.executable, *options, *command, "-n", "-p", "0"], capture_output=True, text=True, check=False, **where)
        assert done.returncode == (1 if command[0] == str(link) else 2), done.stderr
        assert "-p: '0' is not a port" in done.stderr
    helped = subprocess.run([sys.executable, "-I", "-S", MAIN, "--help"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "Usage: netinit" in helped.stdout


def test_a_reader_that_goes_away_is_no_error_message():
    line = f"{shlex.join([sys.executable, MAIN])} render --format json --layout classic | head -c 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_a_full_disk_is_an_error_and_a_closed_stream_is_none():
    command = [sys.executable, "-I", "-S", MAIN]
    for words in (["-n", "--ipv6", "on"], ["render", "--family", "both", "--ipv6", "on"]):
        done = subprocess.run(["bash", "-c", '"$@" >/dev/full', "-", *command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "cannot read or write the input or output: No space left on device" in done.stderr
    for closed in ("2>&-", ">&- 2>&-", "<&- 2>&-"):
        done = subprocess.run(["bash", "-c", f'"$@" {closed}', "-", *command, "-p", "0"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", ""), closed


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "en_US.ISO-8859-1"])
def test_bytes_that_are_no_text_are_refused_readably_in_every_locale(locale):
    command = [sys.executable.encode(), b"-I", b"-S", MAIN.encode(), b"-n"]
    for words, environ in (([b"-b", b"80\xff\xc3\xa9"], {}), ([], {b"ISTIO_INBOUND_PORTS": b"80\xff\xc3\xa9"})):
        done = subprocess.run([*command, *words], capture_output=True, check=False, env={b"LC_ALL": locale.encode(), **environ})
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.count(b"\n") == 1
        assert b"'80\\xff\xc3\xa9' is not UTF-8: give PORTS" in done.stderr


@pytest.mark.netns
def test_a_dry_run_for_a_namespace_that_cannot_be_entered_says_what_to_do(readable):
    command = [*readable, *NOBODY, "--inh-caps=-all", sys.executable, "-I", "-S", MAIN, "-n", "-b", "80", "--pid", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("; with --ipv6 on, off or reject it need not be read\n")
    done = subprocess.run([*command, "--ipv6", "off"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["--version"], {}), (["version"], {}), (["--help"], {}), (["help"], {}), ([], {}),
        ([], {"_NETINIT_COMPLETE": "bash_complete", "COMP_WORDS": "netinit exp", "COMP_CWORD": "1"}),
        ([], {"_NETINIT_COMPLETE": "zsh_complete", "COMP_WORDS": "netinit explain --to-", "COMP_CWORD": "2"}),
    ],
)  # fmt: skip
def test_what_people_wait_for_most_imports_neither_click_nor_the_options(words, environ, monkeypatch):
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    done = subprocess.run([sys.executable, "-I", "-S", "-X", "importtime", MAIN, *words], capture_output=True, text=True, timeout=30, check=False)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.stdout
    assert {name for name in loaded if name.partition(".")[0] in ("click", "re", "typing", "dataclasses")} == set()
    assert {name for name in loaded if name.startswith(("netinit.options", "netinit.rules", "netinit.pods"))} <= {
        "netinit.options", "netinit.options.declare", "netinit.options.interception", "netinit.options.kinds",
    }  # fmt: skip

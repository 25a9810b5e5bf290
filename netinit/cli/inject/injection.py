"""Runs `netinit inject` after its flags are parsed: manifests in, injected manifests out."""

from __future__ import annotations

import time
from collections.abc import Callable

from netinit.base.errors import InjectionError, NetinitError
from netinit.base.output import show_progress, shows_on_a_terminal
from netinit.cli.inject import inputs as inject_inputs
from netinit.cli.inject.flags import InjectFlags
from netinit.inject.adding.stream import inject_into
from netinit.inject.deciding.manifests import Selection, StreamWriter
from netinit.library.manifest_files import in_file, read_manifests, shown_name
from netinit.library.safe_files import Spool
from netinit.questions.injection_advice import advise

_LONG = 200  # documents
_EVERY = 0.2  # seconds


def run(flags: InjectFlags) -> int:
    """Inject and return the exit code."""
    if flags.explain:
        from netinit.cli.inject.check import check

        return check(flags, manually=True)
    if flags.check_config:
        from netinit.cli.inject.check import check_config

        return check_config(flags)
    config = inject_inputs.read_config_with_warnings(flags, lazily=True)
    spool = Spool()
    joined = StreamWriter(spool.write)
    problems: list[str] = []
    changed = 0
    settings = inject_inputs.settings_of(flags)
    selection, kinds = Selection(flags.select), flags.template_kinds
    manifests = read_manifests(flags.filenames, recursive=flags.recursive)
    cluster = inject_inputs.Cluster(flags) if flags.uses_cluster else None
    namespaces = inject_inputs.Namespaces.of_texts([text for _, text in manifests], cluster)
    for name, text in manifests:
        joined.begin()
        try:
            notices, count = inject_into(
                joined.write, text, config, advise=advise, settings=settings, namespace=flags.namespace,
                find_namespace=namespaces.get, selection=selection, kinds=kinds, progress=_progress(name),
                file=shown_name(name),
            )  # fmt: skip
        except InjectionError as error:
            problems.append(str(error))
            continue
        except NetinitError as error:
            problems.append(in_file(name, error))
            continue
        inject_inputs.warn(notices)
        changed += count
    if problems:
        raise InjectionError("\n".join(problems))
    selection.check("the input")
    if changed:
        inject_inputs.warn(inject_inputs.describe_image(flags, config))
    inject_inputs.write_result(flags.output, spool)
    return 0


def _progress(name: str) -> Callable[[int, int], None] | None:
    if not shows_on_a_terminal():
        return None
    shown = 0.0

    def show(number: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if total >= _LONG and (now - shown >= _EVERY or number == total):
            shown = now
            show_progress(f"{name}: {number} of {total} documents", last=number == total)

    return show

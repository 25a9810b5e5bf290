"""`netinit inject --check-config`: validates a configuration before it is used."""

from __future__ import annotations

from netinit.base.output import show_artefact
from netinit.base.sanitize import shorten, split_message
from netinit.cli.inject import inputs as inject_inputs
from netinit.cli.inject.flags import CheckFlags
from netinit.inject.configuration_check import find_template_problems, try_canary


def check_config(flags: CheckFlags) -> int:
    """Print the problems and return 1 if pods would be rejected. Raises ConfigError if nothing would be injected."""
    config = inject_inputs.read_config(flags)
    settings = inject_inputs.settings_of(flags)
    try_canary(config, settings)
    problems = list(find_template_problems(config, settings))
    known = {problem.message for problem in problems}
    others = [line for line in config.warnings if not any(line.startswith(message) for message in known)]
    inject_inputs.warn([f"warning: {line}" for line in others])
    for problem in problems:
        ending = "; pods that ask for it are refused" if problem.stops_pods else ""
        label = "error" if problem.stops_pods else "warning"
        inject_inputs.warn([f"{label}: {line}" for line in split_message(problem.message + ending)])
    broken = sum(problem.stops_pods for problem in problems)
    defaults = ", ".join(map(shorten, config.default_templates))
    show_artefact(f"{len(config.sources)} templates, {broken} broken; a pod was injected with the default: {defaults}\n")
    return 1 if broken else 0

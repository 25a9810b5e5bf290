"""Finds the user's kubectl, and how to start it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping

from netinit.base.errors import NetinitError

_BESIDE_ERRORS = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] |Warning: ")
"""How lines of kubectl's log (klog) and warnings of the API server begin, which come before the error itself."""


def find_error(text: str) -> str:
    """Return what of kubectl's error output says why it failed: all but its log and warnings, if there is anything else."""
    lines = [line for line in text.strip().split("\n") if not _BESIDE_ERRORS.match(line)]
    return "\n".join(lines).strip() or text.strip()


def find_kubectl_program(environ: Mapping[str, str], *, context: str, kubeconfig: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """The path of kubectl on PATH, its flags and its environment. Raises NetinitError if there is none."""
    program = shutil.which("kubectl", path=environ.get("PATH", ""))
    if not program:
        raise NetinitError("kubectl is not on the PATH; netinit asks the cluster with it: install it")
    flags = [f"--context={context}"] * bool(context) + [f"--kubeconfig={kubeconfig}"] * bool(kubeconfig)
    variables = {name: text for name, text in environ.items() if (name + text).encode(errors="ignore").decode() == name + text}
    return program, tuple(flags), variables  # without names or values that are not UTF-8

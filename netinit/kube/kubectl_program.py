"""Finds the user's kubectl, and how to start it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from netinit.base.errors import NetinitError


def find_kubectl_program(environ: Mapping[str, str], *, context: str, kubeconfig: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """The path of kubectl on PATH, its flags and its environment. Raises NetinitError if there is none."""
    program = shutil.which("kubectl", path=environ.get("PATH", ""))
    if not program:
        raise NetinitError("kubectl is not on the PATH; netinit asks the cluster with it: install it")
    flags = [f"--context={context}"] * bool(context) + [f"--kubeconfig={kubeconfig}"] * bool(kubeconfig)
    variables = {name: text for name, text in environ.items() if (name + text).encode(errors="ignore").decode() == name + text}
    return program, tuple(flags), variables  # without names or values that are not UTF-8

"""The static executable alone: the root of a container in which no file is but it, under its names, and the kernel's /proc."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from laboratory import NetworkNamespace

NAMES = ("istio-iptables", "kubectl-netinit", "kubectl_complete-netinit")
SECONDS = 120  # for one command, also on an emulated processor
SCRIPT = 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"'  # in a mount namespace that ends with it
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class BareExecutable:
    """A copy of `program` in `folder`, without capabilities of the file."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.folder = folder
        (folder / "proc").mkdir(parents=True)
        shutil.copyfile(program, folder / "netinit")
        (folder / "netinit").chmod(0o755)
        for name in NAMES:
            (folder / name).symlink_to("netinit")

    def run(self, namespace: NetworkNamespace, name: str, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the executable under this name in a namespace, to its end."""
        command = ["unshare", "--mount", "sh", "-euc", SCRIPT, str(self.folder), f"/{name}", *words]
        return namespace.run(command, env={"PATH": PATH, **(env or {})}, timeout=SECONDS)

"""Whether modprobe(8) can give this kernel a feature that it lacks."""

from __future__ import annotations

from netinit.base.system import posix
from netinit.kernel import read_text
from netinit.kernel.detect import MODULES

LOADED, DISABLED, FOLDER = "/proc/modules", "/proc/sys/kernel/modules_disabled", "/lib/modules"
SUFFIXES = (".ko", ".ko.gz", ".ko.xz", ".ko.zst")


def can_help(named: str) -> bool:
    """Whether modprobe may load a module of these, separated by spaces or commas; True also if it is not known.

    It cannot where the kernel loads no modules at all (gVisor, many guests), where all of them are loaded or built in
    already, or where /lib/modules can be read and has none of them.
    """
    if not posix.access(LOADED, posix.F_OK) or read_text(DISABLED).strip() == "1":
        return False
    names = [word for word in named.replace(",", " ").split() if "_" in word]
    wanted = [name for name in names if not posix.access(f"{MODULES}/{name}", posix.F_OK)]
    if not wanted:
        return not names
    available = _list_modules(f"{FOLDER}/{posix.uname().release}/modules.dep")
    return not available or any(name in available for name in wanted)


def _list_modules(path: str) -> list[str]:
    files = [line.partition(":")[0].rpartition("/")[2] for line in read_text(path).splitlines()]
    return [file.partition(".ko")[0].replace("-", "_") for file in files if file.endswith(SUFFIXES)]

"""Install the plugin on the node: settings and executable in the runtime's directory, an entry in the runtime's list.

Every file is replaced as a whole: written next to it, flushed to disk, renamed. A full or read-only disk, or an
unreadable list, is reported and the existing files stay. One agent writes at a time (a lock in the run directory), and
files changed between reading and renaming are read again. Agents of different versions do not compete: an agent writes
its own entry once, and later only if there is none or it is not the last. Agents of different releases do not either: the
settings file names the release whose plugin it is, and an agent of another one refuses to start while that release's agent answers.

With --ownList no foreign file is changed: the agent keeps a list of its own that sorts first, a copy of the cluster's with the entry.
Its entry names the file that it is a copy of, so that an uninstall and an agent without --ownList recognise it.

A single plugin (`.conf`) becomes a list. Because the original would still be first by name, it is renamed to a name that
runtimes ignore, and restored when the plugin is uninstalled.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from netinit.base.errors import ConfigError
from netinit.base.sanitize import quote
from netinit.base.system import fcntl
from netinit.kernel import identify, identify_content
from netinit.kernel.files import UnsuitableFileError, read_regular
from netinit.node import conflist
from netinit.node.settings import InstallSettings
from netinit.serving.server_process import is_answered

_MAX_BYTES = 4 << 20  # bytes of a list, or of the executable, which has 25,000
_ASIDE = ".netinit-aside"
_TAKEN = ".cilium_bak"  # what Cilium, with cni.exclusive, adds to the names of other networks
_REMEDIES = {
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "it is read-only; name the folder that the runtime reads",
    errno.EACCES: "this process may not write there",
    errno.ENOENT: "there is no such folder; mount it, or name another",
}
_RESTART_SECONDS = 10.0  # that another release's agent is waited for: one that was killed is back by then
_PASSING = 3  # answers that may be those of an agent that is just being killed
Answer = TypeVar("Answer")


class Installer:
    """The installation on one node."""

    def __init__(self, settings: InstallSettings) -> None:
        self.plugin = Path(settings.plugin)
        self.target = Path(settings.bin_folder) / conflist.TYPE
        self.settings_file = self.target.with_suffix(".settings")
        self.settings = conflist.settings_of(settings)  # the text of this file
        self.conf_folder = Path(settings.conf_folder)
        self.conf_name = settings.conf_name
        self.own = self.conf_folder / settings.conf_name if settings.standalone else None  # a network configuration of its own
        self.own_list = self.conf_folder / settings.own_list_name if settings.own_list else None
        self.socket = settings.socket
        self._lock = Path(settings.socket).parent / "install.lock"
        self._written = False

    def find_other_owner(self) -> str:
        """Return the other release that the plugin on this node belongs to, NAMESPACE/DAEMONSET; empty if it is ours or nobody's."""
        try:
            owner = conflist.owner_of(_read(self.settings_file))
        except ConfigError:
            return ""
        return "" if owner == conflist.owner_of(self.settings) else owner

    def claim(self, seconds: float = _RESTART_SECONDS, *, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Make the plugin on this node this release's, before its agent takes the socket; not once `is_stopped`.

        Raises ConfigError if another release's agent answers, or does within `seconds`; what an agent left that is gone is taken over.
        """
        end, answers = time.monotonic() + seconds, 0
        while not is_stopped():
            answers = answers + 1 if is_answered(self.socket) else 0
            with self._locked():
                owner = self.find_other_owner()
                if not owner or (time.monotonic() >= end and not answers):
                    with contextlib.suppress(ConfigError):  # the installation reports it
                        self._write(self.settings_file, self.settings)
                    return
            if answers > _PASSING:
                raise ConfigError(
                    f"the agent of another release, {owner}, answers the plugin on this node: uninstall that release, or set "
                    "node.enabled=false in this one; injected pods of both are programmed by one agent"
                )
            time.sleep(0.2)

    def install(self) -> bool:
        """Install the plugin; return whether anything changed. Raises ConfigError, and then nothing is half done."""
        with self._locked():
            if refusal := self._refuse_own_list():
                raise ConfigError(refusal)
            changed = self._write(self.settings_file, self.settings)  # before the executable that reads them
            changed |= self._copy()
            if self.own is not None:
                changed |= self._write(self.own, conflist.network_of())
            else:
                changed |= self._copy_list(self.own_list) if self.own_list else self._enter()
                changed |= self._drop_copies()  # after it, so that one list or the other has the entry at any time
                if self.own_list and (first := self._first()) != self.own_list:
                    changed |= self._enter(first)
        self._written = True
        return changed

    def uninstall(self) -> bool:
        """Uninstall the plugin, entry first, executable last; return whether anything was there. Raises ConfigError."""
        with self._locked():
            changed = self.own is not None and self.own.exists()
            if self.own is not None and changed:
                _act(self.own, Path.unlink)
            changed |= self._drop_copies(every=True)
            wrong = []
            for path in sorted(self.conf_folder.glob(f"*{conflist.LIST}")) if self.conf_folder.is_dir() else ():
                try:
                    changed |= self._leave(path)
                except ConfigError as error:
                    wrong += [f"{path}: {error}"] if _mentions_us(path) else []  # otherwise a foreign file without our entry
            if wrong:
                raise ConfigError("; ".join(wrong))
            for path in (self.target, self.settings_file):
                if path.exists():
                    _act(path, Path.unlink)
                    changed = True
        return changed

    def clear_run_folder(self, own_socket: tuple[int, int] | None) -> bool:
        """Delete what agents keep in the run directory: socket, status, the records of programmed pods, and the lock last.

        Return False, and leave everything, if another agent has claimed the node since `uninstall`: the settings file is there again,
        or the socket is not `own_socket` (device and inode). Raises ConfigError.
        """
        with self._locked():
            if self.settings_file.exists() or identify(self.socket) not in {None, own_socket}:
                return False
            for path in sorted(self._lock.parent.iterdir(), key=self._lock.__eq__):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    _act(path, Path.unlink, missing_ok=True)
        return True

    def state(self) -> dict[str, str]:
        """Describe the state of executable and entry; an empty text means no problem."""
        found = {"executable": "", "entry": ""}
        if not self._same_executable():
            found["executable"] = f"{self.target} is missing, or another"
        elif not self.settings_file.exists():
            found["executable"] = f"{self.settings_file} is missing"
        path: Path | None = None
        try:
            path = self._path()
            problem = self._judge_copy(self.own_list, path) if self.own_list else self._judge_entry(path)
            found["entry"] = self._refuse_own_list() or problem
        except ConfigError as error:
            found["entry"] = f"{path or self.conf_folder}: {error}"
        return found

    def _judge_entry(self, path: Path | None) -> str:
        """Say what is wrong with the entry in the cluster's list, or with the network for Multus. Raises ConfigError."""
        if self.own is not None:
            return "" if self.own.exists() else f"{self.own} is missing"
        if path is None:
            return f"{self.conf_folder} has no network yet"
        if copies := self._find_copies():
            return f"{copies[0]} is a list of an agent with --ownList"
        if path.suffix != conflist.LIST or not conflist.has_entry(_read(path)):
            return f"{path} has no entry of netinit"
        return "" if conflist.is_last(_read(path)) else f"in {path} another plugin comes after netinit's"

    def _judge_copy(self, own: Path, path: Path | None) -> str:
        """Say what is wrong with the list of our own. Raises ConfigError."""
        if path is None:
            return self._explain_absence()
        if not own.exists():
            return f"{own} is missing"
        if not _is_own(own) or not conflist.is_copy(_read(own), _read(path), path.name, single=path.suffix != conflist.LIST):
            return f"{own} is not {path} with netinit's entry"
        first = self._first()
        if first is None or first == own or conflist.is_last(_read(first)):
            return ""
        return f"{first}, which sorts before {own.name}, has no entry of netinit"

    def warnings(self) -> dict[str, str]:
        """Return what the node's administrator should know although the plugin is in place, by the reason of its event."""
        found: dict[str, str] = {}
        try:
            path = self._path()
            if path is not None and (others := sorted(conflist.plugins_of(_read(path)) & conflist.OTHER_MESHES.keys())):
                named = " and ".join(f"{one} ({conflist.OTHER_MESHES[one]})" for one in others)
                found["OtherMeshPlugin"] = (
                    f"{path} also names {named}: both program the pods that both take for theirs, netinit last; "
                    "remove the other's release when all nodes have netinit's agent"
                )
            if path is not None and (behind := self._plugins_behind(path)):
                found["PluginsBehind"] = (
                    f"after {path}, and so after netinit's plugin, runtimes with libcni 1.3 or later run {', '.join(behind)}: name "
                    'these in the list\'s "plugins" instead, or set "loadOnlyInlinedPlugins": true there'
                )
            first = self._first() if self.own_list and path is not None else None
            if self.own_list and first != self.own_list and first is not None and self.own_list.exists():
                found["OwnListPreceded"] = (
                    f"{first} sorts before {self.own_list.name}, so the runtime uses that one, where its owner may drop netinit's "
                    "entry: choose --ownListName (node.ownListName) so that it sorts first"
                )
        except ConfigError:  # the state says it
            return found
        return found

    def _plugins_behind(self, path: Path) -> list[str]:
        """Return the files of plugins that a runtime runs after those of the list. Raises ConfigError."""
        name = conflist.folder_of(_read(path)) if path.suffix == conflist.LIST else ""
        return sorted(map(str, (self.conf_folder / name).glob("*.conf"))) if name else []

    def watched(self) -> list[Path]:
        """Return the files and folders whose changes may undo the installation."""
        return [self.conf_folder, self.target, self.settings_file, *filter(None, (self._first(), self._path()))]

    # ---- the executable

    def _same_executable(self) -> bool:
        try:
            return read_regular(str(self.target), _MAX_BYTES) == self.plugin.read_bytes() and os.access(self.target, os.X_OK)
        except OSError:
            return False

    def _write(self, path: Path, text: str) -> bool:
        """Write a file of ours once, and later only if it is missing; a newer agent's stays."""
        if path.exists() and (self._written or _read(path) == text):
            return False
        return _act(path, replace_file, text.encode(), mode=0o644)

    def _copy(self) -> bool:
        if self._same_executable():
            return False
        try:
            data = self.plugin.read_bytes()
        except OSError as error:
            raise ConfigError(f"--pluginFile: {self.plugin} cannot be read: {error.strerror}") from error
        return _act(self.target, replace_file, data, mode=0o755)

    # ---- the entry

    def _names(self) -> list[str]:
        """Return the names of the files in the runtime's folder."""
        try:
            return [path.name for path in self.conf_folder.iterdir() if path.is_file() or path.is_symlink()]
        except OSError:
            return []

    def _first(self) -> Path | None:
        """Return the file that the runtime uses, or None."""
        name = conflist.first_of(self._names())
        return self.conf_folder / name if name else None

    def _path(self) -> Path | None:
        """Return the file of the cluster's network, never a list of our own; or None."""
        names = self._names()
        others = (one for one in conflist.networks_of(names) if self.conf_folder / one != self.own_list)
        name = self.conf_name or next((one for one in others if not _is_own(self.conf_folder / one)), "")
        return self.conf_folder / name if name in names else None

    def _find_copies(self) -> list[Path]:
        """Return the lists of our own, also those that Cilium has renamed."""
        found = [path for end in ("", _TAKEN) for path in sorted(self.conf_folder.glob(f"*{conflist.LIST}{end}"))]
        return [path for path in found if _is_own(path)]

    def _drop_copies(self, *, every: bool = False) -> bool:
        """Remove lists of our own but the present one, or all; return whether there were any. Raises ConfigError."""
        copies = [path for path in self._find_copies() if every or path != self.own_list]
        for path in copies:
            _act(path, Path.unlink)
        return bool(copies)

    def _refuse_own_list(self) -> str:
        """Say why this node cannot have a list of our own; empty if it can, or is to have none."""
        names = self._names() if self.own_list else []
        if taken := next((name for name in sorted(names) if name.endswith(_TAKEN)), ""):
            return (
                f"--ownList: Cilium takes other lists away (its cni.exclusive made {self.conf_folder / taken}): set "
                f"cni.exclusive=false in Cilium's values and delete the files *{_TAKEN}, or leave out --ownList (node.ownList)"
            )
        multus = next((name for name in conflist.networks_of(names) if _plugins(self.conf_folder / name) & conflist.MULTUS), "")
        if multus:
            return (
                f"--ownList: {self.conf_folder / multus} is Multus' list, which must be the first: leave out --ownList "
                "(node.ownList), and name the network that Multus delegates to by --cniConfName (node.confName)"
            )
        return ""

    def _explain_absence(self) -> str:
        named = f"{self.conf_folder}/{self.conf_name}" if self.conf_name else str(self.conf_folder)
        if self.own_list and self.own_list.exists():
            return f"{named}: there is no network; {self.own_list.name}, a copy of the last one, stays, so that no pod escapes"
        return f"{named}: there is no network yet; the cluster's CNI writes it"

    def _copy_list(self, own: Path) -> bool:
        """Write the list of our own; return whether it changed. Raises ConfigError."""
        for _ in range(5):
            path = self._path()
            if path is None:
                raise ConfigError(f"--cniConfFolder: {self._explain_absence()}")
            before, text, single = identify_content(str(path)), _read(path), path.suffix != conflist.LIST
            is_ours = _is_own(own)
            if not (is_ours or self._written) and (own.exists() or own.is_symlink()):
                raise ConfigError(f"--ownListName: {own} exists and is not netinit's; choose another name")
            try:
                is_right = is_ours and conflist.is_copy(_read(own), text, path.name, single=single)
                new = conflist.make_copy(text, path.name, single=single)
            except ConfigError as error:
                raise ConfigError(f"{path} is not copied: {error}") from None
            if is_right or _act(own, replace_file, new.encode(), like=path, before=before):
                return not is_right
        raise ConfigError(f"{self.conf_folder}: another program keeps writing there")

    def _enter(self, into: Path | None = None) -> bool:
        """Put the entry into the cluster's list, or into this file. Raises ConfigError."""
        for _ in range(5):
            path = into or self._path()
            if path is None:
                raise ConfigError(f"--cniConfFolder: {self._explain_absence()}")
            before, text = identify_content(str(path)), _read(path)
            single = path.suffix != conflist.LIST
            try:
                if self._written and not single and conflist.is_last(text):
                    return False  # perhaps that of a newer agent
                new = conflist.with_entry(text, single=single)
            except ConfigError as error:
                raise ConfigError(f"{path} is left as it is: {error}") from None
            if new == text:
                return False
            # A symbolic link is kept: its target is written, even in another directory.
            target = path.with_suffix(conflist.LIST) if single else path.resolve()
            if single and target.exists() and not conflist.has_entry(_read(target)):  # otherwise its owner has recreated it
                raise ConfigError(f"{path} would become {target.name}, which exists; remove one of the two")
            if _act(target, replace_file, new.encode(), like=path, before=before):
                if single:
                    _act(path, Path.rename, f"{path}{_ASIDE}")
                return True
        raise ConfigError(f"{self.conf_folder}: another program keeps writing there")

    def _leave(self, path: Path) -> bool:
        text = _read(path)
        new = conflist.without_entry(text)
        if new == text:
            return False
        for suffix in conflist.SINGLE:
            aside = path.with_suffix(f"{suffix}{_ASIDE}")
            if aside.exists() and conflist.without_entry(conflist.with_entry(_read(aside), single=True)) == new:
                single = path.with_suffix(suffix)
                if not single.exists():
                    _act(single, aside.rename)
                _act(path, Path.unlink)
                return True
        return _act(path.resolve(), replace_file, new.encode(), like=path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the node's installation lock."""
        descriptor = self._lock_file()
        while identify(descriptor) != identify(str(self._lock)):  # an agent that left has deleted it meanwhile
            os.close(descriptor)
            descriptor = self._lock_file()
        try:
            yield
        finally:
            os.close(descriptor)

    def _lock_file(self) -> int:
        """Return a descriptor of the lock's file once it is locked, even if that has been deleted. Raises ConfigError."""
        try:
            self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._lock} cannot be made: {error.strerror}") from error
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor


def _read(path: Path) -> str:
    try:
        return read_regular(str(path), _MAX_BYTES, follows=True).decode()
    except UnsuitableFileError as error:
        raise ConfigError(str(error.strerror)) from None
    except OSError as error:
        if path.is_symlink() and not path.exists():
            unseen = f"{path} leads to {path.readlink()}, which this container does not see"
            raise ConfigError(f"{unseen}; mount it, or name another file") from None
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None


def _is_own(path: Path) -> bool:
    """Whether the file is a list of our own; not one that cannot be read."""
    try:
        return bool(conflist.source_of(read_regular(str(path), _MAX_BYTES).decode()))
    except (OSError, UnicodeDecodeError):
        return False


def _plugins(path: Path) -> frozenset[str]:
    try:
        return conflist.plugins_of(_read(path))
    except ConfigError:
        return frozenset()


def _mentions_us(path: Path) -> bool:
    """Whether a file that is not a list contains our name; a network without its plugin would start no pod."""
    try:
        return conflist.TYPE.encode() in read_regular(str(path), _MAX_BYTES, follows=True)
    except OSError:
        return False


def _act(path: Path, action: Callable[..., Answer], *more: Any, **how: Any) -> Answer:
    """Return what `action` does with the path. Raises ConfigError."""
    try:
        return action(path, *more, **how)
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
        raise ConfigError(f"{quote(str(path))} cannot be written: {remedy}; the old file stays") from error


def replace_file(
    path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True, like: Path | None = None, before: tuple[int, ...] = ()
) -> bool:
    """Write the file as a whole, with mode and owner of `like`, and flush it to disk if `durable`.

    Return False, and leave it as it is, if `like` is no longer as `before` (`identify_content`). Raises OSError, and leaves
    nothing behind.
    """
    new = path.with_name(f".{path.name}.netinit-{os.getpid()}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if like is not None:
                status = like.stat()
                with contextlib.suppress(PermissionError):  # without CHOWN the file belongs to root
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
                mode = status.st_mode & 0o7777
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        if before and identify_content(str(like)) != before:
            new.unlink()
            return False
        new.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return True

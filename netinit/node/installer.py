"""Install the plugin on the node: settings and executable in the runtime's directory, an entry in the runtime's list.

Every file is replaced as a whole: written next to it, flushed to disk, renamed. A full or read-only disk, or an
unreadable list, is reported and the existing files stay. One agent writes at a time (a lock in the run directory), and
files changed between reading and renaming are read again. Agents of different versions do not compete: an agent writes
its own entry once, and later only if there is none or it is not the last.

A single plugin (`.conf`) becomes a list. Because the original would still be first by name, it is renamed to a name that
runtimes ignore, and restored when the plugin is uninstalled.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from netinit.base.errors import ConfigError
from netinit.base.sanitize import quote
from netinit.kernel import identify_content
from netinit.kernel.files import UnsuitableFileError, read_regular
from netinit.node import conflist
from netinit.node.settings import InstallSettings

_MAX_BYTES = 4 << 20  # bytes of a list, or of the executable, which has 25,000
_ASIDE = ".netinit-aside"
_REMEDIES = {
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "it is read-only; name the folder that the runtime reads",
    errno.EACCES: "this process may not write there",
    errno.ENOENT: "there is no such folder; mount it, or name another",
}
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
        self._lock = Path(settings.socket).parent / "install.lock"
        self._written = False

    def install(self) -> bool:
        """Install the plugin; return whether anything changed. Raises ConfigError, and then nothing is half done."""
        with self._locked():
            changed = self._write(self.settings_file, self.settings)  # before the executable that reads them
            changed |= self._copy()
            changed |= self._enter() if self.own is None else self._write(self.own, conflist.network_of())
        self._written = True
        return changed

    def uninstall(self) -> bool:
        """Uninstall the plugin, entry first, executable last; return whether anything was there. Raises ConfigError."""
        with self._locked():
            changed = self.own is not None and self.own.exists()
            if self.own is not None and changed:
                _act(self.own, Path.unlink)
            wrong = []
            for path in sorted(self.conf_folder.glob(f"[!.]*{conflist.LIST}")) if self.conf_folder.is_dir() else ():
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

    def state(self) -> dict[str, str]:
        """Describe the state of executable and entry; an empty text means no problem."""
        path = self._path()
        found = {"executable": "", "entry": ""}
        if not self._same_executable():
            found["executable"] = f"{self.target} is missing, or another"
        elif not self.settings_file.exists():
            found["executable"] = f"{self.settings_file} is missing"
        try:
            if self.own is not None:
                found["entry"] = "" if self.own.exists() else f"{self.own} is missing"
            elif path is None:
                found["entry"] = f"{self.conf_folder} has no network yet"
            elif path.suffix != conflist.LIST or not conflist.has_entry(_read(path)):
                found["entry"] = f"{path} has no entry of netinit"
            elif not conflist.is_last(_read(path)):
                found["entry"] = f"in {path} another plugin comes after netinit's"
        except ConfigError as error:
            found["entry"] = f"{path}: {error}"
        return found

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

    def _path(self) -> Path | None:
        """Return the file of the runtime's network, or None."""
        try:
            names = [path.name for path in self.conf_folder.iterdir() if path.is_file() or path.is_symlink()]
        except OSError:
            return None
        name = self.conf_name or conflist.first_of(names)
        return self.conf_folder / name if name in names else None

    def _enter(self) -> bool:
        for _ in range(5):
            path = self._path()
            if path is None:
                named = f"{self.conf_folder}/{self.conf_name}" if self.conf_name else str(self.conf_folder)
                raise ConfigError(f"--cniConfFolder: {named}: there is no network yet; the cluster's CNI writes it")
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
        try:
            self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._lock} cannot be made: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


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
        raise ConfigError("it is not UTF-8") from None


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

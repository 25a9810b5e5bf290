"""Pods seen from outside: a network namespace that --pid or --netns names, looked into and programmed by a child.

Entering is for good, and a child's business: it leaves supplementary groups, descriptors and capabilities behind before it
reads anything of the pod, so it could not come back. One class opens, locks and enters; nobody else does.

Reading needs no right inside: the kernel lets NET_ADMIN of this machine list the rules of a namespace that belongs to
another user namespace, and lists the same numbers as inside. Only writing rules that name users (xt_owner) needs the
other user namespace itself. A child that joins it is at the mercy of its root, who may be any user of this machine; so it
is hidden from tracing, and so are its programs (netinit.kernel.memfd_exec).
"""

from __future__ import annotations

import fcntl
import posix

from netinit.base.errors import NamespaceError
from netinit.base.net import FAMILIES
from netinit.kernel import capabilities, children, detect, files, memfd_exec, namespaces, preload, read_text, run
from netinit.kernel import locks as locking
from netinit.kernel.lock_holders import describe_holders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeVar

    Result = TypeVar("Result")

NAMED = "/run/netns"
# What is done in a pod has deadlines of its own (programs, locks, probes). This one is for a child that was stopped.
SECONDS = 300.0
# However much the pod has of anything: this child and each program that it starts get no more. 200,000 rules take a quarter.
MEMORY = 2 << 30  # bytes of address space
MOST_OUTPUT = 1 << 28  # bytes that a program may print
_SECONDS_TO_READ = 10.0  # one small file, perhaps of a file system that the pod serves itself
_NS_GET_USERNS, _NS_GET_NSTYPE = 0xB701, 0xB703  # ioctl_ns(2)
_OPENING = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOCTTY


def warn_if_host(what: str) -> str:
    """The warning that a namespace is the machine's own."""
    return f"{what}, not a pod's: apply and remove change it only with --host-network"


class OpenPod:
    """The namespace of a process, or of this name or path, held open, so that all that is done is done to one and the same.

    A process is looked up once, by its folder in /proc: whatever is opened through that descriptor is of that process, and
    fails (ESRCH) once it has ended, also where another has got its number. NamespaceError says what cannot be opened.
    """

    def __init__(self, *, pid: int = 0, netns: str = "") -> None:
        self.path = f"/proc/{pid}/ns/net" if pid else netns if "/" in netns else f"{NAMED}/{netns}"
        self._pid = pid
        self._folder = -1
        self._owner = -1
        self._namespace = -1
        try:
            if pid:
                self._folder = posix.open(f"/proc/{pid}", posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
                self._namespace = posix.open("ns/net", _OPENING, dir_fd=self._folder)
            else:
                self._namespace = posix.open(self.path, _OPENING)
        except OSError as error:
            self.close()
            raise NamespaceError(f"{self.path}: {posix.strerror(error.errno or 0)}; {_what_helps(error.errno)}") from None
        if _kind(self._namespace) not in (namespaces.NETWORK, None):
            self.close()
            raise NamespaceError(f"{self.path}: is no network namespace; --netns needs a namespace's path or name")
        self._owner = _find_owner(self._namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing of the pod is held any more."""
        for descriptor in (self._folder, self._owner, self._namespace):
            if descriptor >= 0:
                posix.close(descriptor)
        self._folder = self._owner = self._namespace = -1

    def host_namespace_reason(self) -> str:
        """Why this namespace is the machine's own and no pod's; empty for a pod's."""
        mine = posix.fstat(self._namespace)
        if mine.st_ino == namespaces.FIRST:
            return "the machine's own network namespace"
        for path, what in (
            (namespaces.OWN, "the network namespace of this command itself"),
            ("/proc/1/ns/net", "the network namespace of process 1"),
        ):
            try:
                other = posix.stat(path)
            except OSError:  # of another user, or no /proc: then it is not known
                continue
            if (mine.st_dev, mine.st_ino) == (other.st_dev, other.st_ino):
                return what
        return ""

    def warn_if_host(self) -> str:
        """A warning where this namespace is the machine's own; empty for a pod's."""
        machine = self.host_namespace_reason()
        return warn_if_host(f"{self.path} leads to {machine}") if machine else ""

    def refuse_host(self) -> None:
        """NamespaceError where this is the machine's own namespace: programs of the whole machine go by its rules."""
        what = self.host_namespace_reason()
        if what:
            raise NamespaceError(
                f"{self.path} leads to {what}: its rules are for the whole machine, as with pods that have hostNetwork: true;"
                " nothing was changed. Name a process of another pod, or give --host-network if it is meant"
            )

    def read_resolv_conf(self) -> str:
        """The text of the pod's /etc/resolv.conf; empty where there is none, or no process whose root is known.

        A child without rights opens it, since the file system may be the pod's own and never answer. NamespaceError where
        it is anything but a small regular file.
        """
        if self._folder < 0:
            return read_text(detect.RESOLV_CONF)
        name = f"{detect.RESOLV_CONF} of process {self._pid}"
        try:
            root = posix.open("root", posix.O_PATH | posix.O_CLOEXEC, dir_fd=self._folder)
        except OSError as error:
            raise NamespaceError(f"{name}: its root folder cannot be opened: {error.strerror}; {_OTHERWISE}") from None
        try:
            return children.ask(
                lambda: _read_confined(root), seconds=_SECONDS_TO_READ, what=f"{name}; {_OTHERWISE}", kept=(root,)
            )
        except OSError as error:
            raise NamespaceError(f"{name} cannot be read: {error.strerror}; {_OTHERWISE}") from None
        finally:
            posix.close(root)

    def read_name_servers(self) -> list[str]:
        """The name servers of the pod. NamespaceError, as for the file."""
        return detect.name_servers(self.read_resolv_conf())

    def lock(self, nanoseconds: int, warn: Callable[[str], None]) -> Locks:
        """Waits for this machine's lock of the pod, then for the pod's own, each no longer than this.

        LockedError where another run from outside has the first. Any process of the pod can hold the second for ever, so
        it is done without once the time is over, and `warn` is called with its holder.
        """
        return Locks(self._namespace, nanoseconds, warn)

    def run_inside(
        self,
        action: Callable[[], Result],
        *,
        joins: bool = False,
        keep: tuple[int, ...] = (),
        holding: tuple[int, ...] = (),
        seconds: float = SECONDS,
    ) -> Result:
        """What `action` returned, in a child that is inside with NET_ADMIN, NET_RAW and what it is to `keep`.

        `joins`: also in the user namespace that owns the pod's, as its root. Descriptors in `holding` are open inside.
        Whatever NetinitError or OSError the action raised is raised here; NetinitError where the child was late.
        """
        return children.ask(
            lambda: self._enter_and(action, joins=joins, keep=keep),
            seconds=seconds,
            what=f"the visit to {self.path}",
            kept=(self._namespace, self._owner, *holding),
        )

    def modify_inside(
        self, action: Callable[[run.Signals], Result], signals: run.Signals, *, holding: tuple[int, ...], seconds: float = SECONDS
    ) -> Result:
        """The same for what changes the pod, as its root: a signal to this process is the child's to answer, by its `Signals`.

        ApplyError or KeyboardInterrupt where one has ended it; see `children.ask_to_the_end`.
        """
        return children.ask_to_the_end(
            lambda own: self._enter_and(lambda: action(own), joins=True, keep=()),
            signals,
            seconds=seconds,
            what=f"the visit to {self.path}",
            kept=(self._namespace, self._owner, *holding),
        )

    @property
    def is_foreign(self) -> bool:
        """Whether the namespace belongs to another user namespace than this process's."""
        return self._owner >= 0

    def enter(self, action: Callable[[], Result]) -> Result:
        """The same as `visit` in this very process, which stays inside: for a child that has nothing else to do.

        Not for a namespace that is foreign, where it would lose its rights over what it holds outside.
        """
        return self._enter_and(action, joins=False, keep=())

    def _enter_and(self, action: Callable[[], Result], *, joins: bool, keep: tuple[int, ...]) -> Result:
        """In the child: enters for good, with no more rights and room than are meant for inside, and acts."""
        preload.load()
        children.limit(MEMORY, MOST_OUTPUT)
        namespaces.enter(self._namespace, namespaces.NETWORK, self.path)
        if self._owner >= 0 and joins:
            detect.open_table_names()  # they may belong to a user who is nobody in the pod's user namespace
            memfd_exec.seal(_list_programs())
            capabilities.hide()
            namespaces.enter(self._owner, namespaces.USER, self.path)
            _become_root_inside(self.path)
            capabilities.hide()  # a change of ids may have undone it (fs.suid_dumpable)
        if self._owner >= 0 and not joins:
            _take_group_of_root_inside()
        capabilities.confine(keep)
        return action()


class Locks:
    """What a run from outside holds while it programs a pod, by `with`; `descriptors` are for its child to hold too."""

    def __init__(self, namespace: int, nanoseconds: int, warn: Callable[[str], None]) -> None:
        self._outer, self._name = locking.lock_outside(namespace, nanoseconds)
        # A description of its own: one that is shared with the namespace's descriptor would never be let go.
        self._inner = posix.open(f"/proc/self/fd/{namespace}", _OPENING)
        if not namespaces.take(self._inner, nanoseconds):
            warn(
                f"the pod's own lock is held by {describe_holders(self._inner)}: went on without it after --lock-timeout,"
                " since any process of a pod can hold it"
            )
        for descriptor in self.descriptors:  # a killed run's last change is to be done before the next run looks
            posix.set_inheritable(descriptor, True)  # noqa: FBT003 - its signature

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The locked files; their locks last until every copy is closed."""
        return tuple(descriptor for descriptor in (self._outer, self._inner) if descriptor >= 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._outer >= 0:
            posix.unlink(self._name)
        for descriptor in self.descriptors:
            posix.close(descriptor)


def _what_helps(number: int | None) -> str:
    """What helps where a namespace cannot be opened: the process runs where the kernel only refuses to show it."""
    if number in _REFUSED:
        from netinit.kernel.runtime_environment import PERSON, find_situation

        rights = "run it as root (sudo)" if find_situation() == PERSON else "it wants root with SYS_PTRACE and SYS_ADMIN on the node"
        return f"other users' namespaces are root's to enter: {rights}"
    return "--pid wants a running process, --netns a namespace's path or name"


_REFUSED = (1, 13)  # EPERM, EACCES
_OTHERWISE = "name the servers with --dns-servers"


def _kind(descriptor: int) -> int | None:
    """The CLONE_ flag of a namespace's kind, 0 for what is no namespace; None where the kernel does not say (before 4.11)."""
    try:
        return int(fcntl.ioctl(descriptor, _NS_GET_NSTYPE))
    except OSError:
        of_namespaces = posix.stat(namespaces.OWN).st_dev
        return None if posix.fstat(descriptor).st_dev == of_namespaces else 0


def _find_owner(namespace: int) -> int:
    """A descriptor of the user namespace that owns this one, unless it is this process's; else -1."""
    try:
        owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    except OSError:
        return -1  # not ours to see (EPERM), or a kernel before 4.9: entering it shows the rest
    theirs, ours = posix.fstat(owner), posix.stat("/proc/self/ns/user")
    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
        posix.close(owner)
        return -1
    return int(owner)


def _read_confined(root: int) -> str:
    preload.load()
    capabilities.confine()
    return files.read_in_root(root, detect.RESOLV_CONF)


def _list_programs() -> list[str]:
    """The installed programs that backends start."""
    kinds = [(variant, family) for variant in (detect.NFT, detect.LEGACY) for family in FAMILIES]
    paths = [detect.find_program(*kind, action) for kind in kinds for action in ("save", "restore")]
    return [path for path in (*paths, run.find("ipset")) if path]


def _become_root_inside(path: str) -> None:
    try:
        posix.setresgid(0, 0, 0)
        posix.setresuid(0, 0, 0)
    except OSError as error:
        raise NamespaceError(
            f"{path}: the user namespace of the pod has no root ({error.strerror}), so rules that name users cannot be written"
        ) from None


def _take_group_of_root_inside() -> None:
    """The group that may read the names of legacy tables, which belong to root of the other user namespace."""
    try:
        group = posix.stat("/proc/self/net/ip_tables_names").st_gid
        posix.setresgid(group, group, group)
    except OSError:  # no legacy tables in this kernel; or without SETGID, and then the names cannot be read
        return

"""Read and program a pod's network namespace from outside.

Only `OpenPod` opens, locks and enters namespaces of pods, in children that drop groups, descriptors and capabilities first.
With NET_ADMIN on the machine the kernel lists the rules of any namespace; only rules that match users (xt_owner) must be
written from the pod's user namespace. Its root could trace a child that joins it, so that child is hidden from ptrace, and
starts no programs.
"""

from __future__ import annotations

from netinit.base.errors import NamespaceError, NoNamespaceError
from netinit.base.system import fcntl, posix
from netinit.kernel import Closing, capabilities, children, detect, files, identify, namespaces, preload, run
from netinit.kernel.processes import describe_holders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeVar

    Result = TypeVar("Result")

NAMED = "/run/netns"
FOLDER = "/run/netinit"  # directory of this machine's locks of pods
_PRIVATE_FOLDER = 0o040700
# Locks and probes have deadlines of their own; this one is for a child that was stopped (SIGSTOP).
SECONDS = 300.0
# Limits for this child, whatever the size of the pod's rules. 200,000 rules take a quarter.
MEMORY = 2 << 30  # bytes of address space
MAX_OUTPUT = 1 << 28  # bytes that it may write to a file
_REFUSED = (1, 13)  # EPERM, EACCES
_SECONDS_TO_READ = 10.0  # one small file, perhaps on a file system that the pod serves itself
NS_GET_USERNS, NS_GET_NSTYPE = 0xB701, 0xB703  # ioctl_ns(2)
_NO_DIRECTION = {"ppc64le": 1 << 29}  # _IOC_NONE of asm/ioctl.h in a request, by machine; elsewhere 0
_OPENING = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOCTTY


def warn_if_host(what: str) -> str:
    """Return the warning that a namespace is the machine's own."""
    return f"{what}, not a pod's: apply and remove change it only with --host-network"


class OpenPod:
    """A network namespace given by process id, name or path; every operation uses the same open descriptor.

    The process is looked up once: its files fail with ESRCH after it has exited, even if its id is reused. `stays`: actions
    run in this process, which stays inside, unless the namespace is foreign: then it would lose its privileges over
    descriptors from outside. Raises NamespaceError.
    """

    def __init__(self, *, pid: int = 0, netns: str = "", stays: bool = False) -> None:
        self.path = f"/proc/{pid}/ns/net" if pid else netns if "/" in netns else f"{NAMED}/{netns}"
        self._pid = pid
        self._folder = -1
        self._owner = -1
        self._namespace = -1
        self._locks: Locks | None = None
        try:
            if pid:
                self._folder = posix.open(f"/proc/{pid}", posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
                self._namespace = posix.open("ns/net", _OPENING, dir_fd=self._folder)
            else:
                self._namespace = posix.open(self.path, _OPENING)
        except OSError as error:
            self.close()
            raise NamespaceError(f"{self.path}: {posix.strerror(error.errno or 0)}; {_suggest(error.errno)}") from None
        if _kind(self._namespace) not in (namespaces.NETWORK, None):
            self.close()
            raise NoNamespaceError(f"{self.path}: is not a network namespace; --netns needs a namespace's path or name")
        self._owner = _find_owner(self._namespace)
        self._stays = stays and self._owner < 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every descriptor."""
        for descriptor in (self._folder, self._owner, self._namespace):
            if descriptor >= 0:
                posix.close(descriptor)
        self._folder = self._owner = self._namespace = -1

    @property
    def descriptor(self) -> int:
        """The open namespace."""
        return self._namespace

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode number of the namespace."""
        return identify(self._namespace) or (0, 0)

    def host_namespace_reason(self) -> str:
        """Return why this namespace is the machine's own; empty if it is a pod's."""
        if self.identity[1] == namespaces.FIRST:
            return "the machine's own network namespace"
        if self.identity == identify(namespaces.OWN):
            return "the network namespace of this command itself"
        # of another user's process, or without /proc, nothing is known
        return "the network namespace of process 1" if self.identity == identify("/proc/1/ns/net") else ""

    def warn_if_host(self) -> str:
        """Return a warning if this namespace is the machine's own; empty if it is a pod's."""
        machine = self.host_namespace_reason()
        return warn_if_host(f"{self.path} leads to {machine}") if machine else ""

    def refuse_host(self) -> None:
        """Raise NamespaceError if this is the machine's own namespace."""
        what = self.host_namespace_reason()
        if what:
            raise NamespaceError(
                f"{self.path} leads to {what}: its rules are for the whole machine, as with pods that have hostNetwork: true;"
                " nothing was changed. Name a process of another pod, or give --host-network if you mean this one"
            )

    def read_resolv_conf(self) -> str:
        """Return the pod's /etc/resolv.conf; this process's own if the pod was not given by a process id.

        A child without privileges opens it, because the pod's file system may never answer. Raises NamespaceError if it is
        not a small regular file.
        """
        if self._folder < 0:
            return detect.read_resolv_conf()
        name = f"{detect.RESOLV_CONF} of process {self._pid}"
        try:
            root = posix.open("root", posix.O_PATH | posix.O_CLOEXEC, dir_fd=self._folder)
        except OSError as error:
            raise NamespaceError(f"{name}: its root folder cannot be opened: {error.strerror}; {detect.WITHOUT_RESOLV_CONF}") from None
        with Closing(root):
            try:
                what = f"{name}; {detect.WITHOUT_RESOLV_CONF}"
                return children.ask(lambda: _read_confined(root), seconds=_SECONDS_TO_READ, what=what, kept=(root,))
            except OSError as error:
                raise NamespaceError(f"{name} cannot be read: {error.strerror}; {detect.WITHOUT_RESOLV_CONF}") from None

    def read_name_servers(self) -> list[str]:
        """Return the pod's name servers. Raises the errors of `read_resolv_conf`."""
        return detect.name_servers(self.read_resolv_conf())

    def lock(self, nanoseconds: int, warn: Callable[[str], None]) -> Locks:
        """Acquire the machine's lock for this pod, then the pod's own, waiting up to `nanoseconds` for each.

        Raises LockedError if another run has the first. Any process of the pod can hold the second forever, so after the
        timeout `warn` gets the holder and the run continues. Children inherit the locks.
        """
        self._locks = Locks(self._namespace, nanoseconds, warn)
        return self._locks

    def run_inside(
        self,
        action: Callable[[], Result],
        *,
        joins: bool = False,
        keep: tuple[int, ...] = (),
        holding: tuple[int, ...] = (),
    ) -> Result:
        """Run `action` inside the pod, with NET_ADMIN, NET_RAW and the capabilities in `keep`; return its result.

        `joins`: also join the namespace's user namespace, as root. `holding`: descriptors to keep open. Raises NetinitError
        (also on a timeout) and OSError of the action.
        """
        if self._stays:
            return self._enter_and(action, joins=joins, keep=keep)
        return children.ask(
            lambda: self._enter_and(action, joins=joins, keep=keep),
            seconds=SECONDS,
            what=f"entering {self.path}",
            kept=self._kept + holding,
        )

    @property
    def is_foreign(self) -> bool:
        """Whether the namespace belongs to another user namespace than this process's."""
        return self._owner >= 0

    def pass_through(self, action: Callable[[], Result], permitted: int) -> Result:
        """Enter the namespace for `action`, in a process that enters others after it; return the action's result.

        `permitted`: this process's capabilities, as bits. SYS_ADMIN is effective only while entering.
        """
        capabilities.use(permitted, permitted)
        namespaces.enter(self._namespace, namespaces.NETWORK, self.path)
        capabilities.use(permitted & ~(1 << detect.CAP_SYS_ADMIN), permitted)
        return action()

    def modify_inside(
        self,
        action: Callable[[run.Signals], Result],
        signals: run.Signals,
        *,
        holding: tuple[int, ...] = (),
        seconds: float = SECONDS,
    ) -> Result:
        """Run `action`, which changes the pod, as root of the pod's user namespace; return its result.

        The action gets its process's `Signals`. Raises the errors of `children.ask_with_signals`.
        """
        if self._stays:
            return self._enter_and(lambda: action(signals), joins=True, keep=())
        return children.ask_with_signals(
            lambda own: self._enter_and(lambda: action(own), joins=True, keep=()),
            signals,
            seconds=seconds,
            what=f"entering {self.path}",
            kept=self._kept + holding,
        )

    @property
    def _kept(self) -> tuple[int, ...]:
        return self._namespace, self._owner, *(self._locks.descriptors if self._locks else ())

    def _enter_and(self, action: Callable[[], Result], *, joins: bool, keep: tuple[int, ...]) -> Result:
        """Enter the namespace for good with only the capabilities and memory needed inside; run `action`."""
        preload.load()
        children.limit(MEMORY, MAX_OUTPUT)
        namespaces.enter(self._namespace, namespaces.NETWORK, self.path)
        if self._owner >= 0 and joins:
            detect.open_table_names()  # they may belong to a user that the pod's user namespace does not map
            run.seal()
            capabilities.hide()
            namespaces.enter(self._owner, namespaces.USER, self.path)
            _become_root_inside(self.path)
            capabilities.hide()  # a change of ids may have reset it (fs.suid_dumpable)
        if self._owner >= 0 and not joins:
            _take_group_of_root_inside()
        capabilities.confine(keep)
        return action()


class Locks:
    """The locks of a run from outside, as a context manager."""

    def __init__(self, namespace: int, nanoseconds: int, warn: Callable[[str], None]) -> None:
        self._outer, self._name = _lock_outside(namespace, nanoseconds)
        # A separate open file description: a lock on one shared with the namespace's descriptor would never be released.
        self._inner = posix.open(f"/proc/self/fd/{namespace}", _OPENING)
        if not namespaces.take(self._inner, nanoseconds):
            warn(
                f"the pod's own lock is held by {describe_holders(self._inner)}: continued without it after --lock-timeout,"
                " since any process of a pod can hold it"
            )

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The locked files; a lock lasts until every copy is closed."""
        return tuple(descriptor for descriptor in (self._outer, self._inner) if descriptor >= 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._outer >= 0:
            posix.unlink(self._name)
        for descriptor in self.descriptors:
            posix.close(descriptor)
        self._outer = self._inner = -1


def _lock_outside(namespace: int, nanoseconds: int) -> tuple[int, str]:
    """Acquire this machine's lock of a pod, where no pod can open it; return descriptor and path, -1 if impossible.

    The file is named after the namespace and deleted after the run: a process that waited for a deleted file tries the next
    one. Raises LockedError with the holder.
    """
    status = posix.fstat(namespace)
    path = f"{FOLDER}/{status.st_dev}-{status.st_ino}.lock"
    if not _make_folder():
        return -1, ""
    while True:
        descriptor = files.open_lock_file(path)
        namespaces.take_or_refuse(descriptor, nanoseconds, "the pod is being programmed by", namespaces.LATER)
        try:
            if posix.stat(path).st_ino == posix.fstat(descriptor).st_ino:
                return descriptor, path
        except FileNotFoundError:
            pass  # the previous holder has deleted it
        posix.close(descriptor)


def _make_folder() -> bool:
    """Create the directory for root only; return whether it exists. Raises NamespaceError if it is another user's."""
    try:
        posix.mkdir(FOLDER, 0o700)
    except FileExistsError:
        status = posix.lstat(FOLDER)
        if status.st_mode != _PRIVATE_FOLDER or status.st_uid != posix.geteuid():
            raise NamespaceError(
                f"{FOLDER} is not a folder of mode 0700 of uid {posix.geteuid()}, so locks in it prove nothing:"
                " see who made it, and remove it"
            ) from None
    except OSError:  # a read-only root, or no permission: the pod's own lock must suffice
        return False
    return True


def _suggest(number: int | None) -> str:
    if number in _REFUSED:
        is_person = capabilities.find_situation() == capabilities.PERSON
        rights = "run it as root (sudo)" if is_person else "it needs root with SYS_PTRACE and SYS_ADMIN on the node"
        return f"other users' namespaces are root's to enter: {rights}"
    return "--pid needs a running process, --netns a namespace's path or name"


def request_of(number: int, machine: str) -> int:
    """Return a request of ioctl(2) that has no argument, as the machine (of uname(2)) encodes it."""
    return number | _NO_DIRECTION.get(machine, 0)


def _kind(descriptor: int) -> int | None:
    """Return the CLONE_ flag of a namespace's kind, 0 for anything else, None if the kernel cannot say (before 4.11)."""
    try:
        return int(fcntl.ioctl(descriptor, request_of(NS_GET_NSTYPE, posix.uname().machine)))
    except OSError:
        of_namespaces = posix.stat(namespaces.OWN).st_dev
        return None if posix.fstat(descriptor).st_dev == of_namespaces else 0


def _find_owner(namespace: int) -> int:
    """Return a descriptor of the owning user namespace; -1 if it is this process's own or unknown."""
    try:
        owner = fcntl.ioctl(namespace, request_of(NS_GET_USERNS, posix.uname().machine))
    except OSError:
        return -1  # not permitted (EPERM), or a kernel before 4.9: entering shows the rest
    if identify(owner) == identify("/proc/self/ns/user"):
        posix.close(owner)
        return -1
    return int(owner)


def _read_confined(root: int) -> str:
    preload.load()
    capabilities.confine()
    return files.read_in_root(root, detect.RESOLV_CONF)


def _become_root_inside(path: str) -> None:
    try:
        posix.setresgid(0, 0, 0)
        posix.setresuid(0, 0, 0)
    except OSError as error:
        raise NamespaceError(
            f"{path}: the user namespace of the pod has no root ({error.strerror}), so rules that name users cannot be written"
        ) from None


def _take_group_of_root_inside() -> None:
    """Switch to the group that may read the names of legacy tables: root's in the other user namespace."""
    try:
        group = posix.stat("/proc/self/net/ip_tables_names").st_gid
        posix.setresgid(group, group, group)
    except OSError:  # no legacy tables in this kernel; or no SETGID, and then the names cannot be read
        return

"""What operations need of a machine: privileges, locks, addresses, routes, backends. Tests replace `HERE`."""

from __future__ import annotations

from _socket import if_indextoname

from netinit import backends
from netinit.backends import Lock
from netinit.kernel import Closing, detect, namespaces, netlink
from netinit.options import Facts, Options, SettledOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import ModuleType
    from typing import TypeVar

    from netinit.base.snapshot import Snapshot
    from netinit.kernel.plain_namespace import KnownChains

    Result = TypeVar("Result")


class Machine:
    """The machine and this process's namespace; `link` lists and changes policy rules, routes and addresses."""

    link: ModuleType = netlink
    stays = False  # whether this process itself enters pods
    cgroup = "", ""  # where cgroups are mounted, and the pod's there; empty: found by its processes
    has_capability = staticmethod(detect.has_capability)
    refuse_own_namespace = staticmethod(namespaces.refuse_host)
    occupied = staticmethod(backends.populated)
    load = staticmethod(backends.load)

    def lock(self, nanoseconds: int) -> Lock | Closing:
        """Acquire the lock of this process's network namespace for one run, as a context manager. Raises LockedError."""
        return Closing(namespaces.lock(nanoseconds))

    def settle(self, options: Options, servers: Sequence[str] | None = None) -> SettledOptions:
        """Return the options settled for this pod's addresses and name servers; with a pid, `NamedPod` has read the latter."""
        read = detect.known_name_servers if options.pid else detect.read_name_servers
        if servers is not None:
            read = lambda: servers  # noqa: E731
        return options.settle(Facts(kernel_families=detect.kernel_families(), list_addresses=detect.list_addresses, read_servers=read))

    def renamed_loopback(self) -> str:
        """Return the loopback device's name if it is not lo, else ""."""
        name = if_indextoname(netlink.LOOPBACK_INDEX)
        return "" if name == "lo" else name

    def dormant_tables(self) -> tuple[tuple[int, str], ...]:
        """Return family and name of dormant nf_tables tables."""
        try:
            return netlink.list_dormant_tables()
        except OSError:  # without nf_tables, or without NET_ADMIN, which is reported where chains are listed
            return ()

    def set_dormant(self, family: int, table: str, *, dormant: bool) -> None:
        """Set or clear the dormant flag of a table. Raises OSError."""
        from netinit.kernel.nf_tables import set_dormant  # rarely needed

        set_dormant(family, table, dormant=dormant)

    def read_snapshot(self) -> Snapshot | None:
        """Read everything that affects packets; None without a kernel. Raises OSError."""
        from netinit.kernel.snapshot.reader import read_snapshot  # not needed when a pod starts

        return read_snapshot()

    def read_numbers(self) -> tuple[int, int] | None:
        """Return the cookie of this namespace and the generation of its nf_tables; None where the kernel has none."""
        from netinit.kernel.snapshot import reader  # not needed when a pod starts

        try:
            return reader.read_numbers()
        except OSError:
            return None

    def read_beside_nf_tables(self) -> Snapshot:
        """Read everything that affects packets but nf_tables. Raises OSError."""
        from netinit.kernel.snapshot import reader  # not needed when a pod starts

        return reader.read_beside_nf_tables([])

    def is_plain(
        self, known: KnownChains, *, tables: Collection[int], addresses: Collection[str], excluded: Collection[str],
        own_legacy: bool, sure: bool,
    ) -> bool:  # fmt: skip
        """Whether only these chains affect packets: see netinit.kernel.plain_namespace. Raises OSError."""
        from netinit.kernel import plain_namespace

        return plain_namespace.is_plain(
            known, tables=tables, addresses=addresses, excluded=excluded, own_legacy=own_legacy, sure=sure
        )

    def inside(
        self,
        options: Options,
        action: Callable[[Options, str], Result],
        *,
        joins: bool = False,
        keep: tuple[int, ...] = (),
        locks: Callable[[str], None] | None = None,
        hold: Callable[[int], tuple[int, ...]] = lambda _: (),
    ) -> Result:
        """Run the action in the pod that the options name; with `locks`, which gets warnings, hold the pod's locks.

        `hold` gets a foreign namespace's descriptor, and returns descriptors that stay open inside. The action gets the options
        with the pod's name servers, and a warning or "". Raises NamespaceError, LockedError.
        """
        from netinit.backends.named_pod import NamedPod
        from netinit.kernel.open_pod import warn_if_host
        from netinit.kernel.snapshot import bpf

        if not (options.pid or options.netns):
            warning = warn_if_host("this is the machine's own network namespace") if namespaces.is_machine() else ""
            with self.lock(options.lock_timeout) if locks else Lock():
                return action(options, warning)
        with NamedPod(options, stays=self.stays) as pod, pod.lock(options.lock_timeout, locks) if locks else Lock():
            warning = pod.warn_if_host()
            programs = bpf.of_folder(*self.cgroup) if self.cgroup[1] else bpf.of_processes(pod.identity)

            def act() -> Result:
                bpf.remember(programs)
                return action(pod.options, warning)

            return pod.run_inside(act, joins=joins, keep=keep, holding=hold(pod.descriptor))


HERE = Machine()

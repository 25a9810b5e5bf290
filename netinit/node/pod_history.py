"""What the agent remembers of a pod from one look to the next: what it has reported, and how often the pod's rules change.

nf_tables counts its transactions (NFTA_GEN_ID), so that a change which was undone before a look is known as well. What
legacy iptables, BPF programs and sysctls do in between leaves no trace. Pure: callers pass the time.
"""

from __future__ import annotations

from dataclasses import dataclass

SURE = 2  # looks in a row without an answer until it is reported: one may have met a pod that is just being changed
QUIET = 60.0  # seconds between two reports of a pod's changes
# A program that sets up a pod's rules makes some dozen changes within seconds, once. A pod changes again and again with MANY
# changes over at least SPAN seconds, in LOOKS looks with SPACING seconds between them, and without a pause of QUIET.
MANY, LOOKS, SPACING, SPAN = 10, 4, 2.0, 10.0
SILENCE = 600.0  # seconds between two reports that it still does
_MASK = 0xFFFFFFFF  # a generation has 32 bits

Namespace = tuple[int, int]  # device and inode


@dataclass(slots=True)
class PodHistory:
    """The history of one pod; times are those of time.monotonic()."""

    state: str = ""  # what the last look found, or made of it; empty where nothing is known
    reported: str = ""  # the state that was reported last, with its detail
    unknown: int = 0  # looks in a row that could not answer
    _namespace: Namespace | None = None
    _generation: int = 0
    _looked: float = 0.0  # the last look with an answer
    _was_planned: bool = False  # what it found
    _undone: int = 0  # changes after which the rules were as planned, not reported yet
    _since: float = 0.0  # the look before the first of these
    _told: float = -QUIET
    # The series of changes: number of changes and of looks that found some, its first, last counted and last look, its report
    _changes: int = 0
    _looks: int = 0
    _begun: float = 0.0
    _counted: float = 0.0
    _last: float = 0.0
    _told_series: float = -SILENCE

    def note_look(self, namespace: Namespace | None, generation: int, now: float, *, planned: bool, woken: bool) -> int:
        """Note a look that was answered; return how often nf_tables has changed since the one before.

        `planned`: the rules are as planned. `woken`: a notification was the reason, so something has changed at least once.
        """
        is_known = namespace is not None and namespace == self._namespace
        changes = (generation - self._generation) & _MASK if is_known and generation and self._generation else 0
        if changes and planned and self._was_planned:
            self._since = self._since if self._undone else self._looked
            self._undone += changes
        if is_known:
            self._note_series(changes or int(woken), now)
        self._namespace, self._generation, self._looked, self._was_planned = namespace, generation, now, planned
        return changes

    def _note_series(self, changes: int, now: float) -> None:
        if not changes:
            return
        if self._last != self._looked and now - self._last > QUIET:
            self._changes = self._looks = 0
        if not self._looks:
            self._begun = now
        if not self._looks or now - self._counted >= SPACING:
            self._looks, self._counted = self._looks + 1, now
        self._changes, self._last = self._changes + changes, now

    def forget_rules(self) -> None:
        """Forget which rules were there: the agent has changed them itself."""
        self._namespace, self._undone = None, 0

    def take_undone(self, now: float) -> tuple[int, float]:
        """Return the number of undone changes to report now and the seconds that they took; 0 if there are none, or too early."""
        if not self._undone or now - self._told < QUIET:
            return 0, 0.0
        found = self._undone, now - self._since
        self._undone, self._told = 0, now
        return found

    def take_series(self, now: float) -> tuple[int, float]:
        """Return the number of changes of a pod that changes again and again, and the seconds; 0 if it does not, or is reported."""
        seconds = self._last - self._begun
        if self._last != now or self._changes < MANY or self._looks < LOOKS or seconds < SPAN or now - self._told_series < SILENCE:
            return 0, 0.0
        self._told_series = now
        return self._changes, seconds

"""What a comparison of live rules with their plan found, as a value: all that the agent keeps of one. Pure."""

from __future__ import annotations

from netinit.base.records import Record
from netinit.rules.model import Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.live.recipients import Recipient
    from netinit.questions.release_comparison import ReleaseComparison

DOUBT = "doubt"  # kind of a difference, counted where `strict`


class SeenState(Record):
    """What the kernel was when a report was made, as far as the kernel numbers its changes, and the rest of that report.

    `namespace`: its cookie (SO_NETNS_COOKIE), which no other namespace ever has. `generation`: of nf_tables. `digest`: of
    everything else that the report follows from.
    """

    namespace: int
    generation: int
    digest: str
    backend: str = ""
    ours: bool = True
    warnings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class Judgement(Record):
    """Differences from the plan and warnings, and the digest of all that they follow from."""

    digest: str
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    seen: SeenState | None = None  # None: it takes the rules themselves to know whether they are the same


class Report(Record):
    """The backend whose rules were compared, the plan, and every difference."""

    backend: str
    plan: Plan
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...] = ()
    ours: bool = True  # False: there is no rule of ours at all
    doubts: tuple[str, ...] = ()  # warnings about captured packets that foreign rules drop or may redirect
    judgement: Judgement | None = None  # differences and warnings, for the next check of the namespace
    older: ReleaseComparison | None = None  # if the rules are those of an earlier release of Istio
    listening: tuple[Recipient, ...] = ()  # what is wrong with who listens; empty if it was not asked
    generation: int = 0  # of nf_tables, of the rules that were judged; 0: it is not known

    def with_doubts(self) -> Report:
        """Return the report with its doubts as differences."""
        doubts = tuple([Difference(kind=DOUBT, where="kernel", rule=text) for text in self.doubts])
        return self.replace(differences=self.differences + doubts)

"""The session's side of truncation: send the worker, then let a job put the rewritten file in place.

The swap syncs and reads, so it is no handler's work; mail waits while the file is in the job's hands.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from perdure.actors.messages import Truncate, Truncated
from perdure.edges.session.facts import Opened
from perdure.edges.session.rewrite import Prepared, discard
from perdure.edges.session.rewrite import Truncated as Report
from perdure.errors import PerdureError
from perdure.kernel.outcome import Cancelled, Failed, Outcome, Returned, describe

if TYPE_CHECKING:
    from perdure.actors.session import Session


class Truncating:
    """One at most for a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.under_way = False

    def consider(self) -> None:
        """After a compaction: move what is covered, where that is enough to be worth it."""
        services = self.session.services
        enough = self.session.transcript.covered_bytes >= services.truncate_after
        if enough and services.truncates and not self.under_way:
            self.under_way = self.session.submit(
                "truncation",
                Truncate(self.session.key, self.session.held),
                lambda outcome: Truncated(None, describe(outcome)),
            )

    def ready(self, mail: Truncated) -> None:
        """The rewritten file is made: put it in place, appends since then included."""
        if not self.under_way:  # for the session before `/new`, or for one that crashed
            if mail.prepared is not None:
                discard(mail.prepared)
            return
        if mail.prepared is None:
            self._skipped(mail.why)
            return
        swap = partial(self.session.transcript.swap, mail.prepared)
        self.session.opening.with_file(swap, partial(self._swapped, mail.prepared))

    def _swapped(self, prepared: Prepared, outcome: Outcome) -> None:
        match outcome:
            case Returned((Report() as report, opened)):
                self._placed(report, opened)
            case Failed(PerdureError() as error):
                self.session.not_written(error)
                self._skipped(str(error))
            case Cancelled():  # before it began
                discard(prepared)
                self._skipped("the host is stopping")
            case _:  # half done, perhaps: only the file can tell, so it is opened anew
                self._skipped(describe(outcome))
                self.session.lost = True

    def _placed(self, report: Report, opened: Opened | None) -> None:
        self.under_way = False
        if opened is None:
            self._skipped(report.reason)
            return
        try:
            self.session.transcript.swapped(opened)
        except PerdureError as error:
            self.session.not_written(error)
        self.session.notice("truncation", report.line())

    def _skipped(self, why: str) -> None:
        self.under_way = False
        self.session.services.log("truncation.skipped", session=self.session.key, why=why)

"""What the journal is told of one session file: a run of bytes of ours, and where it had to begin anew."""

from __future__ import annotations

from perdure.edges.journal.journal import Journal


class Run:
    """For the owner of one file. `end`: up to there the file is durable, or in the journal.

    What isn't ours stands in no journal: before the first line of ours behind foreign bytes the file itself
    is synced (in the thread that commits), and a barrier says so. `fresh`: the journal may still hold what
    was written before this waking.
    """

    __slots__ = ("_end", "_fresh", "_path", "journal")

    def __init__(self, journal: Journal, path: str, end: int, *, fresh: bool) -> None:
        self.journal, self._path, self._end = journal, path, end
        self._fresh = fresh  # what an earlier waking has written is not to be put together with this

    def appended(self, offset: int, data: bytes) -> None:
        """These bytes stand in the file now."""
        if offset != self._end:
            self.journal.barrier(self._path, sync=True)
        elif self._fresh:
            self.journal.barrier(self._path, sync=False)
        self._fresh = False
        self.journal.appended(self._path, offset, data)
        self._end = offset + len(data)

    def void(self) -> None:
        """The file is about to be rewritten: its bytes are made durable first. Blocking.

        Raises `StorageFailed`: then it must stay as it is.
        """
        self.journal.settle(self._path, sync=True)
        self._end = -1

    def left(self) -> None:
        """The file was closed, and is durable."""
        self.journal.barrier(self._path, sync=False)

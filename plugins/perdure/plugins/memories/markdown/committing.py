"""Bringing a consolidation to the files: all of it or nothing, for a kill, a full disk and other writers.

The plan is written down first, then the line is appended, the old MEMORY.md is kept, the new one is renamed
into its place, and last the cursor moves. What raises before the rename is taken back; a kill in between is
finished at the next call. Consolidations of one workspace wait for each other, read MEMORY.md again, and
merge. Blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from perdure.edges import disk
from perdure.plugins.memories.markdown import files
from perdure.plugins.memories.markdown.asking import Update, entry
from perdure.plugins.memories.markdown.files import HISTORY, MEMORY
from perdure.plugins.memories.markdown.lines import merge
from perdure.plugins.memories.markdown.store import Batch, Beside, Plan

KEPT = 20
"""So many earlier versions of an agent's MEMORY.md are kept."""

TRIES = 5
_LOCKS = tuple(threading.Lock() for _ in range(64))  # striped by workspace


class Files:
    """One for a memory: `beside` holds plans and cursors, `preimages` earlier versions of MEMORY.md."""

    def __init__(self, beside: Beside, preimages: Path, *, sync: bool) -> None:
        self._beside, self._preimages, self._sync = beside, preimages, sync

    def commit(self, root: Path, batch: Batch, base: str, update: Update, now: int) -> bool:
        """Store an update that was made from `base`; False if its messages are done already.

        Raises `OSError` or `PerdureError`: then nothing has changed.
        """
        with lock(root):
            self._recover(root, batch.agent)
            size = files.size_of(root, HISTORY)
            text = entry(update, batch.mark, now, batch.trust)
            plan = Plan(batch, base, self._beside.marked(batch, base, update.memory), text, size, now)
            if not self._beside.plan(root, plan):
                return False
            try:
                written = self._apply(root, plan)
            except files.Unsynced:
                raise  # both files are new: finished at the next call
            except Exception:
                files.take_back(root, HISTORY, plan.history, plan.size)
                self._beside.dropped(plan)
                raise
            self._beside.done(plan, written)
            return True

    def recover(self, root: Path, agent: str) -> None:
        """Finish what a kill has interrupted. Raises `OSError` or `PerdureError`."""
        if self._beside.plans(agent, root):
            with lock(root):
                self._recover(root, agent)

    def rewrite(self, root: Path, agent: str, change: Callable[[str, str], tuple[str, int]]) -> list[int]:
        """Change MEMORY.md, HISTORY.md and the kept versions by `change(name, text)`; how much it counted in
        each.
        """
        with lock(root):
            self._recover(root, agent)
            counts = [self._rewrite(root, name, change) for name in (MEMORY, HISTORY)]
            folder = self.folder(agent)
            kept = sorted(folder.iterdir()) if folder.is_dir() else []
            return [*counts, sum(self._rewrite(folder, path.name, change) for path in kept)]

    def folder(self, agent: str) -> Path:
        """Where earlier versions of an agent's MEMORY.md are."""
        return self._preimages / blake2b(agent.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def _recover(self, root: Path, agent: str) -> None:
        for plan in self._beside.plans(agent, root):
            self._beside.done(plan, self._apply(root, plan))

    def _apply(self, root: Path, plan: Plan) -> str:
        """Bring both files to what is planned, wherever they stand; the text of MEMORY.md then."""
        files.append(root, HISTORY, plan.history, plan.size, sync=self._sync)
        for _ in range(TRIES):
            current = files.text_of(root, MEMORY)
            wanted = current if plan.memory == plan.base else merge(plan.base, plan.memory, current)
            if wanted == current:
                return current
            self._keep(plan, current)
            try:
                files.replace(root, MEMORY, wanted, current, sync=self._sync)
            except files.Changed:
                continue
            return wanted
        raise files.Changed(f"{root / MEMORY}: is written all the time; it is tried again later")

    def _keep(self, plan: Plan, text: str) -> None:
        if not text.strip():
            return
        folder = self.folder(plan.batch.agent)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{plan.at:015d}-{plan.batch.mark}.md"
        disk.unlink(path, missing_ok=True)
        disk.make(path, text.encode("utf-8", "replace"))
        for old in sorted(folder.iterdir())[:-KEPT]:
            disk.unlink(old, missing_ok=True)

    def _rewrite(self, root: Path, name: str, change: Callable[[str, str], tuple[str, int]]) -> int:
        text = files.text_of(root, name)
        new, count = change(name, text)
        if new != text:
            files.replace(root, name, new, text, sync=self._sync)
        return count


def lock(root: Path) -> threading.Lock:
    """Of a workspace; two may share one, which costs a wait and nothing else."""
    return _LOCKS[hash(str(root.resolve())) % len(_LOCKS)]

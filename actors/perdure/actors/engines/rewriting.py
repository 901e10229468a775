"""`rewrite_transcript_entries` for `maintain`: done by the session itself, which alone writes its file."""

from __future__ import annotations

from functools import partial

from perdure.actors.messages import Rewrite, Snapshot
from perdure.actors.services import Services
from perdure.contracts import Replacement, Rewritten
from perdure.edges.session.rewriting import rewrite_entries
from perdure.errors import PerdureError
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.waiter import Waiter


class Rewriter:
    """For one call of `maintain`; after it, it refuses."""

    def __init__(self, services: Services, view: Snapshot) -> None:
        self._services, self._view = services, view

    async def __call__(self, replacements: tuple[Replacement, ...]) -> Rewritten:
        """What was done; a session that can't be changed now says why, and nothing is changed."""
        services, key = self._services, self._view.key
        if not replacements:
            return Rewritten(False, reason="no replacements requested")
        done: Waiter[Rewritten] = services.clock.waiter(f"{key}: a rewritten transcript")
        services.mail(key, Rewrite(partial(rewrite_entries, replacements=replacements), done))
        try:
            return await services.clock.wait(done, services.timing.engine)
        except (PerdureError, DeadlineExceeded) as error:
            return Rewritten(False, reason=str(error))

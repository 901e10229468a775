"""The supervision tree as data: which pools of workers a host runs, and how wide each is.

One for one at the root; pools are keyed by session (serial per session, any free worker), so that one
slow summary blocks nobody else. Their crashes, retries and circuit breakers are the kernel's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from perdure.actors.after_turn import after_turn
from perdure.actors.capture import capture
from perdure.actors.compaction import compact
from perdure.actors.flush import flush
from perdure.actors.ingest import ingest
from perdure.actors.messages import Compact, Flush
from perdure.actors.services import Services
from perdure.actors.truncation import truncate
from perdure.actors.urgency import band
from perdure.kernel.kernel import Kernel
from perdure.kernel.pool import Place, Pool

Worker = Callable[[Services, str, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One pool: its worker, how many work at once (`None`: as configured), how many messages may wait."""

    name: str
    worker: Worker
    workers: int | None
    bound: int
    fair: bool = False  # across tenants, and the nearest to overflow first; else in order of arrival


POOLS = (
    PoolSpec("ingest", ingest, workers=4, bound=65_536),
    PoolSpec("after_turn", after_turn, workers=4, bound=16_384),
    PoolSpec("capture", capture, workers=4, bound=16_384),
    PoolSpec("flush", flush, workers=None, bound=16_384, fair=True),
    PoolSpec("compaction", compact, workers=None, bound=16_384, fair=True),
    PoolSpec("truncation", truncate, workers=2, bound=4_096),
)


def grow(kernel: Kernel, services: Callable[[], Services], compactions: int) -> dict[str, Pool]:
    """Start the pools; `services` is asked with each message. `compactions`: how many summaries at once."""

    def order(key: str, mail: Flush | Compact) -> Place:
        tenant = services().gates.tenancy.of(key)
        return Place(tenant.name, tenant.weight, mail.slack, band(mail.reason))

    async def work(worker: Worker, key: str, mail: Any) -> Any:
        return await worker(services(), key, mail)

    return {
        spec.name: kernel.pool(
            spec.name,
            partial(work, spec.worker),
            workers=spec.workers or compactions,
            queue_bound=spec.bound,
            order=order if spec.fair else None,
        )
        for spec in POOLS
    }

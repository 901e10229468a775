"""A tool's full output is kept once by content hash; what enters the transcript is head, tail, size, hash."""

from __future__ import annotations

from perdure.actors.services import Services
from perdure.contracts import ToolOutput
from perdure.records import Block, Text

HEAD, TAIL = 24 * 1024, 8 * 1024  # characters kept of what is over the limit, where the limit allows


async def bounded(services: Services, output: ToolOutput) -> tuple[ToolOutput, tuple[str, ...]]:
    """`output` as it may be written, and the hashes it keeps: what is over the limit goes to evidence."""
    limit = services.evidence_limit
    text = "\n".join(b.text for b in output.content if isinstance(b, Text))
    full = output.full if output.full is not None else (_encode(text) if len(text) > limit else None)
    if full is None:
        return output, ()
    digest = await services.blobs.put(full)
    note = f"[whole output: {len(full):,} bytes, evidence sha256:{digest}; read it with recall]"
    if len(text) > limit:
        head, tail = min(HEAD, limit * 3 // 4), min(TAIL, limit // 4)
        text = f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[-tail:]}"
        others: tuple[Block, ...] = tuple(b for b in output.content if not isinstance(b, Text))
        return ToolOutput((Text(f"{text}\n{note}"), *others), output.is_error, output.details), (digest,)
    return ToolOutput((*output.content, Text(note)), output.is_error, output.details), (digest,)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

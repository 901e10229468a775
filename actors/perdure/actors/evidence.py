"""A tool's full output is kept once by content hash; what enters the transcript is head, tail, size, hash."""

from __future__ import annotations

import msgspec

from perdure.actors.pictures import admitted, put_aside
from perdure.actors.services import Services
from perdure.contracts import ToolOutput
from perdure.records import Block, Text

HEAD, TAIL = 24 * 1024, 8 * 1024  # characters kept of what is over the limit, where the limit allows


async def bounded(services: Services, output: ToolOutput) -> tuple[ToolOutput, tuple[str, ...]]:
    """`output` as it may be written, and the hashes it keeps: what is over the limit goes to evidence."""
    content, kept = await _content(services, output)
    content, originals = await admitted(services, content)
    content, aside = await put_aside(services, content, services.evidence_limit)
    kept = (*kept, *originals, *aside)
    details = output.details
    if details is not None and len(details) > services.evidence_limit:
        digest = await services.blobs.put(details)
        details = msgspec.json.encode({"evidence": f"sha256:{digest}", "bytes": len(details)})
        kept = (*kept, digest)
    return ToolOutput(content, output.is_error, details), kept


async def _content(services: Services, output: ToolOutput) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    limit = services.evidence_limit
    text = "\n".join(b.text for b in output.content if isinstance(b, Text))
    full = output.full if output.full is not None else (_encode(text) if len(text) > limit else None)
    if full is None:
        return output.content, ()
    digest = await services.blobs.put(full)
    note = f"[whole output: {len(full):,} bytes, evidence sha256:{digest}; read it with recall]"
    if len(text) <= limit:
        return (*output.content, Text(note)), (digest,)
    head, tail = min(HEAD, limit * 3 // 4), min(TAIL, limit // 4)
    text = f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[-tail:]}"
    others = tuple(b for b in output.content if not isinstance(b, Text))
    return (Text(f"{text}\n{note}"), *others), (digest,)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

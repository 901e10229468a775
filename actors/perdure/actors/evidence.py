"""A tool's full output is kept once by content hash; what enters the transcript is head, tail, size, hash."""

from __future__ import annotations

from perdure.actors.services import Services
from perdure.contracts import ToolOutput
from perdure.records import Block, Text

LIMIT = 256 * 1024  # characters of text that an entry may hold itself
HEAD, TAIL = 24 * 1024, 8 * 1024


async def bounded(services: Services, output: ToolOutput) -> tuple[ToolOutput, tuple[str, ...]]:
    """`output` as it may be written, and the hashes it keeps: what is over the limit goes to evidence."""
    text = "\n".join(b.text for b in output.content if isinstance(b, Text))
    full = output.full if output.full is not None else (_encode(text) if len(text) > LIMIT else None)
    if full is None:
        return output, ()
    digest = await services.blobs.put(full)
    note = f"[whole output: {len(full):,} bytes, evidence sha256:{digest}; read it with recall]"
    if len(text) > LIMIT:
        text = f"{text[:HEAD]}\n[… {len(text) - HEAD - TAIL:,} characters left out …]\n{text[-TAIL:]}"
        others: tuple[Block, ...] = tuple(b for b in output.content if not isinstance(b, Text))
        return ToolOutput((Text(f"{text}\n{note}"), *others), output.is_error, output.details), (digest,)
    return ToolOutput((*output.content, Text(note)), output.is_error, output.details), (digest,)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

"""The numbers of the five defences, each with its reason, and `limits`, which resolves them for a window.

Names in capitals are those of the systems this design grew from, so that people find them again.
W is the model's window in tokens. A *char* is a quarter of a token: the unit in which guard lines
are drawn, because that is what a character of plain prose costs.
"""

from __future__ import annotations

from perdure.errors import ConfigError
from perdure.records import Record

# --- weights --------------------------------------------------------------------------------------

CHARS_PER_TOKEN_ESTIMATE = 4
"""English prose. Coarse on purpose: every line below keeps a margin of its own."""

TOOL_RESULT_CHARS_PER_TOKEN_ESTIMATE = 2
"""Code, JSON and logs are denser than prose; rather too high than an overflow."""

IMAGE_CHAR_ESTIMATE = 8_000
"""Flat, by what a model is charged at most, never by its bytes: base64 isn't text to a model."""

# --- layer 2: the guard ---------------------------------------------------------------------------

CONTEXT_INPUT_HEADROOM_RATIO = 0.75
"""The guard brings a request under this share of W: a quarter stays for the answer and for error."""

SINGLE_TOOL_RESULT_CONTEXT_SHARE = 0.5
"""One result may fill half of W at two chars a token, that is W raw characters."""

PREEMPTIVE_OVERFLOW_RATIO = 0.9
"""Above this after the guard the results aren't the trouble: the history is, and compaction acts."""

MIN_BUDGET_CHARS = 1_024
"""No line is drawn below this, whatever window a configuration claims."""

COMPACTED_PLACEHOLDER = "[compacted: tool output removed to free context]"
"""Stands for a result the guard removed. People grep for it."""

UNSEEN_FLOOR_CHARS = 2_000
"""A result no call has shown yet keeps this much, if older results can pay for it."""

UNSEEN_SHARE = 3
"""… and all of them together a third of the guard's line, so that fresh output isn't a stub in any window."""

UNSEEN_LEAST_CHARS = 160
"""… and this much if nothing can: enough to tell what the tool answered and how to read the rest."""

# --- shortening -----------------------------------------------------------------------------------

IMPORTANT_TAIL_CHARS = 2_000
"""Where errors, totals and closing braces are looked for: the end of an output tells how it went."""

HEAD_SHARE, TAIL_SHARE = 0.7, 0.3
"""Of the budget, when the tail matters too: the head names what was run, the tail how it ended."""

OMISSION_MARKER = "\n\n⚠️ [... middle content omitted — showing head and tail ...]\n\n"
"""Between head and tail. People grep for it."""

EVIDENCE_CHARS = 256 * 1024
"""A larger tool output is stored once by its hash; the entry keeps head and tail."""

# --- layer 2: pruning -----------------------------------------------------------------------------

CLEARED_PLACEHOLDER = "[Old tool result content cleared]"
"""Stands for a result that pruning cleared. People grep for it."""

PRUNE_TTL_SECONDS = 300.0
"""The provider's own cache life: an older cache is cold, so rewriting early messages costs nothing."""

PRUNE_KEEP_LAST_ASSISTANTS = 3
"""What the agent works with just now is not pruned."""

SOFT_TRIM_RATIO, HARD_CLEAR_RATIO = 0.3, 0.5
"""Shares of W from which old results are trimmed, and cleared."""

SOFT_TRIM_MAX_CHARS, SOFT_TRIM_HEAD_CHARS, SOFT_TRIM_TAIL_CHARS = 4_000, 1_500, 1_500
"""A result over the first keeps this much at both ends."""

MIN_PRUNABLE_TOOL_CHARS = 50_000
"""Clearing less than this isn't worth a changed prefix."""

# --- layer 3: compaction --------------------------------------------------------------------------

RESERVE_TOKENS = 20_000
"""Room for the answer: the threshold lies this far below W, or a quarter of a small W."""

KEEP_RECENT_TOKENS = 20_000
"""The tail a compaction keeps verbatim, or a quarter of a small W."""

SOFT_FLUSH_TOKENS = 4_000
"""The memory flush comes this far below the threshold (W/16 at most): what matters is written first."""

BASE_CHUNK_RATIO, MIN_CHUNK_RATIO = 0.4, 0.15
"""Share of the summariser's W that one chunk takes; less when messages are large on average."""

SAFETY_MARGIN = 1.2
"""Estimates in compaction are taken 20 % larger: a summary request that overflows is a call lost."""

SUMMARIZATION_OVERHEAD_TOKENS = 4_096
"""Instructions and the running summary, beside the chunk itself."""

OVERSIZED_SHARE = 0.5
"""A message over this share of W is noted, not summarised."""

STAGE_PARTS = 2
"""A long history is summarised in so many parts of equal tokens, then merged."""

SUMMARY_OUTPUT_TOKENS = 8_192
"""A summary asks for at most this: every model offers it, and a longer one is no summary."""

SERIALISED_RESULT_CHARS = 2_000
"""Of a tool result the summariser reads this much: enough to tell what came of the call."""

IDENTIFIER_SHARE = 0.05
"""Identifiers carried verbatim beside a summary take at most this share of W; `recall` finds others."""

FACT_SHARE = 0.03
"""Last request, open to-dos and progress counts that a summary lost take at most this share of W."""

PIN_SHARE = 0.05
"""What users pinned takes at most this share of W; a pin beyond it is refused with the numbers."""

MAX_COMPACTION_ATTEMPTS = 3
"""In a row without an accepted model call between them: progress, or stop."""

SIZE_ENTRIES, SIZE_BYTES = 5_000, 8 * 1024 * 1024
"""A view this long costs time and memory though it may fit the window."""

# --- layers 4 and 1, budget -----------------------------------------------------------------------

TRUNCATION_BYTES = 2 * 1024 * 1024
"""Covered entries are moved out of the file when so many bytes of them lie in it."""

BOOTSTRAP_FILE_CHARS, BOOTSTRAP_TOTAL_CHARS = 20_000, 150_000
"""Caps of one bootstrap file and of all, unless their share of a small W is less."""

MAX_STABLE_CACHE_READ_RATIO, MIN_CACHE_BREAK_TOKEN_DROP = 0.95, 1_000
"""A cache break reads less than 95 % of the last call's cache, and at least 1,000 tokens less."""

IDENTITY_SHARE, KNOWLEDGE_SHARE, HISTORY_SHARE = (0.10, 0.15), (0.05, 0.10), (0.75, 0.85)
"""Of W, lowest and highest: who the agent is; what its workspace knows; history and tool results."""

MIN_WINDOW = 1_024
"""A smaller window is a mistake in a configuration, not a model."""


class Limits(Record):
    """Every line for one window. Tokens, unless the name says chars (quarters of a token) or bytes."""

    window: int
    total_chars: int
    overflow_chars: int
    single_chars: int
    threshold: int
    kept_tail: int
    soft_line: int
    idle_line: int
    identifiers: int
    bootstrap_file_chars: int
    bootstrap_total_chars: int
    identity: int
    knowledge: int
    size_entries: int = SIZE_ENTRIES
    size_bytes: int = SIZE_BYTES
    truncation_bytes: int = TRUNCATION_BYTES

    @property
    def total(self) -> int:
        """The guard's first line in tokens (0.75 · W)."""
        return self.total_chars // CHARS_PER_TOKEN_ESTIMATE

    @property
    def overflow(self) -> int:
        """The line no request may pass, in tokens (0.9 · W)."""
        return self.overflow_chars // CHARS_PER_TOKEN_ESTIMATE


def limits(window: int, *, threshold: int | None = None, kept_tail: int | None = None) -> Limits:
    """All lines for a window of so many tokens; `threshold` and `kept_tail` override the rules.

    Raises `ConfigError` where they can't work: a kept tail that reaches the threshold would leave
    nothing to compact, and every turn would try again.
    """
    if window < 1:
        raise ConfigError(f"window {window}: a model's window is a positive number of tokens")
    line = window - min(RESERVE_TOKENS, window // 4) if threshold is None else threshold
    tail = min(KEEP_RECENT_TOKENS, window // 4) if kept_tail is None else kept_tail
    if tail >= line and (threshold is not None or kept_tail is not None):
        raise ConfigError(f"kept tail {tail:,} reaches the threshold {line:,}: keep less, or raise it")
    return _resolve(window, line, tail)


def _resolve(window: int, line: int, tail: int) -> Limits:
    chars = window * CHARS_PER_TOKEN_ESTIMATE
    single = window * TOOL_RESULT_CHARS_PER_TOKEN_ESTIMATE * SINGLE_TOOL_RESULT_CONTEXT_SHARE
    total = max(MIN_BUDGET_CHARS, int(chars * CONTEXT_INPUT_HEADROOM_RATIO))
    identity = int(window * IDENTITY_SHARE[1])
    return Limits(
        window=window,
        total_chars=total,
        overflow_chars=max(total, int(chars * PREEMPTIVE_OVERFLOW_RATIO)),
        single_chars=max(MIN_BUDGET_CHARS, int(single)),
        threshold=line,
        kept_tail=tail,
        soft_line=max(0, line - min(SOFT_FLUSH_TOKENS, window // 16)),
        idle_line=window // 2,
        identifiers=int(window * IDENTIFIER_SHARE),
        bootstrap_file_chars=min(BOOTSTRAP_FILE_CHARS, identity * CHARS_PER_TOKEN_ESTIMATE // 2),
        bootstrap_total_chars=min(BOOTSTRAP_TOTAL_CHARS, identity * CHARS_PER_TOKEN_ESTIMATE),
        identity=identity,
        knowledge=int(window * KNOWLEDGE_SHARE[1]),
    )

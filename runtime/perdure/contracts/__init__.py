"""The seams: what the layers above ask of the layers below, as protocols and frozen results.

Storage and placement seams carry no assumption of one process (letters are plain records, a receipt
means "in the owner's session file"); their single-process forms stand in `edges`.
"""

from perdure.contracts.compaction import CompactionReason, CompactionTrigger, MemoryFlush, Pressure
from perdure.contracts.engines import (
    METHODS,
    AfterTurns,
    Assembled,
    Bootstrapped,
    Bootstraps,
    ContextEngine,
    Delegate,
    Disposes,
    EndsSubagents,
    EngineCompaction,
    EngineContext,
    EngineInfo,
    EngineRuntime,
    ForgetsSessions,
    IngestsBatches,
    Maintained,
    Maintains,
    Moment,
    OffersTools,
    PreparesSpawns,
    Replacement,
    Rewritten,
    Rollback,
    Spawn,
    SpawnEnd,
    SpawnMode,
    TurnReport,
)
from perdure.contracts.files import Ack, Blobs, SessionFile
from perdure.contracts.lending import PluginRuntime
from perdure.contracts.letters import Grant, Letter, LetterKind, Placement, Post, Receipt
from perdure.contracts.memories import (
    Captures,
    Closes,
    Forgets,
    Forgotten,
    Memory,
    MemoryContext,
    MemoryInfo,
    Recalled,
    Recalls,
    Trust,
)
from perdure.contracts.models import (
    Answer,
    CallStarted,
    Lacking,
    Model,
    ModelEvent,
    Request,
    TextDelta,
    ThinkingDelta,
)
from perdure.contracts.outbound import Delivered, Delivery, Outbound, OutboundChannel
from perdure.contracts.tools import Recall, Tool, ToolContext, ToolOutput

__all__ = [
    "METHODS", "Ack", "AfterTurns", "Answer", "Assembled", "Blobs", "Bootstrapped", "Bootstraps",
    "CallStarted", "Captures", "Closes", "CompactionReason", "CompactionTrigger", "ContextEngine",
    "Delegate", "Delivered", "Delivery", "Disposes", "EndsSubagents", "EngineCompaction", "EngineContext",
    "EngineInfo", "EngineRuntime", "Forgets", "ForgetsSessions", "Forgotten", "Grant", "IngestsBatches",
    "Lacking", "Letter", "LetterKind", "Maintained", "Maintains", "Memory", "MemoryContext", "MemoryFlush",
    "MemoryInfo", "Model", "ModelEvent", "Moment", "OffersTools", "Outbound", "OutboundChannel",
    "Placement", "PluginRuntime", "Post", "PreparesSpawns", "Pressure", "Recall", "Recalled", "Recalls",
    "Receipt", "Replacement", "Request", "Rewritten", "Rollback", "SessionFile", "Spawn", "SpawnEnd",
    "SpawnMode", "TextDelta", "ThinkingDelta", "Tool", "ToolContext", "ToolOutput", "Trust", "TurnReport",
]  # fmt: skip

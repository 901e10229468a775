"""Parents and children for tests: a host that may spawn, answers by session, and what their files say."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from helpers_host import INFO, KEY, Answer, Play, hosted, session_path
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, call
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.history import History
from perdure.edges.session.kin import Kin, Relatives
from perdure.edges.session.own import facts_of, inbox_of
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import SubagentSettings
from perdure.events import Event, SubagentEnded, SubagentStarted
from perdure.host import Host
from perdure.kernel.clock import Clock
from perdure.records import Text

TASK = "[Subagent Task]: "


class Nursery(Play):
    """Answers a root by its key, as `Play` does, and children by the text of their task."""

    def __init__(self, *replies: Answer, key: str = KEY, **options: Any) -> None:
        super().__init__(*replies, key=key, **options)
        self.tasks: dict[str, deque[Answer]] = defaultdict(deque)
        self.of: dict[str, str] = {}  # session, task

    def child(self, task: str, *replies: Answer) -> Nursery:
        """What the child with this task answers, in order."""
        self.tasks[task].extend(replies)
        return self

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        task = self.of.get(request.session) or task_of(body)
        if task and ":subagent:" in request.session:
            self.of[request.session] = task
            self.queues[request.session] = self.tasks[task]
        return await super().__call__(body, request)


def task_of(body: dict[str, Any]) -> str:
    """The latest task that a request tells of, "" where none does: a forked one's begins with another's."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    found = [text for block in blocks if TASK in (text := block.get("text", ""))]
    return str(found[-1]).rpartition(TASK)[2].strip() if found else ""


def spawning(*tasks: str, text: str = "", **arguments: Any) -> ScriptedReply:
    """An answer that begins these children at once."""
    texts = (Text(text),) if text else ()
    named = enumerate(tasks)
    return ScriptedReply(
        (*texts, *(call("sessions_spawn", f"toolu_{task}_{n}", task=task, **arguments) for n, task in named))
    )


def using(name: str, ident: str = "", **arguments: Any) -> ScriptedReply:
    """An answer that calls one tool."""
    return ScriptedReply((call(name, ident or f"toolu_{name}", **arguments),))


def nursery(
    folder: Path, play: Play, clock: Clock, *, tools: Iterable[Any] = (), info: Any = INFO, **options: Any
) -> Host:
    """A host whose sessions may spawn; options of `[subagents]` go by name, others to `Host`."""
    names = set(SubagentSettings.__struct_fields__)
    told = {"max_depth": 3} | {name: options.pop(name) for name in list(options) if name in names}
    settings = options.pop("settings", Settings())
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__}
    settings = Settings(**fields | {"subagents": SubagentSettings(enabled=True, **told)})
    return hosted(folder, play, clock, tools=tools, info=info, settings=settings, **options)


def heard(host: Host) -> list[SubagentStarted | SubagentEnded]:
    """What is told of subagents from now on, in a list that grows."""
    seen: list[SubagentStarted | SubagentEnded] = []

    def take(event: Event) -> None:
        if isinstance(event, SubagentStarted | SubagentEnded):
            seen.append(event)

    host.services.events.subscribe("subagents", take)
    return seen


# --- what stands in files -------------------------------------------------------------------------


def relatives(folder: Path, key: str = KEY) -> Relatives:
    """What a session's file knows of its parent and children."""
    return open_session(session_path(folder, key)).relatives


def children(folder: Path, key: str = KEY) -> tuple[Kin, ...]:
    """Its children, as its file has them."""
    return relatives(folder, key).children


def states(folder: Path, key: str = KEY) -> list[str]:
    """How they ended, by task; `running` without a record."""
    return [kin.ending.state if kin.ending is not None else "running" for kin in children(folder, key)]


def letters(folder: Path, key: str = KEY) -> list[tuple[str, str, str]]:
    """Letters of other sessions in a session's whole past: sender, id, text; a waiting one once, too."""
    found: dict[str, tuple[str, str, str]] = {}
    waiting: dict[tuple[str, str], str] = {}
    taken: list[tuple[str, str]] = []
    for id, raw in sorted(History(session_path(folder, key)).records()):
        entry = decode_entry(raw)
        if entry.type == "message" and (facts := facts_of(entry)) is not None and facts.origin is not None:
            who = (facts.origin.sender, facts.origin.mid)
            if ":subagent:" in who[0]:
                taken.append(who)
                found[id] = (*who, text_in(raw))
        elif entry.type == "custom" and entry.customType == "perdure.inbox":
            inbox = inbox_of(entry)
            if inbox is not None and ":subagent:" in inbox[1].sender:
                waiting[inbox[1].sender, inbox[1].mid] = text_in(raw)
    late = [(*who, text) for who, text in waiting.items() if who not in taken]
    return [*found.values(), *late]


def text_in(raw: bytes) -> str:
    """All text of a message's or a letter's line."""
    import json

    told = json.loads(raw)
    content = (told.get("message") or told.get("data") or {}).get("content", "")
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


async def until(clock: Clock, what: Callable[[], bool], seconds: float = 600.0, step: float = 0.25) -> None:
    """Let time pass until that holds. Fails after so many seconds."""
    end = clock.now() + seconds
    while not what():
        assert clock.now() < end, "it never came to hold"
        await clock.sleep(step)


async def quiet(host: Host, clock: Clock, seconds: float = 600.0) -> None:
    """Let time pass until no child is open and no session works."""

    def still() -> bool:
        at_work = [s for s in host.directory.awake.values() if s.state in ("opening", "running", "settling")]
        telling = [s for s in host.directory.awake.values() if s.state != "opening" and s.subagents.under_way]
        return not host.services.family.open and not at_work and not telling

    await until(clock, still, seconds)


Driver = Callable[[Any], Awaitable[Any]]

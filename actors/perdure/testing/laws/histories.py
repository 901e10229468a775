"""The histories that laws are checked on: small sessions, each with what breaks engines in practice.

They are stored entries as a session file holds them: unanswered calls of aborted turns, results with
details, silent heartbeats and summaries included. The driver repairs a view before an engine sees it, as the
pipeline does.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)

Messages = tuple[Message, ...]
START = 1_767_600_000_000  # of the driver's clock: a message a second from here
PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f00"
        "050001ff56c7a9d90000000049454e44ae426082"
    )
).decode()


def user(text: str) -> User:
    return User((Text(text),))


def said(text: str, *calls: ToolCall, thought: str = "") -> Assistant:
    thinking = (Thinking(thought, signature="c2lnbmVk"),) if thought else ()
    words = (Text(text),) if text else ()
    return Assistant((*thinking, *words, *calls), stop="toolUse" if calls else "stop")


def call(id: str, name: str = "read", arguments: bytes = b'{"path": "notes.md"}') -> ToolCall:
    return ToolCall(id, name, arguments)


def result(id: str, text: str, name: str = "read", *, failed: bool = False) -> ToolResult:
    return ToolResult(id, name, (Text(text),), failed, details=b'{"secret": 1}')


TEXT: Messages = (
    user("My dog is called Pollux and he is afraid of thunder."),
    said("Noted: Pollux, afraid of thunder."),
    user("The deploy key of the garden project ends in 7f3a."),
    said("I keep that in mind: the key ends in 7f3a."),
    user("Which night of the week do the bins go out? It is Tuesday here."),
    said("Tuesday night, then."),
    user("What is my dog afraid of?"),
)
PARALLEL: Messages = (
    user("Compare the three files."),
    said("I read all of them.", call("c1"), call("c2"), call("c3"), thought="three files, three calls"),
    result("c1", "alpha says one"),
    result("c2", "beta says two"),
    result("c3", "gamma says nothing", failed=True),
    said("Only two could be read.", call("c4", "grep", b'{"pattern": "three"}')),
    result("c4", "no match", "grep"),
    said("Three is nowhere."),
    user("And the last one again, please."),
    said("", call("c1")),  # some providers begin their ids anew each turn
    result("c1", "gamma says three"),
)
ABORTED: Messages = (
    user("Search everything."),
    Assistant((Text("I begin with"), call("a1"), call("a2")), stop="aborted"),
    result("a1", "too late"),
    user("Stop. Only the first folder."),
    Assistant((call("a3"),), stop="error", error="overloaded"),
    user("Try again."),
    said("", call("a4"), call("a5")),
    result("a4", "found it in src/main.c"),
    user("Did you find it?"),
)
CJK: Messages = (
    user("我的猫叫团团，它怕吸尘器。"),
    said("记住了：团团怕吸尘器。"),
    user("東京の会議は水曜日の午後三時です。資料は日本語で用意してください。"),
    said("水曜日の午後三時、資料は日本語ですね。", call("j1", "write", '{"text": "資料"}'.encode())),
    result("j1", "保存しました。" * 40, "write"),
    said("用意しました。"),
    user("우리 팀의 비밀번호 정책은 무엇인가요?"),
)
HUGE: Messages = (
    user("Read the log."),
    said("", call("h1", "read")),
    result("h1", "".join(f"{n:06d} request served in {n % 97} ms\n" for n in range(2_500))),
    said("It is long; nothing failed in it."),
    user("x" * 30_000 + " and what was line 000042?"),
    said("", call("h2", "grep"), call("h3", "grep")),
    result("h2", "000042 request served in 42 ms", "grep"),
    result("h3", "y" * 60_000, "grep"),
)
IMAGES: Messages = (
    User((Text("What is on it?"), Image(PIXEL, "image/png"))),
    said("A single pixel.", call("i1", "screenshot")),
    ToolResult("i1", "screenshot", (Text("the screen"), Image(PIXEL, "image/png"))),
    said("The screen shows it, too."),
    user("Which colour?"),
)
SUMMARIES: Messages = (
    user("We build a boat of oak."),
    said("Of oak."),
    user("The mast is eleven metres."),
    said("Eleven metres."),
    Summary("The user builds a boat of oak; its mast is eleven metres.", tokens_before=900),
    BranchSummary("A branch about sails was left.", from_id="x"),
    Bash("ls boat", "hull mast", 0),
    Custom("note", (Text("The varnish is dry."),)),
    user("How long is the mast?"),
)
HEARTBEATS: Messages = (
    user("Remind me of the oven at noon."),
    said("I will."),
    user("Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK."),
    said("HEARTBEAT_OK"),
    user("Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK."),
    said("The oven: it is noon."),
    user("Thanks, it is off. What else was there?"),
)

HISTORIES: Mapping[str, Messages] = {
    "text": TEXT,
    "parallel calls": PARALLEL,
    "aborted turns": ABORTED,
    "CJK": CJK,
    "huge results": HUGE,
    "images": IMAGES,
    "summaries": SUMMARIES,
    "heartbeats": HEARTBEATS,
}


def long_session(turns: int, mark: str = "") -> Messages:
    """Many small turns, some with a call; `mark` stands in each message."""
    out: list[Message] = []
    for n in range(turns):
        out.append(user(f"{mark}Question {n}: how many boxes are on shelf {n * 7 % 31}?"))
        if n % 3 == 0:
            out += [said("", call(f"t{n}", "count")), result(f"t{n}", f"{mark}{n} boxes", "count")]
        out.append(said(f"{mark}There are {n} boxes on it, and shelf {n} has a red label."))
    return (*out, user(f"{mark}And which shelf has the red label?"))

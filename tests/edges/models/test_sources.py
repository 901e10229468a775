"""Scripts, the demo persona and the summariser answer by rules that a reader can predict."""

from __future__ import annotations

from typing import Any

import pytest

from helpers_models import body, request, result, text, tool, use, user
from perdure.context.compaction.judge import judge
from perdure.context.compaction.prompts import SECTIONS, Instructions, merge_prompt, summary_prompt
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.models.sources import Script, demo_source, echo
from perdure.edges.models.summaries import extractive_summariser, is_summary_request, summarise
from perdure.errors import ModelError
from perdure.records import Text, ToolCall

ALL = [tool(name) for name in ("read", "write", "edit", "grep", "find", "exec")]


def demo(*messages: dict[str, Any], tools: list[dict[str, Any]] = ALL) -> ScriptedReply:
    return demo_source(body(*messages, tools=tools), request())


def said(reply: ScriptedReply) -> str:
    return "".join(block.text for block in reply.blocks if isinstance(block, Text))


def called(reply: ScriptedReply) -> list[tuple[str, bytes]]:
    return [(block.name, block.arguments) for block in reply.blocks if isinstance(block, ToolCall)]


def of(session: str) -> Request:
    return request(session=session)


def test_each_session_has_its_own_place_in_a_common_script() -> None:
    script = Script([say("one"), say("two")])
    assert [said(script(body(), of(s))) for s in ("a", "b", "a", "b")] == ["one", "one", "two", "two"]


def test_a_script_that_has_ended_says_so_or_repeats_its_last_word() -> None:
    with pytest.raises(ModelError, match="session 'b' has no answer left"):
        Script({"a": [say("one")]})({}, of("b"))
    assert said(Script([], after=say("still here"))({}, of("b"))) == "still here"


def test_echo_returns_what_was_said() -> None:
    assert said(echo(body(user("hello")), request())) == "hello"


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("Please read notes.md and README.md", [("read", b'{"path":"notes.md"}')]),
        ("read a.md, open b/c.py", [("read", b'{"path":"a.md"}'), ("read", b'{"path":"b/c.py"}')]),
        ("search for TODO", [("grep", b'{"pattern":"TODO"}')]),
        ("find all files like *.py", [("find", b'{"pattern":"*.py"}')]),
        ("run `make test`", [("exec", b'{"command":"make test"}')]),
        ("What do you think?", []),
    ],
)
def test_the_demo_uses_the_tool_that_the_words_name(words: str, calls: list[tuple[str, bytes]]) -> None:
    assert called(demo(user(words))) == calls
    assert called(demo(user(words), tools=[])) == []


def test_the_demo_keeps_a_note_in_a_file_named_by_its_text() -> None:
    first, again = (called(demo(user("Remember that the code is 4711"))) for _ in range(2))
    assert first == again
    assert first[0][0] == "write"
    assert b"the code is 4711" in first[0][1]


def test_after_results_the_demo_speaks_and_calls_nothing() -> None:
    loop = (user("read a.md"), {"role": "assistant", "content": [use("A")]})
    told = demo(*loop, user(result("A", "first line\nsecond")))
    assert said(told) == "Done. I found 2 lines, beginning with: first line"
    assert "didn't work: no such file" in said(demo(*loop, user(result("A", "no such file", is_error=True))))
    assert "It was empty." in said(demo(*loop, user(result("A", [text("")]))))


def test_the_same_request_gets_the_same_answer() -> None:
    assert demo(user("tell me more")) == demo(user("tell me more"))


CONVERSATION = """[User]: Build the importer in src/importer.py. You must never touch main.

[Assistant]: We decided to use msgspec. See https://example.org/doc and commit 0a1b2c3d4e.

[User]: Now fix ticket ABC-123 please
"""


def asking(conversation: str, previous: str = "", **more: Any) -> dict[str, Any]:
    return body(user(summary_prompt(conversation, previous, Instructions())), **more)


def test_a_summary_has_every_section_the_last_request_and_the_identifiers() -> None:
    asked = asking(CONVERSATION)
    assert is_summary_request(asked)
    told = said(extractive_summariser(asked, request()))
    places = [told.index(f"## {head}") for head in (*SECTIONS, "Exact identifiers")]
    assert places == sorted(places)
    assert "fix ticket ABC-123" in told.split("## Last request")[1]
    for name in ("src/importer.py", "https://example.org/doc", "0a1b2c3d4e", "ABC-123"):
        assert name in told.split("## Exact identifiers")[1]
    assert judge(told) is None
    assert said(demo(*asked["messages"])) == told


def test_a_message_that_mentions_a_conversation_is_no_summary_request() -> None:
    assert not is_summary_request(body(user("what does <conversation> mean?")))


def test_summaries_are_merged_without_losing_what_they_held() -> None:
    parts = tuple(summarise(text, "", 4000) for text in (CONVERSATION, "[User]: then deploy build-77.sh"))
    asked = body(user(merge_prompt(parts, "", Instructions())))
    told = said(extractive_summariser(asked, request()))
    assert "src/importer.py" in told
    assert "build-77.sh" in told.split("## Last request")[1]
    assert "We decided to use msgspec" in told


def test_a_summary_is_far_smaller_than_what_it_covers() -> None:
    long = "\n".join(
        f"[User]: step {n} of src/file{n}.py must work\n\n[Assistant]: done" for n in range(3000)
    )
    asked = asking(long, max_tokens=2000)
    assert len(said(extractive_summariser(asked, request()))) < len(long) / 8


def test_a_summary_of_a_summary_keeps_what_the_first_one_said() -> None:
    first = summarise(CONVERSATION, "", 4000)
    assert "src/importer.py" in summarise("[User]: go on", first, 4000)

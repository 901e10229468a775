"""Whether a summariser's answer is a summary at all. A bad one is worse than none: it replaces history."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from perdure.context.compaction.serialize import BLOCK
from perdure.records import Stop

Flaw: TypeAlias = Literal["empty", "refused", "skeleton", "cut", "echo", "not smaller"]

_REFUSALS = re.compile(
    r"^\W*(?:i['’]?m sorry|i am sorry|sorry\b|i apologi[sz]e|i can['’]?t|i can ?not|i won['’]?t|as an ai|"
    r"(?:i['’]?m |i am )?(?:not able|unable) to|cannot (?:help|comply|assist|summari)|no comment|"
    r"抱歉|很抱歉|对不起|對不起|我(?:不能|无法|無法|不会)|无法(?:提供|完成|协助|总结)|作为(?:一个)?(?:ai|人工智能)|"
    r"申し訳|すみません|できません|お手伝いできません|죄송|도와드릴 수 없|"
    r"es tut mir leid|tut mir leid|ich kann (?:das |dies |dabei |hier )?nicht|leider kann ich|"
    r"je suis désolé|désolé|je ne peux pas|lo siento|no puedo|desculpe|não posso|mi dispiace|non posso|"
    r"извините|простите|я не могу|к сожалению)",
    re.IGNORECASE,
)
_REFUSAL_LENGTH = 400
"""A longer text that begins with an apology may still be a summary of one."""

_HEADING = re.compile(r"^\s{0,3}(?:#{1,6}\s.*|\*\*[^*]+\*\*:?|[-=_*]{3,}|<[^<>]+>)\s*$")
_NOTHING = re.compile(
    r"^\W*(?:none(?: captured| so far| known)?|n/?a|nothing(?: to report)?|not applicable|unknown|tbd|todo|"
    r"empty|no prior history|无|無|没有|沒有|暂无|なし|特になし|없음|keine?s?|nichts|aucune?|néant|"
    r"ningun[oa]|nada|nessuno|nenhum|нет)?\W*$",
    re.IGNORECASE,
)


def judge(text: str, *, stop: Stop = "stop", last_answer: str = "") -> Flaw | None:
    """What is wrong with an answer, or None. `last_answer` is the conversation's own last reply."""
    bare = text.strip()
    if not bare or not re.search(r"\w", bare):
        return "empty"
    if stop not in ("stop", "toolUse"):
        return "cut"
    if len(bare) <= _REFUSAL_LENGTH and _REFUSALS.search(bare):
        return "refused"
    if is_skeleton(bare):
        return "skeleton"
    if last_answer.strip() and bare == last_answer.strip():
        return "echo"
    return "cut" if f"</{BLOCK}>" in bare else None


def is_skeleton(text: str) -> bool:
    """Headings without content: every line is a heading, a rule or a word for nothing."""
    lines = [line for line in text.splitlines() if line.strip()]
    bodies = [line for line in lines if not _HEADING.match(line)]
    return all(_NOTHING.match(_after_label(line)) for line in bodies)


def _after_label(line: str) -> str:
    """What stands behind `Goal:`; a line without label as it is."""
    label, colon, rest = line.partition(":")
    return rest if colon and len(label) <= 40 and not re.search(r"[.。!?]", label) else line

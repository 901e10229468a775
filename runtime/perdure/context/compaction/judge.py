"""Whether a summariser's answer is a summary at all. A bad one is worse than none: it replaces history.

Each flaw has a test of its own, and each test is made to miss rather than to cry out: a false alarm costs
a good summary and several calls, a miss is still caught by the proof (it must shrink, names and pins are
compared by string).
"""

from __future__ import annotations

import re
import zlib
from typing import Literal, TypeAlias

from perdure.context.compaction.language import Spoken, is_foreign
from perdure.context.compaction.prompts import SECTIONS, SYSTEM
from perdure.context.compaction.refusals import is_refusal
from perdure.context.compaction.serialize import BLOCK
from perdure.records import Stop

Flaw: TypeAlias = Literal["empty", "refused", "skeleton", "cut", "echo", "loop", "language", "longer"]

_HEADING = re.compile(r"^\s{0,3}(?:#{1,6}\s.*|\*\*[^*]+\*\*:?|[-=_*]{3,}|<[^<>]+>)\s*$")
_NOTHING = re.compile(
    r"^\W*(?:(?:none|n/?a|nothing|unknown|empty|todo|tbd|to be (?:determined|filled(?: in)?|added|"
    r"completed)|"
    r"not (?:applicable|available|specified|mentioned|provided|yet|known|captured|recorded|discussed)|"
    r"no (?:prior history|information(?: available| provided| given)?|data|content|details?|items?|"
    r"updates?|"
    r"changes?|decisions?(?: made| yet)?|constraints?|open questions?|to-?dos?|tasks?|"
    r"progress(?: yet)?|request)|"
    r"(?:insert|add|fill in|describe|summari[sz]e|write)\b[^.]{0,40}\bhere|placeholder|lorem ipsum.*|"
    r"(?:sure|okay|ok|certainly|of course|absolutely)?\W*here(?:'s|’s| is| are) (?:the|a|an|your|my) "
    r"(?:\w+ ){0,3}summary[^.]{0,40})"
    r"(?: (?:captured|so far|known|yet|identified|recorded|mentioned|specified|at this time|"
    r"to report|needed|"
    r"available|found|given|applicable|noted|made))*"
    r"|无|無|没有|沒有|暂无(?:内容|信息|相关信息)?|無し|なし|特になし|該当なし|未定|记录无|无相关(?:信息|内容)|未提及|未提供|未指定|"
    r"待补充|待填写|待定|없음|해당 ?없음|미정|"
    r"keine?s?(?: (?:angaben?|informationen|entscheidungen|offenen fragen))?|nichts|unbekannt|offen|"
    r"aucune?(?: (?:information|décision|élément))?|néant|rien(?: à signaler)?|non (?:précisé|"
    r"spécifié|disponible)|"
    r"ningun[oa](?: información)?|nada|sin (?:información|datos|decisiones)|no (?:disponible|especificado)|"
    r"nessun[oa]?|niente|non (?:specificato|disponibile)|nenhum[a]?|sem informaç(?:ão|ões)|"
    r"não (?:especificado|disponível)|"
    r"geen|onbekend|нет(?: данных| информации)?|не (?:указано|определено|известно)|отсутствует|отсутствуют|"
    r"لا شيء|لا يوجد|غير محدد)?\W*$",
    re.IGNORECASE,
)
_BRACKETED = re.compile(r"^\W*[\[{<(（【][^\[\]{}<>()（）【】]{1,80}[\]}>)）】]\W*$")
_NUMBER_ONLY = re.compile(r"^[\d\W]*$")


def judge(
    text: str, *, stop: Stop = "stop", last_answer: str = "", material: str = "", heard: Spoken | None = None
) -> Flaw | None:
    """What is wrong with an answer, or None.

    `last_answer` is the conversation's own last reply, `material` what was to be summarised (with an
    earlier summary), `heard` the languages of the conversation.
    """
    bare = text.strip()
    if not bare or not re.search(r"\w", bare):
        return "empty"
    if stop not in ("stop", "toolUse"):
        return "cut"
    if is_refusal(bare):
        return "refused"
    if is_skeleton(bare):
        return "skeleton"
    if _is_echo(bare, last_answer.strip(), material):
        return "echo"
    if is_loop(bare):
        return "loop"
    if material and len(bare) > max(len(material), _SHORT):
        return "longer"
    if is_cut(bare):
        return "cut"
    return "language" if heard is not None and is_foreign(bare, heard) else None


_SHORT = 2_000
"""A short stretch under six headings may be longer than it was; whether the view shrinks is proven "
"later."""


# --- skeletons ------------------------------------------------------------------------------------


def is_skeleton(text: str) -> bool:
    """Headings without content: every line is a heading, a rule, or words and blanks for nothing."""
    lines = [line for line in text.splitlines() if line.strip()]
    bodies = [line for line in lines if not _HEADING.match(line)]
    return all(_says_nothing(line) for line in bodies)


def _says_nothing(line: str) -> bool:
    rest = _after_label(line).strip().strip("*_").strip()
    return bool(_NOTHING.match(rest) or (_BRACKETED.match(rest) and not re.search(r"\d", rest)))


def _after_label(line: str) -> str:
    """What stands behind `Goal:`; a line without label as it is."""
    label, colon, rest = line.replace("：", ":").partition(":")
    return rest if colon and len(label) <= 40 and not re.search(r"[.。!?]", label) else line


# --- echoes and loops -----------------------------------------------------------------------------

_LABELS = re.compile(r"^\[(User|Assistant|Assistant tool calls|Tool result)\]: ", re.MULTILINE)
_OURS = (SYSTEM[:80], "Summarise the conversation under these headings", "Copy opaque identifiers exactly as")


def _is_echo(text: str, last_answer: str, material: str) -> bool:
    """The conversation, or what we told the summariser, said again in place of a summary."""
    if last_answer and text == last_answer:
        return True
    labels = _LABELS.findall(text)
    if len(labels) >= 4 and len(set(labels)) > 1:
        return True
    if text.startswith(f"<{BLOCK}>") or text.endswith(f"</{BLOCK}>"):
        return True
    if any(words in text and words not in material for words in _OURS):
        return True
    if len(text) < 240 or not material:
        return False
    flat = " ".join(text.split())
    piece = flat[len(flat) // 5 : -(len(flat) // 5)]
    return piece in " ".join(material.split())


def is_loop(text: str) -> bool:
    """The same again and again, to the end: what a model does that has lost its way."""
    words = text.split()
    if len(words) >= 30 and len({word.lower() for word in words}) <= 4:
        return True
    lines = [line.strip() for line in text.splitlines() if len(line.strip()) > 12]
    if len(lines) >= 10 and len(set(lines)) * 3 <= len(lines):
        return True
    tail = text[-2_000:].encode("utf-8", "surrogatepass")
    return len(tail) >= 800 and len(zlib.compress(tail, 6)) * 11 < len(tail)


# --- cut off --------------------------------------------------------------------------------------

_SENTENCE_END = re.compile(r"[.!?…。！？｡؟۔।:;：；)\]）】」』\"'”’»*`|]$")
_DANGLING = re.compile(
    r"(?:[,，、(\[{（【「『“«]|\b(?:and|or|the|a|an|of|to|with|for|from|by|in|on|at|that|which|because|but|"
    r"is|are|was|were|"
    r"will|has|have|und|oder|der|die|das|den|dem|mit|für|von|zu|weil|dass|ist|et|ou|le|les|des|du|"
    r"pour|avec|que|"
    r"y|los|las|del|para|con|porque|pero|и|или|для|на|что|с)|[的和与及或而并但把被将在对]|(?:が|を|に|は|と|で))$",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)、]|\|)\s?")


def is_cut(text: str) -> bool:
    """Whether a text ends in the middle, though its model said that it had finished."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if sum(line.lstrip().startswith("```") for line in lines) % 2:
        return True
    last = lines[-1]
    if _HEADING.match(last) and last.lstrip().startswith("#") and len(lines) > 2:
        return True
    return _ends_in_the_middle(lines)


def _ends_in_the_middle(lines: list[str]) -> bool:
    last, many = lines[-1].strip(), sum(map(len, lines)) >= 60
    if many and _DANGLING.search(last) and not last.endswith(("...", "…")):
        return True
    if last.count("`") % 2 and many:
        return True
    if _SENTENCE_END.search(last) or _LISTED.match(lines[-1]) or not last[-1].isalpha():
        return _template_breaks_off(lines)
    others = [line for line in lines[:-1] if not _HEADING.match(line) and not _LISTED.match(line)]
    ended = len(last) >= 40 and len(others) >= 2 and all(map(_SENTENCE_END.search, others))
    return ended or _template_breaks_off(lines)


def _template_breaks_off(lines: list[str]) -> bool:
    """The first headings of ours in order, and nothing of the last ones: as where the output ran out.

    Only for a text that stops at a list item without its end while its other items have theirs.
    """
    told = [line.lstrip("# ").strip() for line in lines if line.lstrip().startswith("## ")]
    if told != list(SECTIONS[: len(told)]) or not 2 <= len(told) <= len(SECTIONS) - 2:
        return False
    items = [line for line in lines if _LISTED.match(line)]
    ends = [bool(_SENTENCE_END.search(line)) for line in items]
    return len(ends) >= 4 and all(ends[:-1]) and not ends[-1]

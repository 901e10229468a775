"""Skills in the prompt: names and one line each. The model reads a SKILL.md when it needs it.

The front matter is read with a small reader of our own (names, quoted and folded texts): a YAML
library would be a dependency, and a way in, for two fields.
"""

from __future__ import annotations

import re

from perdure.records import Record

MAX_SKILLS = 150
MAX_CHARS = 30_000
DESCRIPTION_CHARS = 240
INTRO = (
    "Skills are instructions for kinds of tasks. When one clearly fits the task, read its file first and "
    "follow it; when several fit, take the most specific; when none does, read none. Available skills:"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FIELD = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:[ \t]*(.*)")


class Skill(Record):
    """One skill: its name, what it is for in one line, and the file to read."""

    name: str
    description: str
    path: str


def parse(text: str, path: str) -> Skill | str:
    """The skill that a SKILL.md declares, or one line that says what is missing."""
    fields = front_matter(text)
    if fields is None:
        return f"{path}: no front matter between --- lines: add name and description"
    name = fields.get("name", "").strip() or path.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
    if not _NAME.fullmatch(name):
        return f"{path}: name {name[:80]!r} is not a skill's name: letters, digits, - _ . (64 at most)"
    description = " ".join(fields.get("description", "").split())
    if not description:
        return f"{path}: no description: say in one line when the skill is used"
    return Skill(name, description, path)


def front_matter(text: str) -> dict[str, str] | None:
    """The top-level texts of a front matter block; None where there is none."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].rstrip() != "---":
        return None
    ends = [n for n, each in enumerate(lines[1:200], 1) if each.rstrip() in ("---", "...")]
    if not ends:
        return None
    fields: dict[str, str] = {}
    body = lines[1 : ends[0]]
    for n, each in enumerate(body):
        found = _FIELD.fullmatch(each.rstrip())
        if found is not None:
            fields.setdefault(found[1].lower(), _value(found[2], body[n + 1 :]))
    return fields


def _value(first: str, following: list[str]) -> str:
    """A plain, quoted or folded value; continuation lines are those that are indented."""
    indented = []
    for each in following:
        if each.strip() and not each.startswith((" ", "\t")):
            break
        indented.append(each.strip())
    if first[:1] in ("|", ">"):
        return " ".join(indented).strip()
    text = " ".join([first, *indented]).strip()
    quote = text[:1]
    if quote in ("'", '"') and quote in text[1:]:
        return text[1 : text.rindex(quote)].replace(quote * 2 if quote == "'" else '\\"', quote)
    return text.split(" #", 1)[0].strip()


def listing(skills: tuple[Skill, ...], max_chars: int = MAX_CHARS) -> str:
    """The section's text: full lines if they fit, else names only, else as many names as fit."""
    unique = {skill.name: skill for skill in sorted(skills, key=lambda s: (s.name, s.path), reverse=True)}
    chosen = [unique[name] for name in sorted(unique)]
    if not chosen:
        return ""
    for form in (_full, _short):
        text = _text([form(skill) for skill in chosen[:MAX_SKILLS]], len(chosen))
        if len(text) <= max_chars:
            return text
    kept: list[str] = []
    for skill in chosen[:MAX_SKILLS]:
        if len(_text([*kept, _short(skill)], len(chosen))) > max_chars:
            break
        kept.append(_short(skill))
    return _text(kept, len(chosen)) if kept else ""


def _text(lines: list[str], total: int) -> str:
    left_out = f"\n⚠️ Skills truncated: included {len(lines)} of {total}." if len(lines) < total else ""
    return "\n".join([INTRO, *lines]) + left_out


def _full(skill: Skill) -> str:
    text = " ".join(skill.description.split())
    text = text if len(text) <= DESCRIPTION_CHARS else text[: DESCRIPTION_CHARS - 1] + "…"
    return f"- {skill.name}: {text} ({_path(skill)})"


def _short(skill: Skill) -> str:
    return f"- {skill.name} ({_path(skill)})"


def _path(skill: Skill) -> str:
    return " ".join(skill.path.split())

"""Whether a command may run: pure decisions on the configured lists.

With an allow list a command is split into words and run without a shell, so what was matched is what
runs. The deny list is a guard rail against accidents, not a boundary: a shell has countless ways to
say the same thing. Deny wins.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Sequence

from perdure.edges.settings import ExecSettings
from perdure.records import Record

_OPERATORS = "();<>|&\n"
_META = frozenset("|&;<>()$`\\\"'*?[]#~={}!\n")


class Plan(Record):
    """What to run: words, and whether they go to a shell as one string."""

    argv: tuple[str, ...]
    shown: str


def plan(command: str | Sequence[str], settings: ExecSettings) -> Plan | str:
    """How the command is run, or one line that says why it isn't."""
    words = _words(command)
    if isinstance(words, str):
        return words
    shown = command if isinstance(command, str) else shlex.join(command)
    for pattern in settings.deny:
        if any(_fits(pattern, part) for part in _parts(command, words)):
            return f"The command is on the deny list ({pattern}); it was not run."
    if not settings.allow:
        return Plan(("/bin/sh", "-c", command) if isinstance(command, str) else tuple(words), shown)
    if isinstance(command, str) and (_META & set(command)) - set("\"'\\=~"):
        return "Only plain commands without shell syntax can run here; give the words as a list."
    if not any(_fits(pattern, words) for pattern in settings.allow):
        return f"The command is not on the allow list ({', '.join(settings.allow)}); it was not run."
    return Plan(tuple(words), shown)


def _words(command: str | Sequence[str]) -> list[str] | str:
    if not command or not (command if isinstance(command, str) else command[0]).strip():
        return "The command is empty."
    if any("\0" in part for part in ([command] if isinstance(command, str) else command)):
        return "The command holds a NUL byte, which no command can."
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError as error:
        return f"The command can't be split into words ({error})." if "\n" not in command else command.split()


def _parts(command: str | Sequence[str], words: list[str]) -> list[list[str]]:
    """The simple commands of a shell line, as far as they can be told, and each command by its base name."""
    parts = [words]
    if isinstance(command, str):
        lexer = shlex.shlex(command, posix=True, punctuation_chars=_OPERATORS)
        lexer.whitespace_split, lexer.commenters = True, ""
        part: list[str] = []
        try:
            for token in lexer:
                if set(token) <= set(_OPERATORS):
                    parts.append(part)
                    part = []
                else:
                    part.append(token)
        except ValueError:
            part = command.split()
        parts.append(part)
    named = [[os.path.basename(part[0]), *part[1:]] for part in parts if part]
    return [part for part in [*parts, *named] if part]


def _fits(pattern: str, words: Sequence[str]) -> bool:
    """`git` and `git status` fit a command's beginning, word by word; with `*` the whole line must fit."""
    wanted = pattern.split()
    if not wanted:
        return False
    if any(mark in pattern for mark in "*?["):
        return fnmatch.fnmatchcase(" ".join(words), " ".join(wanted))
    return list(words[: len(wanted)]) == wanted

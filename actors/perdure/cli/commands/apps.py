"""The command line and its groups; the commands add themselves."""

from __future__ import annotations

from cyclopts import App, Group


def version() -> str:
    """`perdure 1.2.3`."""
    from importlib.metadata import version

    return f"perdure {version('perdure')}"


app = App(
    name="perdure",
    help="Host LLM agent sessions that last for weeks, and look into their files.",
    version=version,
    version_flags=["--version"],
    help_format="plaintext",
    group_commands=Group("Options", sort_key=4),
)
HOSTING, CHANGING = Group("Run", sort_key=0), Group("Change one session", sort_key=1)
LOOKING = Group("Look (changes nothing)", sort_key=3)
KEEPING = Group("Keep a state folder", sort_key=2)
LISTED, BRANCHES = Group("Look (changes nothing)", sort_key=0), Group("Change one session", sort_key=1)
sessions = App(
    name="sessions",
    help="List and show sessions; go back in them, name and fork them.",
    version_flags=(),
    group=LOOKING,
    group_commands="Commands",
)
config = App(
    name="config",
    help="Look at the configuration.",
    version_flags=(),
    group=LOOKING,
    group_commands="Commands",
)
outbox = App(
    name="outbox",
    help="Answers that go out by a channel: list them, send or drop those that did not.",
    version_flags=(),
    group=CHANGING,
    group_commands="Commands",
)
schedules = App(
    name="schedules",
    help="Messages that come by the clock: list, add, remove them.",
    version_flags=(),
    group=CHANGING,
    group_commands="Commands",
)
memory = App(
    name="memory",
    help="What agents know beyond a session: let them forget.",
    version_flags=(),
    group=KEEPING,
    group_commands="Commands",
)
app.command(memory)
app.command(sessions)
app.command(outbox)
app.command(schedules)
app.command(config)

"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Json = Annotated[
    bool, Parameter(name="--json", negative="", help="Print one JSON object.", show_default=False)
]
State = Annotated[
    Path | None, Parameter(name="--state", help="State folder (default: PERDURE_HOME, else ~/.perdure).")
]
Window = Annotated[
    int | None, Parameter(name="--window", help="Context window in tokens (default: the model's own).")
]
Model = Annotated[
    str | None,
    Parameter(name="--model", help="Model as provider/id (default: the configured one, else scripted)."),
]
Backend = Annotated[
    Literal["asyncio", "uvloop", "trio"], Parameter(name="--loop", help="Event loop to run on.")
]
Force = Annotated[
    bool, Parameter(name="--force", negative="", help="Overwrite what is there.", show_default=False)
]
Connect = Annotated[
    str | None,
    Parameter(name="--connect", help="URL of a host elsewhere; its token is in PERDURE_TOKEN."),
]
Key = Annotated[str, Parameter(help="The session's key.")]
Entry = Annotated[str, Parameter(help="An entry: its id, the beginning of it, or a label.")]

"""`python -m conformance [FOLDER]`: exit 0 if every case passed or departed by a rule, 1 if one failed."""

from __future__ import annotations

import sys
from pathlib import Path

from conformance.runner import KEPT, files, run


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main(arguments: list[str]) -> int:
    """Run a folder of vectors; without one, those kept with the tests."""
    folder = Path(arguments[0]) if arguments and arguments[0] else KEPT
    if not folder.is_dir():
        _say(f"conformance: {folder} is no folder: name one that holds *.jsonl files of vectors")
        return 2
    found = files(folder)
    if not found:
        _say(f"conformance: {folder} holds no vectors: *.jsonl or *.jsonl.gz files are looked for")
        return 2
    failed = 0
    for path in found:
        report = run(path)
        failed += len(report.failed)
        for line in report.lines():
            _say(line)
    _say(f"conformance: {failed} failed" if failed else "conformance: nothing failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))

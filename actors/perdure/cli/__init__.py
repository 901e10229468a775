"""The command line: one command a module, all with `--json`, `--help` and honest exit codes."""

from perdure.cli.entry import main as main

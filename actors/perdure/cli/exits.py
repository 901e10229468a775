"""Exit codes beyond 0, 1 (found something) and 2 (a user's mistake)."""

from __future__ import annotations

BUG = 70  # EX_SOFTWARE of sysexits.h
UNWRITABLE = 74  # EX_IOERR: the output can't be written
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
UNREAD = 141  # 128 + SIGPIPE: nobody reads the output any more

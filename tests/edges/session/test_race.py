"""A appends at full speed in another process, B takes the file over at random moments.

`RACE_ROUNDS=400` runs the full count; the default is a few seconds' worth.
"""

import os
import random
import subprocess
import sys

from helpers_files import HEADER, entry
from perdure.edges.session import swap

ROUNDS = int(os.environ.get("RACE_ROUNDS", "30"))

OWNER = """
import sys
from pathlib import Path
from helpers_files import held
from perdure.errors import Fenced
from perdure.edges.session.writer import ForeignWrite
for name in sys.stdin:
    file, acked = held(Path(name.strip())), 0
    print("go", flush=True)
    try:
        while True:
            file.append([b'{"a":%d,"x":"%s"}\\n' % (acked, b"x" * (acked % 700))])
            acked += 1
    except (Fenced, ForeignWrite):
        print(acked, flush=True)
"""


def test_nothing_acknowledged_is_lost_and_no_line_of_the_old_owner_follows_the_new_ones(tmp_path):
    chance, total = random.Random(7), 0
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        for n in range(ROUNDS):
            path = tmp_path / f"{n}.jsonl"
            path.write_bytes(HEADER)
            owner.stdin.write(f"{path}\n")
            owner.stdin.flush()
            assert owner.stdout.readline() == "go\n"
            moment = chance.randrange(1_000_000)  # bytes
            while path.stat().st_size < moment:
                pass
            swap.take_over(path, 2, sync=False)
            with path.open("ab", buffering=0) as heir:
                heir.write(entry(0))
            acked = int(owner.stdout.readline())
            total += acked
            lines = path.read_bytes().splitlines(keepends=True)
            assert lines[0] == HEADER
            assert lines[-1] == entry(0), "the old owner wrote behind the new one"
            for i in range(acked):
                assert lines[1 + i] == b'{"a":%d,"x":"%s"}\n' % (i, b"x" * (i % 700)), f"line {i} of {acked}"
            path.unlink()
        owner.stdin.close()
    assert total > ROUNDS

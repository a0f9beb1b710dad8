"""A load process: `python load.py suppliers|consumers SAMPLES` reads its task from the first line of standard input.

It says `ready` when it is connected, reads from the second line when to start, and says at the end what it did, all in
lines of JSON. Consumers write their samples to the file SAMPLES.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cepheid._native import run_consumers, run_suppliers


def main() -> None:
    role, samples = sys.argv[1], Path(sys.argv[2])
    task = sys.stdin.readline()

    def ready() -> int:
        print(json.dumps({"ready": role}), flush=True)
        return int(sys.stdin.readline())

    if role == "suppliers":
        done = run_suppliers(task, ready)
    else:
        done, found = run_consumers(task, ready)
        samples.write_bytes(found)
    print(done, flush=True)


if __name__ == "__main__":
    main()

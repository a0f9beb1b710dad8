"""What a fresh process takes for a query about the past: seconds to the first match and to the last, as JSON.

With a fourth argument it asks again and again, a line each time, until it is ended.
"""

from __future__ import annotations

import json
import sys
import time

BEGAN = time.time()


def main() -> None:
    from cepheid.app import load
    from cepheid.history import query

    path, text, now = sys.argv[1:4]
    app, began = load(path), BEGAN
    while True:
        first = None
        for _ in query(app, text, now=int(now)).lines():
            first = time.time() - began if first is None else first
        print(json.dumps([first, time.time() - began]), flush=True)
        if len(sys.argv) == 4:
            return
        began = time.time()


if __name__ == "__main__":
    main()

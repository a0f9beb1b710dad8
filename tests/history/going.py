"""A pipeline that is waited for, on a machine that may be busy."""

from __future__ import annotations

import time

from cepheid.history.pipeline import PartFailed, Pipeline


def go_through(pipeline: Pipeline) -> None:
    """Waits until all that is there went through; a part whose worker was too slow to start is started again."""
    deadline = time.monotonic() + 200
    while True:
        pipeline.tend()
        try:
            pipeline.process_all()
        except PartFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
            continue
        if all(status.state == "running" for status in pipeline.status()) or time.monotonic() > deadline:
            return
        time.sleep(0.5)

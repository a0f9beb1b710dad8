"""Which small files are made large: many of a size, few of a quiet day, and no byte again and again."""

from __future__ import annotations

import pytest

from cepheid.spark.compaction import _CLASSES, FEW, MANY, QUIET, SMALL, SmallFiles

NOW = 1e9


@pytest.mark.parametrize(
    ("counts", "age", "limit"),
    [
        ((MANY, 0), 0.0, _CLASSES[0]),
        ((MANY - 1, MANY - 1), 0.0, None),
        # What is smaller is taken with it.
        ((3, MANY), 0.0, SMALL),
        ((MANY, MANY), 0.0, SMALL),
        ((FEW - 1, 1), QUIET, SMALL),
        ((FEW - 1, 1), QUIET - 1, None),
        ((FEW - 1, 0), 10 * QUIET, None),
    ],
)
def test_what_is_made_large_and_when(counts: tuple[int, int], age: float, limit: int | None) -> None:
    assert SmallFiles("2012-05-07", counts, NOW - age).limit(NOW) == limit


@pytest.mark.parametrize("size", [3_000, 4_000, 30_000, 150_000])
def test_a_day_of_batches_is_written_again_at_most_twice(size: int) -> None:
    """A file every two seconds, and a look at them every minute."""
    batches, footer = 24 * 3600 // 2, 2_700
    files, again, most = list[int](), 0, 0
    for batch in range(batches):
        files.append(size)
        if batch % 30 == 0:
            counts = sum(f < _CLASSES[0] for f in files), sum(_CLASSES[0] <= f < SMALL for f in files)
            most = max(most, len(files) - sum(f >= SMALL for f in files))
            if limit := SmallFiles(None, counts, NOW).limit(NOW):
                small = [f for f in files if f < limit]
                made = footer + sum(f - footer for f in small)
                files, again = [f for f in files if f >= limit] + [made], again + made
    assert again < 2 * batches * size
    assert most < 4 * MANY
    assert len(files) <= batches * size / SMALL + 2 * MANY

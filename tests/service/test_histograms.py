"""What histograms say: of all that came, of what came between two looks, and up to which bounds."""

from __future__ import annotations

from cepheid.app.builder import Builder
from cepheid.service import Engine
from cepheid.service.histograms import percentile, since, within


def test_what_came_since_a_look() -> None:
    before, after = [(10, 5), (20, 1)], [(10, 5), (15, 2), (20, 4)]
    assert since(before, after) == [(15, 2), (20, 3)]
    assert since([], after) == after
    assert since(after, after) == []
    # An engine that was started again counts anew.
    assert since(after, before) == before
    assert since([(10, 1)], [(20, 7)]) == [(20, 7)]


def test_percentiles() -> None:
    assert percentile([], 99) is None
    assert percentile([(7, 1)], 50) == 7
    buckets = [(10, 50), (20, 49), (30, 1)]
    assert [percentile(buckets, percent) for percent in (1, 50, 51, 99, 99.9, 100)] == [10, 10, 20, 20, 30, 30]


def test_what_is_within_bounds() -> None:
    assert within([(9, 1), (10, 2), (11, 4), (500, 8)], [5, 10, 50, 1000]) == [0, 3, 7, 15]
    assert within([], [1, 2]) == [0, 0]


def test_an_engines_histograms_are_what_its_books_sum_up() -> None:
    build = Builder("plant")
    build.consumer("c", build.threshold("high", build.stream("s", {"x": "float"}), above=1.0))
    with Engine(build.build()) as engine:
        for number in range(200):
            engine.push("s", {"x": float(number)})
        assert engine.settle()
        found, books = engine.histograms(), engine.stats()
    assert found.keys() == {"consumers", "delays", "levels", "operators", "queries"}
    for parts, key in (("consumers", "latency"), ("levels", "latency"), ("operators", "run")):
        for name, book in books[parts].items():
            spread = found[parts][name]
            assert sum(count for _, count in spread["buckets"]) == book[key]["count"] == 200
            assert spread["sum_ns"] // 200 == book[key]["mean_ns"]
            for percent, field in ((50, "p50_ns"), (99, "p99_ns")):
                assert min(percentile(spread["buckets"], percent) or 0, book[key]["max_ns"]) == book[key][field]

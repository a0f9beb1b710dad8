"""The reference of graphs, by examples of each rule worked out by hand."""

from __future__ import annotations

from collections import Counter

from tests.reference.graph import Consumer, Delivery, Graph, Operator, Stream, VirtualClock

NO_MARKS = frozenset[str]()


def clock(*nodes: Stream | Operator | Consumer) -> VirtualClock:
    return VirtualClock(
        Graph(
            tuple(n for n in nodes if isinstance(n, Stream)),
            tuple(n for n in nodes if isinstance(n, Operator)),
            tuple(n for n in nodes if isinstance(n, Consumer)),
        )
    )


def feed(clock: VirtualClock, *events: tuple[str, int, int]) -> list[tuple[int, ...]]:
    """Pushes and runs each (stream, number, time), the clock at the event's time; what consumers received."""
    for stream, number, time in events:
        clock.push(stream, number, time)
        clock.run(max(time, clock.now))
    return [delivery.parts for delivery in clock.deliveries]


def test_g1_validity_is_the_overlap_of_the_inputs() -> None:
    c = clock(Stream("a", 10), Stream("b", 4), Operator("o", ("a", "b")), Consumer("c", "o"))
    feed(c, ("a", 1, 100), ("b", 2, 103))
    (found,) = c.deliveries
    assert found == Delivery("c", found.id, 103, 107, NO_MARKS, (1, 2))


def test_what_is_made_again_has_the_id_that_it_had() -> None:
    def ids(*events: tuple[str, int, int]) -> list[int]:
        nodes = [Operator("pair", ("a", "b")), Operator("each", ("pair",)), Operator("any", ("a", "b"), fire="any")]
        consumers = [Consumer(f"of_{node.name}", node.name) for node in nodes]
        c = clock(Stream("a"), Stream("b"), *nodes, *consumers)
        feed(c, *events)
        return [d.id for d in c.deliveries if d.consumer != "of_each"]

    whole = ids(("a", 1, 10), ("b", 1, 11), ("a", 2, 12), ("b", 2, 13))
    assert len(set(whole)) == len(whole) == 6
    assert ids(("a", 2, 12), ("b", 2, 13)) == whole[3:]


def test_g1_stale_begins_at_the_end() -> None:
    c = clock(Stream("a", 10), Consumer("c", "a", "shed"))
    c.push("a", 1, 100)
    c.run(109)
    c.push("a", 2, 101)
    c.run(111)
    assert [d.parts for d in c.deliveries] == [(1,)]
    assert c.fates()["a"] == Counter(used=1, expired=1)


def test_g2_a_relative_set_includes_its_border() -> None:
    relative = ((("a", "b"), 5),)
    c = clock(Stream("a"), Stream("b"), Operator("o", ("a", "b"), relative=relative), Consumer("c", "o"))
    feed(c, ("a", 1, 100), ("b", 2, 105), ("a", 3, 200), ("b", 4, 206))
    assert [d.marks for d in c.deliveries] == [NO_MARKS, {"relative"}]


def test_g3_shed_releases_what_is_stale_and_keeps_the_rest() -> None:
    c = clock(Stream("a", 10), Stream("b"), Operator("o", ("a", "b"), stale="shed"), Consumer("c", "o", "shed"))
    assert feed(c, ("a", 1, 100), ("b", 2, 120)) == []
    assert c.books["o", "a", "expired"] == 1
    assert feed(c, ("a", 3, 125)) == [(3, 2)]


def test_g3_shed_releases_the_earliest_of_a_broken_set_only() -> None:
    relative = ((("a", "b"), 5),)
    c = clock(
        Stream("a"), Stream("b"), Operator("o", ("a", "b"), relative=relative, stale="shed"), Consumer("c", "o", "shed")
    )
    assert feed(c, ("b", 1, 100), ("a", 2, 110)) == []
    assert (c.books["o", "b", "shed"], c.held()["o", "a"]) == (1, 1)
    assert feed(c, ("b", 3, 112)) == [(2, 3)]


def test_g4_newer_replaces_older_and_used_is_never_used_again() -> None:
    c = clock(Stream("a"), Stream("b"), Operator("o", ("a", "b")), Consumer("c", "o"))
    assert feed(c, ("a", 1, 1), ("a", 2, 2), ("b", 3, 3), ("b", 4, 4), ("a", 5, 5)) == [(2, 3), (5, 4)]
    assert c.books["o", "a", "replaced"] == 1


def test_g4_replacement_is_at_that_operator_only() -> None:
    c = clock(
        Stream("a"),
        Stream("b"),
        Operator("both", ("a", "b")),
        Operator("each", ("a",)),
        Consumer("c", "both"),
        Consumer("d", "each"),
    )
    assert feed(c, ("a", 1, 1), ("a", 2, 2), ("b", 3, 3)) == [(1,), (2,), (2, 3)]


def test_g4_fire_any() -> None:
    c = clock(Stream("a"), Stream("b"), Operator("o", ("a", "b"), fire="any"), Consumer("c", "o"))
    assert feed(c, ("a", 1, 1), ("a", 2, 2), ("b", 3, 3)) == [(1,), (2,), (3,)]


def test_g5_the_input_queue_keeps_the_newest_in_the_place_of_the_oldest() -> None:
    c = clock(Stream("a", replace=True), Stream("b"), Consumer("c", "a"), Consumer("d", "b"))
    for number, stream in enumerate("aabb"):
        c.push(stream, number, number)
    c.run(9)
    assert [d.parts for d in c.deliveries] == [(1,), (2,), (3,)]
    assert c.books["InputQ", "a", "replaced"] == 1


def test_g6_order_is_by_level_then_position() -> None:
    c = clock(
        Stream("a"),
        Operator("low", ("a",), level=1),
        Operator("second", ("a",), level=0),
        Operator("third", ("second",), level=0),
        Consumer("x", "low"),
        Consumer("y", "second"),
        Consumer("z", "third"),
    )
    feed(c, ("a", 1, 1))
    assert [d.consumer for d in c.deliveries] == ["y", "z", "x"]

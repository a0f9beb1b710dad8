"""The cache of the semantic filter: what is kept, what is asked for again, and what a fault leaves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cepheid.knowledge.modes import Cache


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 4), st.integers(1, 7))
def test_it_lets_go_of_the_least_recently_used(keys: Sequence[int], entries: int, portion: int) -> None:
    cache, plain, asked = Cache(entries), OrderedDict[int, None](), []
    for start in range(0, len(keys), portion):
        mine, _ = cache.missing([(key,) for key in keys[start : start + portion]])
        asked += mine
        cache.know({key: ((key[0],),) for key in mine})
    wanted = []
    for key in keys:
        if key not in plain:
            wanted.append((key,))
        plain[key] = None
        plain.move_to_end(key)
        if len(plain) > entries:
            plain.popitem(last=False)
    assert asked == wanted
    assert cache.misses == len(wanted)
    assert cache.hits == len(keys) - len(wanted)
    assert dict(cache.rows) == {(key,): ((key,),) for key in plain}


def test_what_got_no_answer_is_not_kept() -> None:
    cache = Cache(2)
    asked, _ = cache.missing([("a",)])
    cache.forget(asked)
    assert cache.missing([("a",)])[0] == [("a",)]

"""BLAKE2b of a match's id as an expression of Spark, which has no such function: for plans in which no Python runs.

All bytes but those of the event's id are known beforehand, so that one block is left to compress for a row, seldom two.
The rounds are those of RFC 7693, on rows of four words, as a fold over the steps: a step adds to one row and turns
another, and the rows then change places. It costs some thousand times what the native core needs, for matches only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from cepheid.model.matches import prefix_of

_BLOCK: Final = 128
_LOW: Final = 0xFFFFFFFF
_START: Final = (
    0x6A09E667F3BCC908,
    0xBB67AE8584CAA73B,
    0x3C6EF372FE94F82B,
    0xA54FF53A5F1D36F1,
    0x510E527FADE682D1,
    0x9B05688C2B3E6C1F,
    0x1F83D9ABFB41BD6B,
    0x5BE0CD19137E2179,
)
_ORDER: Final = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
#: A step: the message words that it adds (-1: none), how far it turns, and by how much the rows then shift.
_Step: TypeAlias = tuple[list[int], int, list[int]]


def with_match_id(frame: DataFrame, column: str, normal_form: str, variable: str, stream: str, event: str) -> DataFrame:
    """The DataFrame with the ids of matches of single events, whose ids are integers in the column `event`."""
    before = prefix_of(normal_form, variable, stream)
    whole = before + bytes(8) + (0).to_bytes(4, "little")
    first = len(before) // _BLOCK
    state = _parameters()
    for number in range(first):
        state = _compressed(state, whole[number * _BLOCK : (number + 1) * _BLOCK], (number + 1) * _BLOCK)
    held = sf.array(*(sf.lit(_signed(word)) for word in state))
    names = []
    for number in range(first, -(-len(whole) // _BLOCK)):
        block = whole[number * _BLOCK : (number + 1) * _BLOCK].ljust(_BLOCK, b"\0")
        words = _words(block, len(before) - number * _BLOCK, sf.col(f"`{event}`"))
        end = min((number + 1) * _BLOCK, len(whole))
        names.append(f"\0hash_{number}")
        # A column by itself, so that it is computed once, however often it is read.
        frame = frame.withColumn(names[-1], _compress(held, words, end, last=end == len(whole)))
        held = sf.col(f"`{names[-1]}`")
    digest = sf.concat(*(sf.lpad(sf.lower(sf.hex(_turned_bytes(held[i]))), 16, "0") for i in (0, 1)))
    return frame.withColumn(column, digest).drop(*names)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _parameters() -> list[int]:
    """The state before the first block: 16 bytes of digest, personalised."""
    person = struct.unpack("<2Q", b"cepheid-match-1".ljust(16, b"\0"))
    given = (0x01010010, 0, 0, 0, 0, 0, *person)
    return [word ^ own for word, own in zip(_START, given, strict=True)]


def _steps() -> list[_Step]:
    """Twelve rounds, each down the columns and along the diagonals, four steps each."""
    found: list[_Step] = []
    for number in range(12):
        order = _ORDER[number % 10]
        for half, shifts in ((order[:8], [0, 1, 2, 3]), (order[8:], [0, 3, 2, 1])):
            none, still = [-1] * 4, [0] * 4
            found += [(list(half[0::2]), 32, still), (none, 24, still), (list(half[1::2]), 16, still)]
            found.append((none, 63, shifts))
    return found


def _compressed(state: Sequence[int], block: bytes, count: int) -> list[int]:
    """What is known beforehand, in Python; never the last block."""
    words = struct.unpack("<16Q", block)
    mask = (1 << 64) - 1
    p, q, r = list(state[:4]), list(state[4:]), list(_START[:4])
    s = [_START[4] ^ count, *_START[5:]]
    for added, bits, shifts in _steps():
        p = [(a + b + (words[i] if i >= 0 else 0)) & mask for a, b, i in zip(p, q, added, strict=True)]
        turned = [d ^ a for d, a in zip(s, p, strict=True)]
        turned = [(v >> bits | v << (64 - bits)) & mask for v in turned]
        rows = [r, turned, p, q]
        p, q, r, s = ([*row[k:], *row[:k]] for row, k in zip(rows, shifts, strict=True))
    return [h ^ a ^ b for h, a, b in zip(state, [*p, *q], [*r, *s], strict=True)]


def _words(block: bytes, place: int, event: Column) -> Column:
    """The words of a block in which the eight bytes at a place, which may be partly outside, are the event's id."""
    found = []
    for number, word in enumerate(struct.unpack("<16Q", block)):
        value = sf.lit(_signed(word))
        bits = 8 * (place - 8 * number)
        if 0 <= bits < 64:
            value = value.bitwiseOR(sf.shiftleft(event, bits))
        elif -64 < bits < 0:
            value = value.bitwiseOR(sf.shiftrightunsigned(event, -bits))
        found.append(value)
    return sf.array(*found)


def _compress(state: Column, words: Column, count: int, *, last: bool) -> Column:
    flag = (1 << 64) - 1 if last else 0
    fourth = (_START[4] ^ count, _START[5], _START[6] ^ flag, _START[7])
    begin = sf.struct(
        sf.slice(state, 1, 4).alias("p"),
        sf.slice(state, 5, 4).alias("q"),
        sf.array(*(sf.lit(_signed(w)) for w in _START[:4])).alias("r"),
        sf.array(*(sf.lit(_signed(w)) for w in fourth)).alias("s"),
        words.alias("m"),
    )
    # Adding and turning are elements of their own: what a fold has is computed once, and an expression as often as it
    # is written.
    none = sf.array(*map(sf.lit, [0] * 4))
    elements = []
    for added, bits, shifts in _steps():
        elements.append((sf.array(*map(sf.lit, added)), sf.lit(0)))
        elements.append((sf.array(*map(sf.lit, shifts)) if any(shifts) else none, sf.lit(bits)))
    numbers = sf.array(*(sf.struct(given.alias("given"), bits.alias("bits")) for given, bits in elements))

    def step(held: Column, at: Column) -> Column:
        sums = sf.zip_with(held["p"], held["q"], _sum)
        p = sf.zip_with(sums, at["given"], lambda v, i: sf.when(i < 0, v).otherwise(_sum(v, sf.get(held["m"], i))))
        added = sf.struct(p.alias("p"), *(held[name].alias(name) for name in "qrsm"))
        turned = sf.zip_with(held["s"], held["p"], lambda d, a: _rotated(d.bitwiseXOR(a), at["bits"]))
        rows = {"p": held["r"], "q": turned, "r": held["p"], "s": held["q"]}
        shifted = [_shifted(row, at["given"][i]).alias(name) for i, (name, row) in enumerate(rows.items())]
        return sf.when(at["bits"] == 0, added).otherwise(sf.struct(*shifted, held["m"].alias("m")))

    def finish(held: Column) -> Column:
        low, high = sf.concat(held["p"], held["q"]), sf.concat(held["r"], held["s"])
        mixed = sf.zip_with(low, high, lambda a, b: a.bitwiseXOR(b))
        return sf.zip_with(state, mixed, lambda a, b: a.bitwiseXOR(b))

    return sf.aggregate(numbers, begin, step, finish)


def _sum(a: Column, b: Column) -> Column:
    """Modulo 2^64, which plain addition would call an overflow."""
    low = a.bitwiseAND(sf.lit(_LOW)) + b.bitwiseAND(sf.lit(_LOW))
    high = sf.shiftrightunsigned(a, 32) + sf.shiftrightunsigned(b, 32) + sf.shiftrightunsigned(low, 32)
    return sf.shiftleft(high, 32).bitwiseOR(low.bitwiseAND(sf.lit(_LOW)))


def _rotated(word: Column, bits: Column) -> Column:
    right = sf.call_function("shiftrightunsigned", word, bits)
    return right.bitwiseOR(sf.call_function("shiftleft", word, 64 - bits))


def _shifted(row: Column, by: Column) -> Column:
    return sf.concat(sf.slice(row, by + 1, 4 - by), sf.slice(row, sf.lit(1), by))


def _turned_bytes(word: Column) -> Column:
    """The bytes of a word the other way round."""
    for bits, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF)):
        high = sf.shiftrightunsigned(word, bits).bitwiseAND(sf.lit(mask))
        word = high.bitwiseOR(sf.shiftleft(word.bitwiseAND(sf.lit(mask)), bits))
    return sf.shiftrightunsigned(word, 32).bitwiseOR(sf.shiftleft(word, 32))

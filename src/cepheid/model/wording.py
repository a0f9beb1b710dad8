"""How raw values are shown in messages: short, printable, on one line, whatever they hold."""

from __future__ import annotations

import reprlib
from typing import Final

_KINDS: Final = {bool: "bool", int: "int", float: "float", str: "string", list: "array", dict: "object"}
_LENGTH: Final = 40

# A record can be 4 MiB long and nested a thousand deep, and repr() would follow it all the way.
_short = reprlib.Repr()
_short.maxlevel = 3
_short.maxlist = _short.maxdict = 8
_short.maxstring = _short.maxlong = _short.maxother = _LENGTH


def quote(text: str) -> str:
    """Text between quotes, cut if long, with what cannot be printed escaped: `'a\\nb'`."""
    shown = repr(text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "...")
    kept = min(len(text), _LENGTH - 3)
    while len(shown) > 2 * _LENGTH:  # an escape takes up to ten characters
        kept -= 1
        shown = repr(text[:kept] + "...")
    return shown


def describe(raw: object) -> str:
    """A raw value in an error: its kind and a short form of it, such as `string 'abc'`."""
    if raw is None:
        return "null"
    if isinstance(raw, str):
        return f"string {quote(raw)}"
    return f"{_KINDS.get(type(raw), type(raw).__name__)} {shorten(raw)}"


def shorten(raw: object) -> str:
    """A short form of a raw value that is not text."""
    if isinstance(raw, int) and abs(raw) >= 10**_LENGTH:
        return f"of {raw.bit_length():,} bits"  # Python refuses to print the largest
    text = _short.repr(raw)
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."

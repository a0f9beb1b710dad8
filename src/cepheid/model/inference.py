"""Streams as the input shows them, where no application declares them (rule E3).

    with rereadable(["airflow.jsonl", "-"]) as files:
        streams = infer(files).streams
        for item in read_events(files, streams): ...

What shows a type:

- JSON: bool, int, float, string by the value. Text that looks like a time stays a string: only `time` is a time. An
  array is array<uint8> if all arrays of the attribute hold nothing but integers in 0..255, else array<float>.
- CSV: bool, int and float by the text of the cell, else string. `007` is a string, and so are numbers that stand in
  one column with it.
- Parquet: the file's own schema.

Int and float together are float. Other mixtures are an error that names both lines. An attribute that is always null
has the type that other streams give it, if they agree; else nulls are all that is known of it (`Stream.nulls`).

A record that names no stream belongs to the only one. If no record names any, that is the only one that is asked for;
or else it is named after the file, or "events" if there are several files or it is standard input.

A record that can be no event of any stream (no time, NaN, an object as a value) has no say; it will be a dead letter.
A stream that has no other records is none, but it is known by name (`ruined`), so that each is refused for what is
wrong with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from cepheid.model.columns import Columns
from cepheid.model.evidence import (
    Disagreement,
    Evidence,
    Place,
    Shown,
    shown_by_cell,
    shown_by_column,
    shown_by_id,
    shown_by_json,
)
from cepheid.model.files import EXTENSIONS, EventFile, Format, Source, event_file
from cepheid.model.parquet_rows import parquet_kinds
from cepheid.model.rows import rows
from cepheid.model.streams import IMPLIED, Stream
from cepheid.model.types import Misfit, Raw, Type, timestamp, timestamp_text
from cepheid.model.wording import quote

_ADVICE: Final = "make them one, or declare the stream in an application"


class MixedTypes(ValueError):
    """Values of one attribute, or ids of one stream, that are of different types; the message names two lines."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """What files show: streams in the order of their first records, and those of which no record can be an event."""

    streams: tuple[Stream, ...]
    ruined: tuple[Stream, ...] = ()


def infer(sources: Iterable[Source], file_format: Format | None = None, asked: Collection[str] = ()) -> Inferred:
    """The streams that files show; `asked` are the names of those that are read.

    The files are read to their ends, and will be read again for the events: see `rereadable`.
    """
    files = [event_file(source, file_format) for source in sources]
    events, misfits = _Shapes(), _Shapes()
    for position, file in enumerate(files):
        if file.is_once_only:
            raise ValueError(f"{file.name} can be read only once; wrap the files in rereadable()")
        _Survey(file, position).run(events, misfits)
    default = next(iter(asked)) if len(asked) == 1 else _default_name(files)
    streams = events.by_stream(default)
    # Attributes that only misfits have are known too, so that each misfit is refused for what is wrong with it.
    guesses = misfits.by_stream(next(iter(streams)) if len(streams) == 1 else default)
    if not streams:
        streams = guesses
    for name, shape in streams.items():
        if name in guesses:
            shape.fall_back_on({name: evidence.fallback for name, evidence in guesses[name].attributes.items()})
    shapes = {**guesses, **streams}
    return Inferred(
        tuple(_stream(name, shape, streams, files) for name, shape in streams.items()),
        tuple(_stream(name, shape, shapes, files) for name, shape in guesses.items() if name not in streams),
    )


@dataclass(slots=True)
class _Shape:
    """What the records of one stream have shown."""

    ids: Evidence = field(default_factory=Evidence)
    attributes: dict[str, Evidence] = field(default_factory=dict)

    def attribute(self, name: str) -> Evidence:
        return self.attributes.setdefault(name, Evidence())

    def add(self, other: _Shape) -> None:
        self.ids.add(other.ids)
        for name, evidence in other.attributes.items():
            self.attribute(name).add(evidence)

    def fall_back_on(self, kinds: Mapping[str, Type | None]) -> None:
        """Types for attributes that show none; an attribute that was not known is now, as one of nulls."""
        for name, kind in kinds.items():
            evidence = self.attribute(name)
            evidence.fallback = evidence.fallback or kind


class _Shapes:
    """The shapes of all streams, by the name that records give; None for those that give none."""

    def __init__(self) -> None:
        self._by_name: dict[str | None, _Shape] = {}

    def of(self, name: str | None) -> _Shape:
        return self._by_name.setdefault(name, _Shape())

    def by_stream(self, default: str) -> dict[str, _Shape]:
        """With the records that name no stream given to the only one, which is `default` if none is named.

        Beside several streams they belong to none, and will be dead letters.
        """
        named = {name: shape for name, shape in self._by_name.items() if name is not None}
        if None in self._by_name and len(named) < 2:
            only = next(iter(named), default)
            named.setdefault(only, _Shape()).add(self._by_name[None])
        return named


class _Survey:
    """Reads one file and notes what its records show."""

    def __init__(self, file: EventFile, position: int) -> None:
        self._file = file
        self._position = position
        self._is_text = file.format == "csv"
        self._kinds = parquet_kinds(file) if file.format == "parquet" else {}

    def run(self, events: _Shapes, misfits: _Shapes) -> None:
        streams = set()
        for number, record, _ in rows(self._file, Columns(None)):
            if isinstance(record, Misfit):
                continue
            try:
                stream = _stream_name(record)
                _check_time(record.get("time"), self._is_text)
                shown_id = shown_by_id(record.get("id"), self._is_text)
                shown = [(name, self._shown(name, raw)) for name, raw in record.items() if name not in IMPLIED]
            except Misfit:
                self._note_misfit(record, misfits)
                continue
            streams.add(stream)
            shape, place = events.of(stream), (self._position, number)
            shape.ids.first.setdefault(shown_id, place)
            for name, kind in shown:
                shape.attribute(name).first.setdefault(kind, place)
        for stream in streams:
            events.of(stream).fall_back_on(
                {name: kind for name, kind in self._kinds.items() if name not in IMPLIED},
            )

    def _shown(self, name: str, raw: Raw) -> Shown:
        if self._kinds:
            return shown_by_column(self._kinds[name], raw)
        return shown_by_cell(raw) if self._is_text and isinstance(raw, str) else shown_by_json(raw)

    def _note_misfit(self, record: Mapping[str, Raw], misfits: _Shapes) -> None:
        """Note what a record that cannot be an event may have meant."""
        try:
            shape = misfits.of(_stream_name(record))
        except Misfit:
            return
        with suppress(Misfit):
            shown_id = shown_by_id(record.get("id"), self._is_text)
            shape.ids.fallback = shape.ids.fallback or Evidence({shown_id: (self._position, 0)}).agreed()
        for name, raw in record.items():
            if name in IMPLIED:
                continue
            try:
                guess = Evidence({self._shown(name, raw): (self._position, 0)}).agreed()
            except Misfit as misfit:
                guess = Type.FLOAT if misfit.code == "not-finite" else None
            shape.fall_back_on({name: guess})


def _stream_name(record: Mapping[str, Raw]) -> str | None:
    raw = record.get("stream")
    if raw is None or raw == "":
        return None
    return str(Type.STRING.from_json(raw))


def _check_time(raw: Raw, is_text: bool) -> None:
    if raw is None or raw == "":
        raise Misfit("missing-time", "no 'time'")
    if is_text and isinstance(raw, str):
        timestamp_text(raw)
    else:
        timestamp(raw)


def _default_name(files: Sequence[EventFile]) -> str:
    if len(files) == 1:
        path = Path(files[0].name.removesuffix(".gz"))
        if path.suffix.lower() in EXTENSIONS:
            return path.stem
    return "events"


def _stream(name: str, shape: _Shape, shapes: Mapping[str, _Shape], files: Sequence[EventFile]) -> Stream:
    attributes: dict[str, Type | None] = {}
    for attribute, evidence in shape.attributes.items():
        try:
            kind = evidence.agreed()
        except Disagreement as error:
            raise _mixed(attribute, error, files) from None
        attributes[attribute] = kind or _type_elsewhere(attribute, shapes)
    return Stream(
        name,
        {attribute: kind or Type.STRING for attribute, kind in attributes.items()},
        id_kind=_id_kind(shape.ids, files),
        nulls=frozenset(attribute for attribute, kind in attributes.items() if kind is None),
    )


def _type_elsewhere(attribute: str, shapes: Mapping[str, _Shape]) -> Type | None:
    """The one type that an attribute has in all streams that have values of it."""
    kinds = set()
    for shape in shapes.values():
        if attribute in shape.attributes:
            try:
                kinds.add(shape.attributes[attribute].agreed())
            except Disagreement:
                return None
    kinds.discard(None)
    return kinds.pop() if len(kinds) == 1 else None


def _id_kind(ids: Evidence, files: Sequence[EventFile]) -> Literal["int", "string"]:
    try:
        kind = ids.agreed()
    except Disagreement as error:
        raise _mixed("id", error, files) from None
    if kind is not None and "null" in ids.first:
        without = ids.first["null"]
        given = min(place for shown, place in ids.first.items() if shown != "null")
        later = f"{_where(max(without, given), files)}: " + ("no 'id'" if without > given else "'id' is given")
        earlier = f"{_where(min(without, given), files)} has " + ("one" if without > given else "none")
        raise MixedTypes(f"{later}, but {earlier}; give one to all records of a stream or to none")
    return "string" if kind is Type.STRING else "int"


def _mixed(name: str, error: Disagreement, files: Sequence[EventFile]) -> MixedTypes:
    (earlier, earlier_kind), (later, later_kind) = error.earlier, error.later
    return MixedTypes(
        f"{_where(later, files)}: {quote(name)} is {later_kind.value}, but {_where(earlier, files)} has "
        f"{earlier_kind.value}; {_ADVICE}"
    )


def _where(place: Place, files: Sequence[EventFile]) -> str:
    position, line = place
    return f"{files[position].name}:{line}"

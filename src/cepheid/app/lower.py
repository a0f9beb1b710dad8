"""From the sections of an application to its graph: where every front end meets."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from cepheid.app.schema import ApplicationSection, OperatorSection, QuerySection, StreamSection
from cepheid.language.outline import outline
from cepheid.model.names import suggestion
from cepheid.model.streams import Stream
from cepheid.plan.graph import Consumer, Graph, Operator, Parameter, Query, Relative
from cepheid.plan.problems import Problem, error


def lower(app: ApplicationSection, broken: frozenset[str] = frozenset()) -> tuple[Graph, list[Problem]]:
    """The graph of an application, and what prevents a query from having a place in it."""
    problems: list[Problem] = []
    graph = Graph(
        levels=tuple(app.levels),
        streams={name: lower_stream(name, section) for name, section in app.streams.items()},
        operators={name: _operator(name, section) for name, section in app.graph.items()},
        queries={name: _query(app, name, section, problems) for name, section in app.queries.items()},
        consumers={name: Consumer(name, c.input, c.level, c.stale) for name, c in app.consumers.items()},
        archived=app.archive is not None,
        broken=broken,
    )
    return graph, problems


def lower_stream(name: str, section: StreamSection) -> Stream:
    """The stream of a section."""
    return Stream(
        name=name,
        attributes=dict(section.attributes),
        spellings={attribute: tuple(spellings) for attribute, spellings in section.spellings.items()},
        key=tuple(section.key),
        id_kind=section.id,
        extras=section.extras,
        period=section.period,
        valid_for=section.valid_for,
        lateness=section.lateness,
        idle=section.idle,
    )


_COMMON = frozenset(OperatorSection.model_fields)


def _operator(name: str, section: OperatorSection) -> Operator:
    own = sorted(field for field in type(section).model_fields if field not in _COMMON)
    return Operator(
        name=name,
        kind=section.kind,
        inputs=tuple(map(str, section.inputs)),
        parameters=tuple((field, _parameter(getattr(section, field))) for field in own),
        relative=tuple(Relative(tuple(map(str, r.inputs)), r.within) for r in section.relative),
        share=section.share,
        fire=section.fire,
    )


def _parameter(value: object) -> Parameter:
    """A parameter as something that can be compared."""
    if isinstance(value, BaseModel):
        return tuple((name, _parameter(inner)) for name, inner in sorted(value))
    if isinstance(value, dict):
        return tuple((name, _parameter(inner)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return tuple(_parameter(inner) for inner in value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a parameter can't be a {type(value).__name__}")


def _query(app: ApplicationSection, name: str, section: QuerySection, problems: list[Problem]) -> Query:
    text = section.text or ""
    if section.file is not None:
        text = _read(section.file, name, problems)
    found = outline(text)
    if found.priority is not None and found.priority not in app.levels:
        hint = suggestion(found.priority, app.levels)
        problems.append(
            error("unknown-level", f"PRIORITY names the unknown level '{found.priority}'", ("queries", name), hint)
        )
    elif section.level is not None and found.priority not in (None, section.level):
        problems.append(
            error(
                "two-levels",
                f"query '{name}' says PRIORITY {found.priority}, and level: {section.level}",
                ("queries", name, "level"),
                "say it once",
            )
        )
    inputs = found.streams
    if not inputs and text:
        default = app.default_stream or (next(iter(app.streams)) if len(app.streams) == 1 else None)
        if default is None:
            problems.append(
                error(
                    "no-stream",
                    f"query '{name}' has no FROM, and the application has no default_stream",
                    ("queries", name),
                    "add FROM (?e, stream), or default_stream",
                    at_key=True,
                )
            )
        inputs = (default,) if default else ()
    level = found.priority if found.priority in app.levels else section.level
    return Query(name, text, inputs, level, section.engine, found.fast_clauses)


def _read(file: str, name: str, problems: list[Problem]) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        problems.append(error("missing-file", f"no such file: {Path(file).name}", ("queries", name, "file")))
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "not UTF-8 text"
        problems.append(error("unreadable", f"can't read {Path(file).name}: {reason}", ("queries", name, "file")))
    return ""

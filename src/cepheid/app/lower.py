"""From the sections of an application to its graph: where every front end meets."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from cepheid.app.check import WELL_KNOWN_PREFIXES
from cepheid.app.schema import ApplicationSection, OperatorSection, QuerySection, StreamSection
from cepheid.language import syntax
from cepheid.language.errors import QUERY_FILE, Source
from cepheid.language.parser import examine
from cepheid.language.scope import expand
from cepheid.model.names import near_file, suggestion
from cepheid.model.streams import Stream
from cepheid.plan.graph import Consumer, Graph, Operator, Parameter, Query, Relative
from cepheid.plan.problems import Path as Where
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
        default_stream=_default_stream(app),
        prefixes={**WELL_KNOWN_PREFIXES, **app.prefixes},
        properties=_properties(app),
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
    text, source_name = section.text, name
    if section.file is not None:
        source_name = _shown(section.file)
        text = _read(section.file, name, problems)
    where: Where = ("queries", name, "file" if section.file is not None else "text")
    tree = None
    if text is not None:
        tree, faults = examine(Source(source_name, text))
        problems += [Problem(f.severity, f.code, f.message, where, f.hint, inside=f.span) for f in faults]
    inputs = tuple(dict.fromkeys(s for r in tree.ranges for s in r.streams)) if tree is not None else ()
    if not inputs and _default_stream(app) is not None:
        inputs = (str(_default_stream(app)),)
    level = _level(app, name, section, tree, where, problems)
    return Query(name, text or "", tree, inputs, level, section.engine, section.limit)


def _level(
    app: ApplicationSection,
    name: str,
    section: QuerySection,
    tree: syntax.Query | None,
    where: Where,
    problems: list[Problem],
) -> str | None:
    """The level that the text or the section gives a query."""
    priority = tree.priority if tree is not None else None
    if tree is None or priority is None:
        return section.level
    span = tree.spans.get("priority")
    if priority not in app.levels:
        message = f"PRIORITY names the unknown level '{priority}'"
        hint = suggestion(priority, app.levels) or "name one of `levels`, or add it to them"
        problems.append(Problem("error", "unknown-level", message, where, hint, inside=span))
        return section.level
    if section.level not in (None, priority):
        message = f"query '{name}' says PRIORITY {priority}, and level: {section.level}"
        problems.append(error("two-levels", message, ("queries", name, "level"), "say it once"))
    return priority


def _default_stream(app: ApplicationSection) -> str | None:
    """The stream of variables without FROM: the one named, or else the only one."""
    return app.default_stream or (next(iter(app.streams)) if len(app.streams) == 1 else None)


def _properties(app: ApplicationSection) -> dict[str, dict[str, str]]:
    """For each stream the attribute that stands for a property, by its IRI."""
    prefixes = {**WELL_KNOWN_PREFIXES, **app.prefixes}
    return {
        name: {expand(a.property, prefixes) or a.property: attribute for attribute, a in section.semantics.items()}
        for name, section in app.streams.items()
    }


def _shown(file: str) -> str:
    """The name of a file in messages: relative where it is below us."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _read(file: str, name: str, problems: list[Problem]) -> str | None:
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        hint = near_file(Path(file), [".chi"])
        problems.append(error("missing-file", f"no such file: {Path(file).name}", ("queries", name, "file"), hint))
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "not UTF-8 text"
        message, hint = f"can't read {Path(file).name}: {reason}", QUERY_FILE
        problems.append(error("unreadable", message, ("queries", name, "file"), hint))
    return None

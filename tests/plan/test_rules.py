"""Each rule of the planner against its golden pairs: an application, and what the rule makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cepheid.app import examine
from cepheid.app.application import Application
from cepheid.app.known import Known
from cepheid.language.checker import Checked
from cepheid.language.parts import Part
from cepheid.language.printer import print_expression
from cepheid.model.time import format_duration
from cepheid.plan import apart, homes, placement, priority, pruning, sharing, stages, typing, validity, wellformed
from cepheid.plan.graph import Graph
from cepheid.plan.path_pruning import prune
from cepheid.plan.path_transformation import transform
from cepheid.plan.problems import Problem
from cepheid.plan.rewriting import Rewriting
from tests.golden_files import GOLDEN, assert_golden


def show_problems(problems: list[Problem]) -> str:
    lines = []
    for p in problems:
        hint = f"  ({p.hint})" if p.hint else ""
        lines.append(f"{p.severity} {p.code} at {'.'.join(map(str, p.where))}: {p.message}{hint}")
    return "\n".join(lines) or "nothing"


def show_graph(graph: Graph) -> str:
    lines = [f"{o.name} = {o.kind}({', '.join(o.inputs)})" for o in graph.operators.values()]
    lines += [f"{q.name} = query({', '.join(q.inputs)})" for q in graph.queries.values()]
    lines += [f"{c.name} <- {c.input}" for c in graph.consumers.values()]
    return "\n".join(lines)


def show_wellformed(graph: Graph) -> str:
    return show_problems(wellformed.check(graph))


def show_typing(graph: Graph) -> str:
    typed = typing.derive(graph)
    lines = [
        f"{name}: {', '.join(f'{a} {t.value}' for a, t in typed.schemas[name].items())}"
        for name in (*graph.operators, *graph.queries)
        if name in typed.schemas
    ]
    return "\n".join([*lines, show_problems(typed.problems)])


def show_pruning(graph: Graph) -> str:
    kept, pruned = pruning.prune(graph)
    return f"{show_graph(kept)}\npruned: {', '.join(pruned)}"


def show_sharing(graph: Graph) -> str:
    shared, members = sharing.share(graph)
    return "\n".join([show_graph(shared), *(f"{name} stands for {', '.join(m)}" for name, m in members.items())])


def show_priority(graph: Graph) -> str:
    ranks = priority.prioritise(graph)
    return "\n".join(f"{name}: {graph.levels[ranks[name]]}" for name in graph.producers())


def show_validity(graph: Graph) -> str:
    lines = []
    for name, t in validity.propagate(graph).items():
        valid = "forever" if t.valid_for is None else format_duration(t.valid_for)
        period = "unknown" if t.period is None else format_duration(t.period)
        lines.append(f"{name}: valid {valid}, every {period}, ring {t.ring} ({t.bound}), {t.stale}")
    return "\n".join(lines)


def show_stages(graph: Graph) -> str:
    queries, ranks, placed = typing.derive(graph).queries, priority.prioritise(graph), placement.place(graph)
    at_home = homes.homes(queries, graph, ranks, placed)
    found = stages.stages(queries, graph, ranks, at_home, placed)
    lines = []
    for stage in found.values():
        inputs = [f"{found[i].kind} {found[i].label}" if i in found else i for i in stage.inputs]
        served = ", ".join(stage.queries)
        lines.append(f"{graph.levels[stage.rank]} [{served}] {stage.kind} {stage.label} <- {'; '.join(inputs)}")
    for one in apart.apart(queries, found, graph, at_home, placed):
        lines.append(f"apart [{', '.join(one.together)}] {one.what}")
        lines += [f"  [{', '.join(group)}] {reason}" for group, reason in one.others]
    return "\n".join(lines)


def show_placement(graph: Graph) -> str:
    return "\n".join(f"{name}: {p.engine}, {p.reason}" for name, p in placement.place(graph).items())


def show_pruned_paths(application: Application) -> str:
    return "\n".join(
        _parts_by(application, lambda known, checked, part: prune(part, known.knowledge, checked.prefixes))
    )


def show_transformed_paths(application: Application) -> str:
    def transformed(known: Known, checked: Checked, part: Part) -> Rewriting:
        names = {a.property: name for name, a in known.annotations.properties("air").items()}
        return transform(part, ["air"], known.annotations, checked.prefixes, names.__getitem__)

    return "\n".join(_parts_by(application, transformed))


def _parts_by(application: Application, rule: Callable[[Known, Checked, Part], Rewriting]) -> Iterator[str]:
    known = application.known()
    assert known is not None
    known.knowledge.prepare()
    for name, checked in typing.derive(application.graph).queries.items():
        for part in checked.paths.parts:
            found = rule(known, checked, part)
            left = " ".join(found.part.text.split()) if found.part.groups else "nothing"
            yield f"{name}: {left}"
            yield from (f"  FILTER ({print_expression(condition)})" for condition in found.filters)
            yield from (f"  ?{column} is ?{a.variable}.{a.name}" for column, a in found.columns.items())
            yield from (f"  because {reason}" for reason in found.reasons)


def show_normalised(application: Application) -> str:
    queries = typing.derive(application.graph).queries
    lines = [f"{name}: {print_expression(checked.query.filters[0])}" for name, checked in queries.items()]
    return "\n".join([*lines, show_stages(application.graph)])


def show_shared_paths(application: Application) -> str:
    plan = application.plan()
    tables = {id(lookup.table): None for semantic in plan.semantic.values() for lookup in semantic.lookups}
    lines = [f"{name}: {s.rule} {s.reason}" for name, semantic in plan.semantic.items() for s in semantic.steps]
    return "\n".join([*lines, f"{len(tables)} tables"])


OF_APPLICATIONS: dict[str, Callable[[Application], str]] = {
    "path_pruning": show_pruned_paths,
    "path_transformation": show_transformed_paths,
    "path_normalisation": show_normalised,
    "path_sharing": show_shared_paths,
}
RULES: dict[str, Callable[[Graph], str]] = {
    "wellformed": show_wellformed,
    "typing": show_typing,
    "pruning": show_pruning,
    "sharing": show_sharing,
    "priority": show_priority,
    "validity": show_validity,
    "placement": show_placement,
    "stages": show_stages,
}
CASES = sorted((GOLDEN / "rules").glob("*/*.yaml"))


def application_of(case: Path) -> Application:
    application, _ = examine(case)
    assert isinstance(application, Application)
    return application


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.stem}")
def test_rule(case: Path) -> None:
    application, rule = application_of(case), case.parent.name
    shown = OF_APPLICATIONS[rule](application) if rule in OF_APPLICATIONS else RULES[rule](application.graph)
    assert_golden(case.with_suffix(".txt"), shown)


def test_every_rule_has_cases() -> None:
    assert {case.parent.name for case in CASES} == {*RULES, *OF_APPLICATIONS}

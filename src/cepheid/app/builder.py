"""An application written in Python: the same sections, checked by the same rules, with names that can't be mistyped.

app = Builder("plant")
v1 = app.stream("vibration1", {"samples": "array<uint8>"}, period="5ms", valid_for="10ms")
v2 = app.stream("vibration2", {"samples": "array<uint8>"}, period="5ms", valid_for="10ms")
fused = app.ekf("fused", v1, v2, relative=[within("5ms", v1, v2)])
app.consumer("control", app.fft("spectrum", fused), level="critical", stale="shed")
application = app.build()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from cepheid.app import faults
from cepheid.app.application import Application, assemble, diagnose
from cepheid.app.schema import ApplicationSection
from cepheid.app.yaml import Plain
from cepheid.language.errors import Diagnostic, Rejected, Span
from cepheid.plan.graph import Engine, Stale
from cepheid.plan.problems import Problem


@dataclass(frozen=True, slots=True)
class Producer:
    """A stream, operator or query of a builder, to be given as an input."""

    name: str


@dataclass(frozen=True, slots=True)
class Within:
    """Inputs that must have begun close together; made by `within`."""

    inputs: tuple[Producer, ...]
    interval: str


def within(interval: str, *inputs: Producer) -> Within:
    """These inputs of an operator may be at most `interval` apart: `within("5ms", left, right)`."""
    return Within(inputs, interval)


class Builder:
    """Collects an application section by section; `build` checks it and gives the application."""

    def __init__(
        self,
        name: str,
        *,
        levels: Sequence[str] | None = None,
        prefixes: Mapping[str, str] | None = None,
        default_stream: str | None = None,
    ) -> None:
        self._values: dict[str, Any] = {"name": name}
        self._diagnostics: list[Diagnostic] = []
        if levels is not None:
            self._values["levels"] = list(levels)
        if prefixes is not None:
            self._values["prefixes"] = dict(prefixes)
        if default_stream is not None:
            self._values["default_stream"] = default_stream

    def stream(
        self,
        name: str,
        attributes: Mapping[str, str],
        *,
        spellings: Mapping[str, Sequence[str]] | None = None,
        key: str | Sequence[str] | None = None,
        id: Literal["int", "string"] | None = None,
        extras: bool | None = None,
        period: str | None = None,
        valid_for: str | None = None,
        lateness: str | None = None,
        idle: str | None = None,
        source: Mapping[str, Plain] | None = None,
        semantics: Mapping[str, Plain] | None = None,
        enrich: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Producer:
        """A stream of events; the words are those of the application file."""
        return self._add(
            "streams",
            name,
            attributes=dict(attributes),
            spellings=None if spellings is None else {a: list(s) for a, s in spellings.items()},
            key=key if key is None or isinstance(key, str) else list(key),
            id=id,
            extras=extras,
            period=period,
            valid_for=valid_for,
            lateness=lateness,
            idle=idle,
            source=None if source is None else dict(source),
            semantics=None if semantics is None else dict(semantics),
            enrich=None if enrich is None else {attribute: dict(paths) for attribute, paths in enrich.items()},
        )

    def ekf(
        self,
        name: str,
        *inputs: Producer,
        attribute: str | None = None,
        process_noise: float | None = None,
        measurement_noise: float | None = None,
        relative: Sequence[Within] = (),
        share: bool = True,
        fire: Literal["all", "any"] = "all",
    ) -> Producer:
        """Fuses the samples of several sensors with an extended Kalman filter."""
        own = {"attribute": attribute, "process_noise": process_noise, "measurement_noise": measurement_noise}
        return self._operator(name, "ekf", inputs, relative, share, fire, own)

    def fft(self, name: str, input: Producer, *, attribute: str | None = None, share: bool = True) -> Producer:
        """The spectrum of an array of samples."""
        return self._operator(name, "fft", (input,), (), share, "all", {"attribute": attribute})

    def cat(
        self,
        name: str,
        *inputs: Producer,
        attribute: str | None = None,
        relative: Sequence[Within] = (),
        share: bool = True,
        fire: Literal["all", "any"] = "all",
    ) -> Producer:
        """Concatenates the arrays of its inputs, in their order."""
        return self._operator(name, "cat", inputs, relative, share, fire, {"attribute": attribute})

    def aes(
        self, name: str, input: Producer, *, attribute: str | None = None, key: str | None = None, share: bool = True
    ) -> Producer:
        """Encrypts an array or bytes with AES."""
        return self._operator(name, "aes", (input,), (), share, "all", {"attribute": attribute, "key": key})

    def aggregate(
        self,
        name: str,
        input: Producer,
        *,
        function: Literal["count", "sum", "avg", "min", "max", "stddev"],
        last: int,
        attribute: str | None = None,
        share: bool = True,
    ) -> Producer:
        """A number over the last n events."""
        own = {"attribute": attribute, "function": function, "last": last}
        return self._operator(name, "aggregate", (input,), (), share, "all", own)

    def threshold(
        self,
        name: str,
        input: Producer,
        *,
        above: float | None = None,
        below: float | None = None,
        reset: float | None = None,
        attribute: str | None = None,
        share: bool = True,
    ) -> Producer:
        """Whether a value is beyond a limit, with hysteresis."""
        own = {"attribute": attribute, "above": above, "below": below, "reset": reset}
        return self._operator(name, "threshold", (input,), (), share, "all", own)

    def filter(self, name: str, input: Producer, *, where: str, share: bool = True) -> Producer:
        """Lets events pass of which a condition on `?e` is true."""
        return self._operator(name, "filter", (input,), (), share, "all", {"where": where})

    def map(self, name: str, input: Producer, *, select: str, share: bool = True) -> Producer:
        """Computes attributes from those of `?e`, its input."""
        return self._operator(name, "map", (input,), (), share, "all", {"select": select})

    def python(
        self,
        name: str,
        *inputs: Producer,
        output: Mapping[str, str],
        function: str | None = None,
        relative: Sequence[Within] = (),
        fire: Literal["all", "any"] = "all",
    ) -> Producer:
        """A Python function; without `function` the program that runs the engine gives it."""
        own = {"output": dict(output), "function": function}
        return self._operator(name, "python", inputs, relative, False, fire, own)

    def native(
        self,
        name: str,
        *inputs: Producer,
        output: Mapping[str, str],
        library: str | None = None,
        symbol: str | None = None,
        relative: Sequence[Within] = (),
        fire: Literal["all", "any"] = "all",
    ) -> Producer:
        """A C function or numba cfunc; without `library` the program that runs the engine gives it."""
        own = {"output": dict(output), "library": library, "symbol": symbol}
        return self._operator(name, "native", inputs, relative, False, fire, own)

    def query(
        self,
        name: str,
        text: str,
        *,
        level: str | None = None,
        engine: Engine | None = None,
        limit: int | None = None,
        sink: Mapping[str, Plain] | None = None,
        real_time: bool | None = None,
    ) -> Producer:
        """A χ-CEP query; its matches are events for others to read. `sink` is such as `{"kind": "console"}`."""
        given = None if sink is None else dict(sink)
        return self._add(
            "queries", name, text=text, level=level, engine=engine, limit=limit, sink=given, real_time=real_time
        )

    def consumer(self, name: str, input: Producer, *, level: str | None = None, stale: Stale | None = None) -> None:
        """Who receives the events of `input`."""
        self._add("consumers", name, input=input.name, level=level, stale=stale)

    def archive(
        self, path: str | Path, *, format: Literal["delta", "parquet"] | None = None, retain: str | None = None
    ) -> None:
        """Where all events are kept."""
        self._values["archive"] = _given(path=str(path), format=format, retain=retain)

    def knowledge(
        self,
        sources: Sequence[str],
        *,
        rules: Sequence[str] | None = None,
        reasoning: Literal["owl-rl", "none"] | None = None,
        semantics: Literal["naive", "buffer", "cache", "buffer+cache", "index", "auto"]
        | Mapping[str, str | int]
        | None = None,
    ) -> None:
        """What is known about the plant besides its events.

        `semantics` is a mode, or a mapping such as `{"mode": "cache", "size": "5%"}`.
        """
        self._values["knowledge"] = _given(
            sources=list(sources),
            rules=None if rules is None else list(rules),
            reasoning=reasoning,
            semantics=semantics if semantics is None or isinstance(semantics, str) else dict(semantics),
        )

    def service(
        self,
        *,
        listen: str | None = None,
        deliver: str | None = None,
        metrics: str | None = None,
        cores: int | None = None,
        log: Mapping[str, str] | Literal["none"] | None = None,
        prioritised: bool | None = None,
        replace: bool | None = None,
    ) -> None:
        """The real-time service."""
        self._values["service"] = _given(
            listen=listen,
            deliver=deliver,
            metrics=metrics,
            cores=cores,
            log=dict(log) if isinstance(log, Mapping) else log,
            prioritised=prioritised,
            replace=replace,
        )

    def build(self) -> Application:
        """The application; raises Rejected, with every diagnostic, if anything in it is wrong."""
        diagnostics = list(self._diagnostics)
        try:
            sections = ApplicationSection.model_validate(self._values)
        except ValidationError as invalid:
            problems = [faults.problem(detail) for detail in invalid.errors(include_url=False)]
            raise Rejected([*diagnostics, *diagnose(problems, _nowhere)]) from None
        application, found = assemble(sections, Path(), _nowhere)
        diagnostics += found
        if any(d.severity == "error" for d in diagnostics):
            raise Rejected(diagnostics)
        return application

    def _operator(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Producer],
        relative: Sequence[Within],
        share: bool,
        fire: Literal["all", "any"],
        own: Mapping[str, object],
    ) -> Producer:
        sets = [{"inputs": [i.name for i in r.inputs], "within": r.interval} for r in relative]
        common = {"kind": kind, "inputs": [i.name for i in inputs], "relative": sets, "share": share, "fire": fire}
        return self._add("graph", name, **common, **own)

    def _add(self, section: str, name: str, **entry: object) -> Producer:
        entries = self._values.setdefault(section, {})
        if name in entries:
            message = f"'{name}' is given twice in {section}"
            self._diagnostics.append(Diagnostic("error", "duplicate-name", message, None, "rename one of them"))
        entries.setdefault(name, _given(**entry))
        return Producer(name)


def _given(**entry: object) -> dict[str, object]:
    return {name: value for name, value in entry.items() if value is not None}


def _nowhere(problem: Problem) -> Span | None:
    """Python code has no place in a file to point to, but a query's text has; messages name the thing."""
    return problem.inside

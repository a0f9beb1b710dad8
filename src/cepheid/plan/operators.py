"""The kinds of graph operators: how many inputs each takes, its parameters, and the schema of what it produces.

An operator of the paper works on one attribute of its input, its payload: the one that `attribute` names, or else the
only one of a fitting type. Its output has that attribute, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from cepheid.language.functions import ValueType
from cepheid.model.names import suggestion
from cepheid.model.streams import IMPLIED
from cepheid.model.types import Type
from cepheid.plan.expressions import ExpressionFault, checked

Schema: TypeAlias = Mapping[str, Type]


class Mismatch(ValueError):
    """The inputs of an operator do not fit it. `input` is the position of the one that does not, if it is one."""

    def __init__(self, message: str, hint: str | None = None, input: int | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.input = input


class Parameters(BaseModel):
    """What can be said of an operator besides its inputs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Payload(Parameters):
    attribute: str | None = Field(None, description="The attribute to work on; may be left out where only one fits.")


class Ekf(Payload):
    process_noise: float = Field(1e-3, gt=0, description="Variance of the state's change from sample to sample.")
    measurement_noise: float = Field(1e-1, gt=0, description="Variance of a sensor's reading.")


class Aes(Payload):
    key: Annotated[str, StringConstraints(pattern=r"^([0-9a-fA-F]{32}|[0-9a-fA-F]{48}|[0-9a-fA-F]{64})$")] | None = (
        Field(
            None,
            description="The key, 16, 24 or 32 bytes in hex; `${NAME}` takes it from the environment. "
            "Without one a random key is made at every start.",
            json_schema_extra={"secret": True},
        )
    )


class Aggregate(Payload):
    function: Literal["count", "sum", "avg", "min", "max", "stddev"] = Field(description="What to compute.")
    last: int = Field(ge=1, description="Over how many of the last events.")


class Threshold(Payload):
    above: float | None = Field(None, description="Turns on when the value exceeds this.")
    below: float | None = Field(None, description="Turns on when the value falls below this.")
    reset: float | None = Field(None, description="Turns off only past this value (hysteresis).")


class Filter(Parameters):
    where: str = Field(description="The condition on `?e`, the input: events of which it is true go on.")


class Map(Parameters):
    select: str = Field(description="What goes on, computed from `?e`, the input: `?e.flow * 0.47 AS litres, ?e.room`.")


class _Own(Parameters):
    output: dict[str, str] = Field(description="The attributes of what it produces, and their types.")


class Python(_Own):
    function: str | None = Field(
        None,
        pattern=r"^[\w.]+:\w+$",
        description="`module:function`; left out where the program that runs the engine gives the function.",
    )


class Native(_Own):
    library: str | None = Field(
        None, description="A shared library; left out where the program that runs the engine gives the function."
    )
    symbol: str | None = Field(None, description="The function in it; left out, the operator's name.")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of operator. `output` gives the schema it produces, or raises Mismatch."""

    name: str
    summary: str
    least: int
    most: int | None
    parameters: type[Parameters]
    output: Callable[[Mapping[str, object], Sequence[tuple[str, Schema]]], Schema]
    #: The types of the attribute it works on, and these in words; none if it works on whole events.
    fitting: tuple[Type, ...] = ()
    reads: str = ""

    def is_secret(self, parameter: str) -> bool:
        """Whether a parameter must not be shown."""
        extra = self.parameters.model_fields[parameter].json_schema_extra
        return isinstance(extra, dict) and bool(extra.get("secret"))

    def takes(self, inputs: int) -> bool:
        """Whether an operator of this kind can have so many inputs."""
        return self.least <= inputs and (self.most is None or inputs <= self.most)

    @property
    def arity(self) -> str:
        if self.most == self.least:
            return f"{self.least} input" + ("s" if self.least != 1 else "")
        return f"{self.least} or more inputs" if self.most is None else f"{self.least} to {self.most} inputs"


def payload(
    kind: Kind, parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]
) -> list[tuple[str, Type]]:
    """The attribute of each input that an operator of this kind works on, with its type; or Mismatch."""
    fitting, what = kind.fitting, kind.reads
    wanted = parameters.get("attribute")
    found = []
    for position, (source, schema) in enumerate(inputs):
        if isinstance(wanted, str):
            if wanted not in schema:
                message = f"reads attribute '{wanted}', but '{source}' has none of that name"
                known = suggestion(wanted, schema) or f"'{source}' has {', '.join(schema) or 'none'}"
                raise Mismatch(message, known, position)
            names = [wanted]
        else:
            names = [name for name, kind in schema.items() if kind in fitting]
        fits = [name for name in names if schema[name] in fitting]
        if not fits:
            shown = ", ".join(f"{name}: {kind.value}" for name, kind in schema.items()) or "no attributes"
            others = [name for name, kind in schema.items() if kind in fitting]
            hint = f"give '{source}' an attribute of {' or '.join(kind.value for kind in fitting)}, or read another"
            if others:
                hint = f"`attribute:` can be {' or '.join(others)}"
            raise Mismatch(f"reads {what}, but '{source}' has {shown}", hint, position)
        if len(fits) > 1:
            raise Mismatch(
                f"could read several attributes of '{source}': {', '.join(fits)}",
                "name one with `attribute:`",
                position,
            )
        found.append((fits[0], schema[fits[0]]))
    if any(kind is not found[0][1] for _, kind in found):
        listed = ", ".join(f"'{source}' {kind.value}" for (source, _), (_, kind) in zip(inputs, found, strict=True))
        raise Mismatch(
            f"reads inputs of one type, but has {listed}", "declare them alike, or name one with `attribute:`"
        )
    return found


_ARRAYS: Final = (Type.UINT8_ARRAY, Type.FLOAT_ARRAY)
_NUMBERS: Final = (Type.INT, Type.FLOAT)


def _same(parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]) -> Schema:
    name, kind = payload(KINDS["cat"], parameters, inputs)[0]
    return {name: kind}


def _fft(parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]) -> Schema:
    name, _ = payload(KINDS["fft"], parameters, inputs)[0]
    return {name: Type.FLOAT_ARRAY}


def _aes(parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]) -> Schema:
    name, _ = payload(KINDS["aes"], parameters, inputs)[0]
    return {name: Type.BYTES}


def _aggregate(parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]) -> Schema:
    name, kind = payload(KINDS["aggregate"], parameters, inputs)[0]
    function = parameters["function"]
    if function == "count":
        return {name: Type.INT}
    return {name: kind if function in ("sum", "min", "max") else Type.FLOAT}


def _threshold(parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]) -> Schema:
    name, kind = payload(KINDS["threshold"], parameters, inputs)[0]
    if (parameters.get("above") is None) == (parameters.get("below") is None):
        raise Mismatch("needs one of `above` and `below`", "such as above: 500; for both limits make two operators")
    return {name: kind, "on": Type.BOOL}


def _filter(parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]) -> Schema:
    ((source, schema),) = inputs
    try:
        checked(None, str(parameters["where"]), source, schema)
    except ExpressionFault as fault:
        raise Mismatch(f"has a condition that is not right: {fault}", fault.hint) from None
    return schema


def _map(parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]) -> Schema:
    ((source, schema),) = inputs
    try:
        found = checked(str(parameters["select"]), None, source, schema)
    except ExpressionFault as fault:
        raise Mismatch(f"selects what is not right: {fault}", fault.hint) from None
    return {output.name: _AS_ATTRIBUTE.get(output.type) or Type(output.type.value) for output in found.outputs}


#: What an attribute is, where the language knows more types than attributes have.
_AS_ATTRIBUTE: Final = {ValueType.DURATION: Type.INT, ValueType.NODE: Type.STRING, ValueType.NULL: Type.STRING}


def _own(parameters: Mapping[str, object], inputs: Sequence[tuple[str, Schema]]) -> Schema:
    given = parameters["output"]
    assert isinstance(given, tuple | dict)
    schema = {}
    for name, kind in dict(given).items():
        if name in IMPLIED or not name.isidentifier():
            raise Mismatch(f"can't have an output named '{name}'", "every event has id and time already")
        try:
            schema[name] = Type.parse(str(kind))
        except ValueError as fault:
            raise Mismatch(f"has an output of an {fault}", f"known: {', '.join(t.value for t in Type)}") from None
    return schema


_EKF = "Fuses the samples of several sensors with an extended Kalman filter."
_FFT = "The spectrum of an array of samples, by the fast Fourier transform: the magnitude of each of its frequencies."

KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("ekf", _EKF, 2, None, Ekf, _same, _ARRAYS, "an array"),
        Kind("fft", _FFT, 1, 1, Payload, _fft, _ARRAYS, "an array"),
        Kind(
            "cat",
            "Concatenates the arrays of its inputs, in their order.",
            2,
            None,
            Payload,
            _same,
            _ARRAYS,
            "an array",
        ),
        Kind(
            "aes", "Encrypts an array or bytes with AES.", 1, 1, Aes, _aes, (*_ARRAYS, Type.BYTES), "an array or bytes"
        ),
        Kind("aggregate", "A number over the last n events.", 1, 1, Aggregate, _aggregate, _NUMBERS, "a number"),
        Kind(
            "threshold",
            "Whether a value is beyond a limit, with hysteresis.",
            1,
            1,
            Threshold,
            _threshold,
            _NUMBERS,
            "a number",
        ),
        Kind("filter", "Lets events pass of which a condition is true.", 1, 1, Filter, _filter),
        Kind("map", "Computes attributes from those of its input.", 1, 1, Map, _map),
        Kind("python", "A Python function of your own; it needs the GIL while it runs.", 1, None, Python, _own),
        Kind("native", "A C function or numba cfunc of your own, run without the GIL.", 1, None, Native, _own),
    )
}

"""What the operators compute, on the virtual clock; numpy's FFT and a C compiler are the peers."""

from __future__ import annotations

import ctypes
import json
import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import types

from cepheid._native import VirtualClock
from cepheid.app.builder import Builder, Producer
from cepheid.model.types import Value
from cepheid.service import Engine
from cepheid.service.lowering import lower

#: A supplier event: stream and attributes.
Given = tuple[str, Mapping[str, Value]]


class Bench:
    """An application of streams and one operator, whose outputs are the consumer's."""

    def __init__(self) -> None:
        self.build = Builder("bench")

    def stream(self, name: str, **attributes: str) -> Producer:
        return self.build.stream(name, attributes)

    def run(self, operator: Producer, events: Sequence[Given], **native: Any) -> list[Mapping[str, Value]]:
        self.build.consumer("c", operator)
        self.clock = VirtualClock(lower(self.build.build().plan()), **native)
        found: list[Mapping[str, Value]] = []
        for number, (stream, attributes) in enumerate(events, 1):
            assert self.clock.push(stream, number, 1000 + number, attributes)
            found += [attributes for _, _, _, attributes, _, _ in self.clock.run(2000)]
        return found

    def moved(self, events: Sequence[Given]) -> list[Mapping[str, Value]]:
        """What `run` gave, with another clock for each event that goes on with the state of the one before."""
        spec, saved = lower(self.build.build().plan()), None
        found: list[Mapping[str, Value]] = []
        for number, (stream, attributes) in enumerate(events, 1):
            clock = VirtualClock(spec)
            if saved is not None:
                clock.restore(saved)
            assert clock.push(stream, number, 1000 + number, attributes)
            found += [attributes for _, _, _, attributes, _, _ in clock.run(2000)]
            saved = clock.save()
        return found

    def trouble(self, operator: str) -> int:
        failed: int = json.loads(self.clock.stats())["operators"][operator]["failed"]
        return failed


@pytest.mark.parametrize("length", [0, 1, 2, 7, 512, 1000])
def test_fft_is_numpys(length: int) -> None:
    bench = Bench()
    samples = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8)
    fft = bench.build.fft("f", bench.stream("s", x="array<uint8>"))
    (found,) = bench.run(fft, [("s", {"x": samples.tobytes()})])
    expected = np.abs(np.fft.fft(samples)) if length else np.zeros(0)
    assert np.allclose(np.array(found["x"]), expected, rtol=1e-9, atol=1e-6)


def test_ekf_fuses_and_keeps_length_and_type() -> None:
    bench = Bench()
    fused = bench.build.ekf("e", bench.stream("a", x="array<uint8>"), bench.stream("b", x="array<uint8>"))
    low, high = bytes([100] * 400), bytes([110] * 400)
    (found,) = bench.run(fused, [("a", {"x": low}), ("b", {"x": high})])
    samples = found["x"]
    assert isinstance(samples, bytes)
    assert len(samples) == 400
    assert all(103 <= sample <= 107 for sample in samples[100:])


def test_cat_keeps_the_order_of_its_inputs() -> None:
    bench = Bench()
    a, b = bench.stream("a", x="array<float>"), bench.stream("b", x="array<float>")
    found = bench.run(
        bench.build.cat("k", b, a),
        [("a", {"x": (1.0,)}), ("b", {"x": (2.0, 3.0)}), ("a", {"x": None}), ("b", {"x": ()})],
    )
    assert found == [{"x": (2.0, 3.0, 1.0)}, {"x": None}]


def test_aes_can_be_decrypted_with_time_and_id() -> None:
    """AES-CTR by hand with openssl's AES-ECB: an independent implementation of the cipher."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    key = "000102030405060708090a0b0c0d0e0f"
    bench = Bench()
    plain = bytes(range(40))
    (found,) = bench.run(bench.build.aes("k", bench.stream("s", x="bytes"), key=key), [("s", {"x": plain})])
    time, number = 1001, 1
    counters = b"".join(
        time.to_bytes(8, "big") + number.to_bytes(4, "big") + block.to_bytes(4, "big") for block in range(3)
    )
    stream = subprocess.run(
        [openssl, "enc", "-aes-128-ecb", "-K", key, "-nopad"], input=counters, capture_output=True, check=True
    ).stdout
    assert found["x"] == bytes(a ^ b for a, b in zip(plain, stream, strict=False))


def test_filter_and_map_follow_the_language() -> None:
    bench = Bench()
    stream = bench.stream("s", x="int", room="string")
    events: list[Given] = [("s", {"x": x, "room": "r"}) for x in (1, None, 7)]
    assert bench.run(bench.build.filter("f", stream, where="?e.x > 3 OR ?e.id = 1"), events) == [
        {"x": 1, "room": "r"},
        {"x": 7, "room": "r"},
    ]
    bench = Bench()
    stream = bench.stream("s", unused="bool", x="int")
    found = bench.run(
        bench.build.map("m", stream, select="?e.x / 0 AS nothing, ?e.x * 2 AS twice, ?e.time AS at"),
        [("s", {"x": 4})],
    )
    assert found == [{"nothing": None, "twice": 8, "at": 1001}]
    bench = Bench()
    stream = bench.stream("s", x="int")
    early = bench.build.filter("f", stream, where="HOUR(?e.time, 'Asia/Kathmandu') < 6")  # in 1970 5:30 before UTC
    asked = bench.build.map("m", early, select="MINUTE(?e.time, 'Asia/Kathmandu') AS there, MINUTE(?e.time) AS utc")
    assert bench.run(asked, [("s", {"x": 4})]) == [{"there": 30, "utc": 0}]


def test_aggregate_and_threshold() -> None:
    bench = Bench()
    stream = bench.stream("s", x="float")
    events: list[Given] = [("s", {"x": float(x)}) for x in (1, 5, 9, 2)]
    found = bench.run(bench.build.aggregate("a", stream, function="avg", last=2), events)
    assert [value["x"] for value in found] == [1.0, 3.0, 7.0, 5.5]
    bench = Bench()
    found = bench.run(bench.build.threshold("t", bench.stream("s", x="float"), above=4.0, reset=2.0), events)
    assert [value["on"] for value in found] == [False, True, True, True]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *(("aggregate", {"function": f, "last": 3}) for f in ("count", "sum", "avg", "min", "max", "stddev")),
        ("threshold", {"below": 0.2, "reset": 0.7}),
    ],
)
@pytest.mark.parametrize("type", ["float", "int"])
def test_what_operators_remember_moves(kind: str, options: dict[str, Any], type: str) -> None:
    values = [0.1, 0.3, None, 1e300, 1.0, 0.5, 0.1, -0.0, 0.9]
    if type == "int":
        values = [None if x is None else int(min(x, 9.0) * 10) for x in values]
    bench = Bench()
    operator = getattr(bench.build, kind)("o", bench.stream("s", x=type), **options)
    events: list[Given] = [("s", {"x": x}) for x in values]
    found = bench.run(operator, events)
    assert len(found) == len(values)
    assert bench.moved(events) == found


@pytest.mark.parametrize("type", ["array<uint8>", "array<float>"])
def test_what_a_filter_knows_moves(type: str) -> None:
    bench = Bench()
    fused = bench.build.ekf("e", bench.stream("a", x=type), bench.stream("b", x=type))
    samples = np.random.default_rng(3).integers(0, 256, (12, 16), dtype=np.uint8)
    arrays = [s.tobytes() if type == "array<uint8>" else tuple(s / 7) for s in samples]
    events: list[Given] = [("ab"[i % 2], {"x": array}) for i, array in enumerate(arrays)]
    found = bench.run(fused, events)
    assert len(found) == 6
    assert bench.moved(events) == found


def test_a_python_function_gives_none_one_or_several() -> None:
    bench = Bench()
    operator = bench.build.python("p", bench.stream("s", x="int"), output={"y": "float", "parts": "array<float>"})

    def function(event: Mapping[str, Any]) -> object:
        if event["x"] == 0:
            return None
        if event["x"] < 0:
            raise RuntimeError("below zero")
        return [{"y": event["x"] / i, "parts": np.ones(i)} for i in range(1, event["x"] + 1)]

    found = bench.run(operator, [("s", {"x": x}) for x in (0, 1, -1, 2)], functions={"p": function})
    assert found == [
        {"y": 1.0, "parts": (1.0,)},
        {"y": 2.0, "parts": (1.0,)},
        {"y": 1.0, "parts": (1.0, 1.0)},
    ]
    assert bench.trouble("p") == 1


@pytest.mark.parametrize("result", [7, {"z": 1}, {"y": "text"}, [{"y": 1.0}, None], {"y": math.nan}])
def test_a_python_function_that_returns_no_event_has_failed(result: object) -> None:
    bench = Bench()
    operator = bench.build.python("p", bench.stream("s", x="int"), output={"y": "float"})
    bench.run(operator, [("s", {"x": 1})], functions={"p": lambda event: result})
    assert bench.trouble("p") == 1


SOURCE = """
#include <stdint.h>
#include <string.h>
/* y = sum of all elements, copy = the array reversed; fails if the array is empty, gives nothing if it is null */
int64_t fold(const void *const *data, const int64_t *length, int64_t attributes,
             void *const *out, int64_t *out_length, int64_t out_attributes) {
    if (attributes != 2 || out_attributes != 2) return -2;
    if (length[0] < 0) return 0;
    if (length[0] == 0) return -1;
    const double *values = data[0];
    double sum = *(const int64_t *)data[1];
    if (out_length[1] < length[0]) return -3;
    for (int64_t i = 0; i < length[0]; i++) {
        sum += values[i];
        ((double *)out[1])[length[0] - 1 - i] = values[i];
    }
    *(double *)out[0] = sum;
    out_length[1] = length[0];
    return 1;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "fold.c").write_text(SOURCE)
    made = folder / "fold.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, folder / "fold.c"], check=True)
    return made


def test_a_c_function_is_called_with_its_attributes(library: Path) -> None:
    bench = Bench()
    stream = bench.stream("s", x="array<float>", bias="int")
    operator = bench.build.native("n", stream, output={"y": "float", "copy": "array<float>"})
    address = ctypes.cast(ctypes.CDLL(str(library)).fold, ctypes.c_void_p).value
    events: list[Given] = [
        ("s", {"x": (1.0, 2.0, 3.5), "bias": 10}),
        ("s", {"x": None, "bias": 1}),
        ("s", {"x": (), "bias": 1}),
        ("s", {"x": tuple(map(float, range(1000))), "bias": 0}),
    ]
    found = bench.run(operator, events, addresses={"n": address})
    assert found[0] == {"y": 16.5, "copy": (3.5, 2.0, 1.0)}
    assert found[1] == {"y": 499500.0, "copy": tuple(map(float, reversed(range(1000))))}
    assert len(found) == 2
    assert bench.trouble("n") == 1


def fold(data: Any, length: Any, attributes: int, out: Any, out_length: Any, out_attributes: int) -> int:
    """The same in Python, for numba."""
    if length[0] <= 0:
        return int(length[0])
    values = numba.carray(data[0], length[0], dtype=np.float64)
    reversed_values = numba.carray(out[1], length[0], dtype=np.float64)
    total = float(numba.carray(data[1], 1, dtype=np.int64)[0])
    for place in range(length[0]):
        total += values[place]
        reversed_values[length[0] - 1 - place] = values[place]
    numba.carray(out[0], 1, dtype=np.float64)[0] = total
    out_length[1] = length[0]
    return 1


def test_a_c_function_in_each_form_runs_on_the_worker(library: Path) -> None:
    in_c = ctypes.CDLL(str(library)).fold
    address = ctypes.cast(in_c, ctypes.c_void_p).value
    assert address is not None
    pointers, lengths = types.CPointer(types.voidptr), types.CPointer(types.int64)
    signature = types.int64(pointers, lengths, types.int64, pointers, lengths, types.int64)
    for function in (in_c, address, numba.cfunc(signature)(fold)):
        build = Builder("b")
        stream = build.stream("s", {"x": "array<float>", "bias": "int"})
        build.consumer("c", build.native("n", stream, output={"y": "float", "copy": "array<float>"}))
        with Engine(build.build(), functions={"n": function}) as engine:
            engine.push("s", {"x": (1.0, 2.5), "bias": 1})
            received = engine.consumer("c").get(10)
        assert received is not None
        assert received.attributes == {"y": 4.5, "copy": (2.5, 1.0)}

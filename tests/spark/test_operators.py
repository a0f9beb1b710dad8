"""EKF, FFT, CAT and AES over columns give what the service's operators give of one event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from cepheid._native import VirtualClock
from cepheid.app.builder import Builder, Producer
from cepheid.service.lowering import lower
from cepheid.spark import aes, cat, ekf, fft

KEY = "000102030405060708090a0b0c0d0e0f"
RANDOM = np.random.default_rng(7)
#: Arrays of two sensors: empty, of different lengths, saturated, absent.
BYTES: list[tuple[bytes | None, bytes | None]] = [
    (b"", b""),
    (b"\xff" * 40, b"\x00" * 33),
    (None, b"abc"),
    (None, None),
    *((RANDOM.bytes(n), RANDOM.bytes(n)) for n in (1, 7, 64, 512)),
]
FLOATS: list[tuple[list[float] | None, list[float] | None]] = [
    ([], [1.5]),
    (None, None),
    *((RANDOM.normal(size=n).tolist(), RANDOM.normal(size=n).tolist()) for n in (1, 30)),
]


def of_service(kind: str, type: str, arrays: Sequence[Any], **options: Any) -> Any:
    """What an operator of that kind gives of one event, of a stream for each array."""
    build = Builder("one")
    inputs: list[Producer] = [build.stream(f"s{i}", {"x": type}) for i in range(len(arrays))]
    build.consumer("c", getattr(build, kind)("o", *inputs, **options))
    clock = VirtualClock(lower(build.build().plan()))
    for number, array in enumerate(arrays):
        clock.push(f"s{number}", 1, 77, {"x": array})
    (found,) = clock.run(100)
    attributes: Mapping[str, Any] = found[3]
    return attributes["x"]


@pytest.fixture(scope="module", params=["array<uint8>", "array<float>"])
def given(request: pytest.FixtureRequest, spark: SparkSession) -> tuple[str, Any, list[Any]]:
    """A type, a DataFrame of arrays a and b of it, and these arrays."""
    kind: str = request.param
    held, rows = ("binary", BYTES) if kind == "array<uint8>" else ("array<double>", FLOATS)
    numbered = [(i, *pair) for i, pair in enumerate(rows)]
    return kind, spark.createDataFrame(numbered, f"n int, a {held}, b {held}").repartition(2), list(rows)


def test_columns_have_the_numbers_of_the_service(given: tuple[str, Any, list[Any]]) -> None:
    kind, frame, rows = given
    found = frame.selectExpr("*", "77L AS time", "1L AS id").select(
        "n",
        ekf("a", "b", type=kind, process_noise=0.5).alias("ekf"),  # type: ignore[arg-type]
        fft("a").alias("fft"),
        cat("b", "a").alias("cat"),
        aes("a", KEY, time="time", id="id").alias("aes"),
    )
    for row in found.orderBy("n").collect():
        a, b = rows[row["n"]]
        assert plain(row["ekf"]) == plain(of_service("ekf", kind, [a, b], process_noise=0.5))
        assert plain(row["fft"]) == plain(of_service("fft", kind, [a]))
        assert plain(row["cat"]) == plain(of_service("cat", kind, [b, a]))
        assert plain(row["aes"]) == plain(of_service("aes", kind, [a], key=KEY))


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytes | bytearray) else value if value is None else list(value)


def test_functions_stand_in_each_other_and_take_timestamps(spark: SparkSession) -> None:
    frame = spark.sql("SELECT X'0102ff' AS a, X'0305' AS b, timestamp_micros(77) AS at, 1L AS id")
    (row,) = frame.select(
        fft(ekf("a", "b")).alias("spectrum"), aes("a", KEY, time="at", id="id").alias("hidden")
    ).collect()
    fused = of_service("ekf", "array<uint8>", [b"\x01\x02\xff", b"\x03\x05"])
    assert row["spectrum"] == list(of_service("fft", "array<uint8>", [fused]))
    assert bytes(row["hidden"]) == of_service("aes", "array<uint8>", [b"\x01\x02\xff"], key=KEY)


def test_what_is_no_number_gives_nothing(spark: SparkSession) -> None:
    frame = spark.sql("SELECT array(1D, double('NaN')) AS a, array(double('inf')) AS b, array(2D) AS c")
    (row,) = frame.select(fft("a").alias("f"), ekf("c", "b", type="array<float>").alias("e")).collect()
    assert row["f"] is None
    assert row["e"] is None


def test_wrong_arguments_say_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="ekf fuses two or more columns, and was given 1"):
        ekf("a")
    with pytest.raises(ValueError, match=r"type: expected array<uint8> .* found int"):
        ekf("a", "b", type="int")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give numbers above 0"):
        ekf("a", "b", process_noise=0)
    with pytest.raises(ValueError, match="cat concatenates two or more"):
        cat("a")
    with pytest.raises(ValueError, match="key: expected 16, 24 or 32 bytes in hex, found 2 characters"):
        aes("a", "0f", time="time", id="id")
    floats = spark.sql("SELECT array(1D) AS a, 'x' AS text")
    with pytest.raises(
        PythonException, match=r'column 1 is array<double>, expected binary; write ekf\(..., type="array<float>"'
    ):
        floats.select(ekf("a", "a")).collect()
    with pytest.raises(PythonException, match="expected binary or array<double>"):
        floats.select(fft("text")).collect()

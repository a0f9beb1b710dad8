"""The operators of CPEP as functions of columns: EKF, FFT, CAT and AES, each row by itself.

    frame.select(fft(ekf("left", "right")).alias("spectrum"))

What is computed is what the service's operator gives of its first event: the native core does it, over Arrow, in the
executors. Where an operator is to go on from event to event, as an EKF does, run the graph (cepheid.spark.graph).
Arrays are binary, which is array<uint8> here as everywhere, or array<double>; a row with NaN or infinity gives null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.functions import arrow_udf

from cepheid import _native
from cepheid.plan.operators import Ekf

ColumnOrName: TypeAlias = Column | str

_KEY: Final = re.compile(r"([0-9a-fA-F]{32}|[0-9a-fA-F]{48}|[0-9a-fA-F]{64})")
_FLOATS: Final = st.ArrayType(st.DoubleType())
_DEFAULT: Final = Ekf()


def ekf(
    *sensors: ColumnOrName,
    type: Literal["array<uint8>", "array<float>"] = "array<uint8>",
    process_noise: float = _DEFAULT.process_noise,
    measurement_noise: float = _DEFAULT.measurement_noise,
) -> Column:
    """The samples of several sensors as one array, by an extended Kalman filter.

    `type` is that of the columns, and so of the result: a column can't be asked for it before there is a DataFrame. A
    sensor that is null, or has fewer samples, says nothing there.
    """
    if len(sensors) < 2:
        raise ValueError(f"ekf fuses two or more columns, and was given {len(sensors)}")
    if type not in ("array<uint8>", "array<float>"):
        raise ValueError(f"type: expected array<uint8> (binary columns) or array<float>, found {type}")
    if process_noise <= 0 or measurement_noise <= 0:
        raise ValueError("process_noise and measurement_noise are variances: give numbers above 0")
    count, is_of_floats = len(sensors), type == "array<float>"

    def fused(*columns: pa.Array) -> pa.Array:
        batch = _batch({str(place): column for place, column in enumerate(columns)})
        return _value(_native.ekf_column(batch, count, is_of_floats, process_noise, measurement_noise))

    return _over(fused, _FLOATS if is_of_floats else st.BinaryType(), *sensors)


def fft(samples: ColumnOrName) -> Column:
    """The spectrum of an array: the magnitude of each of its frequencies, as array<double>."""

    def spectrum(column: pa.Array) -> pa.Array:
        return _value(_native.fft_column(_batch({"0": column})))

    return _over(spectrum, _FLOATS, samples)


def cat(*arrays: ColumnOrName) -> Column:
    """The arrays one behind another; null if one of them is. Spark's own `concat`, which does just that."""
    if len(arrays) < 2:
        raise ValueError(f"cat concatenates two or more columns, and was given {len(arrays)}")
    return sf.concat(*arrays)


def aes(plain: ColumnOrName, key: str, *, time: ColumnOrName, id: ColumnOrName) -> Column:
    """An array or bytes, encrypted with AES in counter mode; as long as what it was.

    `key` is 16, 24 or 32 bytes in hex. `time` (a timestamp or microseconds) and `id` (an integer) are the event's, by
    which it can be decrypted: no two rows of one key may have both in common, or they could be decrypted without it.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(f"key: expected 16, 24 or 32 bytes in hex, found {len(key)} characters")

    def encrypted(column: pa.Array, times: pa.Array, ids: pa.Array) -> pa.Array:
        return _value(_native.aes_column(_batch({"0": column, "time": times, "id": ids}), key))

    return _over(encrypted, st.BinaryType(), plain, time, id)


def _over(function: Callable[..., pa.Array], kind: st.DataType, *columns: ColumnOrName) -> Column:
    """The Arrow function over these columns."""
    found: Column = arrow_udf(function, kind)(*columns)  # type: ignore[call-overload]
    return found


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _value(batch: _native.MatchBatch) -> pa.Array:
    return pa.record_batch(batch).column(0)

"""Fixtures of the service's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.intakes import Start, starting


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Start]:
    """Starts intakes in the test's folder."""
    with starting(tmp_path) as begin:
        yield begin

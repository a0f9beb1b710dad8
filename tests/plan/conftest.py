"""A generated case that fails is left on disk, ready to be kept (see kept_cases.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.plan.kept_cases import leave_failed


@pytest.fixture(autouse=True)
def _leave_failed() -> Iterator[None]:
    yield
    leave_failed()

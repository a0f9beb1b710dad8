"""Functions in C for tests of the service: operators that no other language makes as bad."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

#: How an operator in C is called, for the name `NAME`.
HEAD: Final = """
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#define OPERATOR(NAME) int64_t NAME(const void *const *data, const int64_t *length, int64_t attributes, \\
                                    void *const *out, int64_t *out_length, int64_t out_attributes)
"""


def compiled(folder: Path, source: str) -> Path:
    """A library of functions in C."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, for an operator")
    (folder / "own.c").write_text(HEAD + source)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", folder / "own.so", folder / "own.c"], check=True)
    return folder / "own.so"

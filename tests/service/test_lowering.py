"""What the engine is told of a plan."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cepheid._native import VirtualClock
from cepheid.app.builder import Builder
from cepheid.app.load import load_text
from cepheid.service.lowering import lower

"""Cepheid: complex event processing for sensors, on PySpark and in real time."""

from importlib.metadata import version

__version__ = version("cepheid")

"""Cepheid: complex event processing for sensors, on PySpark and in real time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """`__version__`, when it is asked for: what knows it takes 5 MB, which the real-time service does without."""
    if name == "__version__":
        from importlib.metadata import version

        return version("cepheid")
    raise AttributeError(f"module 'cepheid' has no attribute '{name}'")

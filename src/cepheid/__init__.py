"""Cepheid: complex event processing for sensors, on PySpark and in real time."""

#: True to who checks types. Not typing's own: that alone takes as much memory as a graph in the real-time service.
TYPE_CHECKING = False

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """`__version__`, when it is asked for: what knows it takes 5 MB, which the real-time service does without."""
    if name == "__version__":
        from importlib.metadata import version

        return version("cepheid")
    raise AttributeError(f"module 'cepheid' has no attribute '{name}'")

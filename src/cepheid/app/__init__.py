"""The application: read from a file, or built in Python."""

from cepheid.app.application import Application
from cepheid.app.builder import Builder, Producer, within
from cepheid.app.load import examine, load

__all__ = ["Application", "Builder", "Producer", "examine", "load", "within"]

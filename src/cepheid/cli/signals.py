"""Signals for commands that run until they are told to stop."""

from __future__ import annotations

import signal
import socket


def heard() -> socket.socket:
    """A socket that brings a byte for each SIGINT, SIGTERM and SIGHUP, its number; they do nothing else any more."""
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    # The descriptor has to outlive this call: it is the process's from here on.
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reading

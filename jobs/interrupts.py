"""SIGINT and SIGTERM, so that a run stops even where the first exception is swallowed.

An exception raised by a signal handler is lost when the signal arrives inside a finaliser or a
callback of a library. What was asked for is therefore remembered, and looked at between units.
"""

import signal
import threading

_asked = threading.Event()


def install() -> None:
    """Answer both signals with KeyboardInterrupt from now on."""
    _asked.clear()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)


def check() -> None:
    """Stop if a signal came and its exception did not get through."""
    if _asked.is_set():
        raise KeyboardInterrupt


def _on_signal(*_: object) -> None:
    _asked.set()
    raise KeyboardInterrupt

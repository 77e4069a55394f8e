"""SIGINT and SIGTERM, so that a run stops even where the first exception is swallowed.

An exception raised by a signal handler is lost when the signal arrives inside a finaliser or a
callback of a library. What was asked for is therefore remembered, and looked at between units.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator

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


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Answer as before after the block: a Ray that starts exits the process on SIGTERM instead."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is _on_signal and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _on_signal(*_: object) -> None:
    _asked.set()
    raise KeyboardInterrupt

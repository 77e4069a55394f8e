"""Open a page in headless Chromium, over its debugging pipe, and say what happened there."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
]
# Chromium reads commands from descriptor 3 and answers on 4.
LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
IMAGES = """JSON.stringify([...document.images].map(
    i => ({alt: i.alt, width: i.naturalWidth, height: i.naturalHeight, shown: i.clientWidth})))"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@dataclass(frozen=True)
class PageFacts:
    """What a browser saw.

    Attributes:
        console_errors: Errors, warnings, exceptions and policy violations, as text.
        requests: Addresses that the page asked for, itself and data: left out.
        images: One mapping per image: alt, width, height (natural), shown (pixels wide).
        overflow_px: How much wider than the window the page is; 0: nothing sticks out.
        text: The text a reader sees.
    """

    console_errors: list[str]
    requests: list[str]
    images: list[dict]
    overflow_px: int
    text: str


def chromium():
    """Path of a Chromium, or skip the test."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no chromium on PATH: the page cannot be looked at")


def inspect_page(path, *, width=1200, height=900, screenshot=None):
    """Open a local page and return its facts; `screenshot`: where to put a PNG of all of it."""
    with _browser(chromium()) as browser:
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        browser.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(f"{domain}.enable")
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        address = Path(path).resolve().as_uri()
        browser.call("Page.navigate", url=address)
        browser.wait_for("Page.loadEventFired")
        browser.settle(0.3)
        facts = PageFacts(
            console_errors=_errors(browser.events),
            requests=_requests(browser.events, address),
            images=json.loads(browser.evaluate(IMAGES)),
            overflow_px=browser.evaluate(OVERFLOW),
            text=browser.evaluate("document.body.innerText"),
        )
        if screenshot:
            shot = browser.call("Page.captureScreenshot", captureBeyondViewport=True)
            Path(screenshot).write_bytes(base64.b64decode(shot["data"]))
        return facts


def _errors(events):
    found = []
    for method, params in events:
        if method == "Runtime.exceptionThrown":
            found.append(params["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            found.append(" ".join(str(arg.get("value")) for arg in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            found.append(params["entry"]["text"])
    return found


def _requests(events, address):
    asked = [p["request"]["url"] for method, p in events if method == "Network.requestWillBeSent"]
    return [url for url in asked if url != address and not url.startswith("data:")]


@contextmanager
def _browser(executable):
    commands, write = os.pipe()
    read, answers = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", LAUNCH, str(commands), str(answers)),
                *(executable, *FLAGS, f"--user-data-dir={profile}"),
            ],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands), os.close(answers)
        try:
            yield _Pipe(read, write)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            os.close(read), os.close(write)


class _Pipe:
    """Chromium's debugging protocol: JSON messages ended by a zero byte."""

    def __init__(self, read, write, *, timeout_s=60):
        self.read, self.write, self.timeout_s = read, write, timeout_s
        self.session, self.events, self.rest, self.number = None, [], b"", 0

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data) :]
        while True:
            answer = self._next(self.timeout_s)
            if answer is None:
                raise TimeoutError(f"Chromium did not answer {method} in {self.timeout_s} s")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"]["value"]

    def wait_for(self, event):
        while not any(method == event for method, _ in self.events):
            if self._next(self.timeout_s) is None:
                raise TimeoutError(f"no {event} in {self.timeout_s} s")

    def settle(self, seconds):
        """Collect what still comes in."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._next(left)

    def _next(self, timeout_s):
        end = time.monotonic() + timeout_s
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                return None
            data = os.read(self.read, 1 << 20)
            if not data:
                raise ConnectionError("Chromium ended")
            self.rest += data
        line, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(line)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message

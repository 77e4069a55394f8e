"""An HTTP proxy before an object store that refuses and cuts off a share of the requests."""

import contextlib
import http.client
import random
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
# What both ends settle between themselves, hop by hop.
HOP = {"connection", "keep-alive", "transfer-encoding", "proxy-connection"}


class FlakyProxy:
    """Passes requests on to one server; some get 503 SlowDown, some a connection that breaks.

    Attributes:
        seen: How many requests were `passed`, `refused`, `cut` before an answer, `torn` within one.
    """

    def __init__(self, upstream, *, refuse=0.0, cut=0.0, tear=0.0, seed=0):
        """Listen on a free port of this machine.

        Args:
            upstream: (host, port) of the object store.
            refuse: Share of requests answered 503.
            cut: Share whose connection is closed without an answer, when the work was done.
            tear: Share of answers that break off in the middle.
            seed: Of the draws.
        """
        self.upstream, self.seen = upstream, Counter()
        self.disturb(refuse=refuse, cut=cut, tear=tear)
        self._random, self._lock = random.Random(seed), threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def disturb(self, *, refuse=0.0, cut=0.0, tear=0.0):
        """Change the shares for the requests to come."""
        self._limits = (refuse, refuse + cut, refuse + cut + tear)

    def fate(self):
        """What becomes of the next request."""
        with self._lock:
            drawn = self._random.random()
            names = ("refused", "cut", "torn")
            limits = zip(names, self._limits, strict=True)
            name = next((name for name, limit in limits if drawn < limit), "passed")
            self.seen[name] += 1
            return name


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy = None

    def log_message(self, *_):
        """Say nothing."""

    def _pass(self):
        body = self._body()
        fate = self.proxy.fate()
        if fate == "refused":
            return self._answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
        connection = http.client.HTTPConnection(*self.proxy.upstream, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
            connection.request(self.command, self.path, body=body, headers=headers)
            reply = connection.getresponse()
            data = reply.read()
        finally:
            connection.close()
        if fate == "cut":
            # The work was done and nobody is told: a retry must do no harm.
            return self._break_off()
        headers = [(k, v) for k, v in reply.getheaders() if k.lower() not in HOP]
        return self._answer(reply.status, headers, data, tear=fate == "torn")

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass

    def _body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            return self._chunks()
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _chunks(self):
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status, headers, data, *, tear=False):
        self.send_response_only(status)
        named = {name.lower() for name, _ in headers}
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in named:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if tear else data)
        if tear:
            self._break_off()

    def _break_off(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

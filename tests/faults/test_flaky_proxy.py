"""The proxy that disturbs does disturb, and otherwise passes everything on as it is."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.faults.flaky_proxy import FlakyProxy


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Path", self.path)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def upstream():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address
    server.shutdown()
    server.server_close()
    thread.join()


def ask(proxy, body=b"abcdef"):
    """Status and body, or the name of what broke."""
    connection = http.client.HTTPConnection(*proxy._server.server_address, timeout=10)
    try:
        connection.request("PUT", "/a%20b?c=d", body=body)
        reply = connection.getresponse()
        return reply.status, reply.read()
    except (http.client.IncompleteRead, http.client.RemoteDisconnected, OSError) as error:
        return type(error).__name__, None
    finally:
        connection.close()


def test_without_faults_everything_passes(upstream):
    with FlakyProxy(upstream) as proxy:
        assert ask(proxy) == (200, b"abcdef")
        assert ask(proxy, b"") == (200, b"")
        assert proxy.seen == {"passed": 2}


def test_each_fault_is_what_it_is_called(upstream):
    with FlakyProxy(upstream, refuse=1) as proxy:
        status, body = ask(proxy)
        assert (status, b"SlowDown" in body) == (503, True)
    with FlakyProxy(upstream, cut=1) as proxy:
        assert ask(proxy)[0] in ("RemoteDisconnected", "ConnectionResetError")
    with FlakyProxy(upstream, tear=1) as proxy:
        assert ask(proxy)[0] == "IncompleteRead"


def test_a_third_of_many_requests_is_refused(upstream):
    with FlakyProxy(upstream, refuse=0.3) as proxy:
        for _ in range(200):
            ask(proxy)
        assert 40 <= proxy.seen["refused"] <= 80

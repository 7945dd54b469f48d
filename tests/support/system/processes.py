"""A real broker process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from tests.support.checkout import CHECKOUT

START_S, STOP_S = 60.0, 30.0


class BrokerProcess:
    """`sparkstore serve` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        if {"--memory", "--configuration"} & {*arguments}:  # what most clients send is durable
            arguments = (*arguments, "--accept-durable")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "broker_shim.serve.command", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        assert self._process.stdout is not None
        self.ready_line = self._process.stdout.readline().strip()
        if not self.ready_line.startswith(("READY ", "{")):
            self.wait()
            message = f"the broker did not start:\n{self.log}"
            raise AssertionError(message)

    @property
    def url(self) -> str:
        """amqp://host:port of the listener."""
        return self.ready_line.split()[1]

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def port(self) -> int:
        """Of the listener."""
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        """What it wrote on stderr so far; all of it once it has ended."""
        return "".join(self._log)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: what the operating system does to a process with no warning."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Until it has ended; the exit code."""
        code = self._process.wait(STOP_S)
        self._reader.join(STOP_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        self._log.extend(self._process.stderr)


StartBroker = Callable[..., BrokerProcess]
"""Starts a broker on a free port with these arguments; the fixture `start_broker` is one."""

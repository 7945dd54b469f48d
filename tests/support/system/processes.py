"""A real broker process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from tests.support.system.forked import ForkedProcess, piped

START_S, STOP_S = 60.0, 30.0


class BrokerProcess:
    """`sparkstore serve` in a process of its own, forked from a parent that has imported it.

    Attributes:
        module: What is run.
    """

    module = "broker_shim.serve.command"

    def __init__(self, *arguments: str) -> None:
        if {"--memory", "--configuration"} & {*arguments}:  # what most clients send is durable
            arguments = (*arguments, "--accept-durable")
        (self._stdout, out), (self._stderr, err) = piped(), piped()
        self._process = ForkedProcess(self.module, *arguments, stdout=out, stderr=err)
        os.close(out)
        os.close(err)
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.ready_line = self._stdout.readline().strip()
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
        self._stdout.close()
        self._stderr.close()
        return code

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def _read_log(self) -> None:
        self._log.extend(self._stderr)


StartBroker = Callable[..., BrokerProcess]
"""Starts a broker on a free port with these arguments; the fixture `start_broker` is one."""

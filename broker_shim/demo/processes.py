"""The broker and the clients as processes: start, watch, kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from broker_shim.demo.departures import BINDINGS, EXCHANGE

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
SILENT_S = 10.0


class DemoFailed(Exception):
    """The demo cannot go on: the message says why."""


_started: list[subprocess.Popen[str]] = []


def kill_what_runs() -> None:
    """End every process that was started here and still runs."""
    for process in _started:
        if process.poll() is None:
            process.kill()
            process.wait()


class BrokerProcess:
    """`sparkstore serve` over a root, on a port of its own."""

    def __init__(self, root: Path, log: Path) -> None:
        wiring = [f"--exchange={EXCHANGE}:topic"]
        for queue, key in BINDINGS.items():
            wiring += [f"--queue={queue}", f"--bind={EXCHANGE}:{key}:{queue}"]
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "broker_shim.serve.command"),
                    *(str(root), "--json", "--listen=127.0.0.1:0", *wiring),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        _started.append(self._process)
        self.url = self._ready()

    def kill(self) -> None:
        """Kill the client by `kill -9`, which it cannot catch."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait for a clean end.

        Raises:
            DemoFailed: It did not end cleanly.
        """
        self._process.terminate()
        if self._process.wait(STOP_TIMEOUT_S) != 0:
            raise DemoFailed(f"the broker ended with {self._process.returncode}: see {self._log}")

    def _ready(self) -> str:
        """Wait for the READY line and return its address; kill the process if it does not come."""
        alarm = threading.Timer(START_TIMEOUT_S, self._process.kill)
        alarm.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        alarm.cancel()
        if not line:
            self._process.wait()
            raise DemoFailed(f"the broker did not start: see {self._log}")
        url: str = json.loads(line)["ready"]
        return url


class ClientProcess:
    """The process of a publisher or a consumer.

    Attributes:
        told_count: Confirmations so far, as it says now and then.
    """

    def __init__(self, module: str, url: str, ledger: Path, *arguments: object) -> None:
        self._ledger = ledger
        self.told_count = 0
        self._words: set[str] = set()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", f"broker_shim.demo.{module}"),
                *(url, str(ledger), *map(str, arguments)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        _started.append(self._process)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    @property
    def is_holding(self) -> bool:
        """True for a consumer that has done all but end."""
        return "holding" in self._words

    def end(self) -> dict[str, Any]:
        """Tell a consumer to end, wait for the end, and read the ledger."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        return self.ledger()

    def written(self) -> dict[str, Any]:
        """The ledger as it is: that of a consumer that holds is complete."""
        content: dict[str, Any] = json.loads(self._ledger.read_text())
        return content

    def ledger(self) -> dict[str, Any]:
        """Wait for the end, and read the ledger.

        Raises:
            DemoFailed: It wrote none, or did not end.
        """
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as reason:
            self._process.kill()
            message = f"a client did not end within {STOP_TIMEOUT_S:.0f} s"
            raise DemoFailed(message) from reason
        self._reader.join()
        if not self._ledger.is_file():
            message = f"a client ended with {self._process.returncode} and without a ledger"
            raise DemoFailed(message)
        return self.written()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, number = line.strip().partition(" ")
            if word == "told":
                self.told_count = int(number)
            else:
                self._words.add(word)


class Progress:
    """Lines with the seconds since the start; a rolling one at most every two seconds.

    A thread says every ten seconds without another line that the last step goes on. It ends by
    `end`, or with the process.
    """

    def __init__(self, silent_s: float = SILENT_S) -> None:
        self._started_at = self._said_at = time.monotonic()
        self._silent_s, self._is_over = silent_s, False
        self._said = threading.Event()
        self._line = threading.Thread(target=self._go_on, name="progress", daemon=True)
        self._line.start()

    def end(self) -> None:
        """Say no more that a step goes on."""
        self._is_over = True
        self._said.set()
        self._line.join()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start, whatever was said before."""
        self._said.set()
        self._said_at = time.monotonic()
        print(f"[{self._said_at - self._started_at:6.1f} s] {text}", flush=True)

    def _go_on(self) -> None:
        while not self._is_over:
            if not self._said.wait(self._silent_s):
                print(f"[{time.monotonic() - self._started_at:6.1f} s] … it goes on", flush=True)
            self._said.clear()

    def now_and_then(self, text: str) -> None:
        """Print the text if nothing was printed for two seconds."""
        if time.monotonic() - self._said_at >= 2:
            self.say(text)

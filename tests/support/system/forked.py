"""Processes that the forking parent of this test process starts (`forking_parent`)."""

from __future__ import annotations

import array
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO

from tests.support.checkout import CHECKOUT

_START_S, _END_S = 120.0, 30.0


def forking_parent(preloaded: Path | None = None) -> Path:
    """The socket of the one parent of this process, which is started by the first call.

    Args:
        preloaded: A library that it and what it forks have (LD_PRELOAD): it has its own parent.
    """
    return _parent("" if preloaded is None else str(preloaded))


@cache
def _parent(preloaded: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="forks-"))
    parent = subprocess.Popen(
        [
            *(sys.executable, "-X", "faulthandler"),
            *("-m", "tests.support.system.forking_parent", str(folder / "s")),
        ],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"LD_PRELOAD": preloaded},
    )
    atexit.register(_end, parent, folder)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"READY\n"
    return folder / "s"


def _end(parent: subprocess.Popen[bytes], folder: Path) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.close()
    parent.stdout.close()
    parent.wait(_END_S)
    shutil.rmtree(folder)


class ForkedProcess:
    """`python -m MODULE ARGUMENTS …`; what it writes goes where two descriptors lead.

    Args:
        module: What is run, as `__main__`.
        arguments: Its command line.
        stdout: For its standard output.
        stderr: For its standard error.
        environment: Its environment; None: this process's own, with the checkout as a place of
            modules.
        cwd: The folder that it runs in; None: that of this process.
        preloaded: A library that its calls of the system's go through.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        stdout: int,
        stderr: int,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        preloaded: Path | None = None,
    ) -> None:
        here = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        request = {
            "module": module,
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(here if environment is None else environment),
        }
        self._parent = socket.socket(socket.AF_UNIX)
        self._parent.settimeout(_START_S)
        self._parent.connect(str(forking_parent(preloaded)))
        passed = array.array("i", (stdout, stderr))
        data = json.dumps(request).encode() + b"\n"
        sent = self._parent.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
        self._parent.sendall(data[sent:])
        self._said = self._parent.makefile("r")
        self.pid = int(self._said.readline())
        self.returncode: int | None = None
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._parent.settimeout(None)
        self._watcher.start()

    def _watch(self) -> None:
        with self._parent, self._said:
            ending = self._said.readline()
        if ending:  # else the tests are over: their forking parent ended before this process
            self.returncode = int(ending.removeprefix("exit "))
            self._ended.set()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Until it has ended; the exit code, negative for a signal.

        Raises:
            TimeoutExpired: It has not ended within these seconds.
        """
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                self._ended.wait(_END_S)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def piped() -> tuple[IO[str], int]:
    """A pipe: what reads it, and the descriptor that is handed to a process and then closed."""
    reader, writer = os.pipe()
    return os.fdopen(reader, encoding="utf-8", errors="replace"), writer

"""A query of Spark without a JVM, as a process that may be killed and started again."""

from __future__ import annotations

import os
from typing import IO

from tests.support.system.forked import ForkedProcess, piped


class KilledQuery:
    """A module that says a line for each of its steps, and goes on from its checkpoint."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module, self._arguments = module, arguments
        self.start()

    def start(self) -> None:
        """Go on from the checkpoint."""
        self._lines: IO[str]
        self._lines, out = piped()
        self._process = ForkedProcess(self._module, *self._arguments, stdout=out, stderr=2)
        os.close(out)

    def line(self) -> str:
        """Read its next line; "" if it has ended."""
        return self._lines.readline().strip()

    def kill(self) -> None:
        """As SIGKILL does."""
        self._process.kill()
        self._process.wait(30)
        self._lines.close()

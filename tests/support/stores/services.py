"""Store services for tests: a real process, and one on threads of the test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_shim.service.service import Service
from broker_shim.service.socket import ServiceSocket, listen_on_path
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.config import StoreConfig
from tests.support.stores.stores import DELTA_CONFIG
from tests.support.system.forked import ForkedProcess, piped

CONFIG_TEXT = """\
[store]
commit_interval_ms = 15
wal_file_bytes = 1048576
max_wal_files = 4
segment_commits = 20
"""
"""Of a service that is killed: everything that can be cut off happens often."""


class ServiceProcess:
    """`sparkstore serve ROOT --no-amqp`, which may be killed and started again."""

    def __init__(
        self, root: Path, socket_path: Path, *more: str, settings: str = CONFIG_TEXT
    ) -> None:
        self.path = socket_path
        config = root.parent / "service.toml"
        config.write_text(settings)
        arguments = [str(root), "--no-amqp", "--store-socket", str(socket_path)]
        self._arguments = [*arguments, "--config", str(config), *more]
        self._log = (root.parent / "service.log").open("ab")
        self.process: ForkedProcess | None = None
        self.ready = ""

    def start(self) -> None:
        """Start it; ready when this returns."""
        self._stdout, out = piped()
        self.process = ForkedProcess(
            "broker_shim.serve.command", *self._arguments, stdout=out, stderr=self._log.fileno()
        )
        os.close(out)
        self.ready = self._stdout.readline()
        assert self.ready.startswith("READY"), self.log()

    def kill(self) -> None:
        """As SIGKILL does."""
        assert self.process is not None
        self.process.kill()
        self._forget()

    def stop(self) -> int:
        """As an operator does; the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._forget()

    def log(self) -> str:
        """What it wrote to standard error, in all its lives."""
        self._log.flush()
        return Path(self._log.name).read_text()

    def close(self) -> None:
        """End it, if it runs, and its log."""
        if self.process is not None:
            self.kill()
        self._log.close()

    def _forget(self) -> int:
        assert self.process is not None
        code = self.process.wait(30)
        self._stdout.close()
        self.process = None
        return code


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="sock-", dir=os.environ.get("TMPDIR")) as folder:
        yield Path(folder)


class Served:
    """A Delta store and its service in this process."""

    def __init__(
        self,
        root: Path,
        socket_path: Path,
        token: str | None = None,
        config: StoreConfig = DELTA_CONFIG,
    ) -> None:
        self.root, self.path = root, socket_path
        self.store = DeltaMessageStore(root, config)
        address = ServiceSocket(listen_on_path(socket_path), token)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.service = Service(self.store, [address], config.max_message_bytes, self._hear)

    def _hear(self, event: str, **details: Any) -> None:
        """What the service has the audit log told."""
        self.heard.append((event, details))

    def close(self) -> None:
        """Stop both, cleanly."""
        self.service.close()
        self.store.close()


@contextmanager
def served(
    root: Path, token: str | None = None, config: StoreConfig = DELTA_CONFIG
) -> Iterator[Served]:
    """One that is closed at the end."""
    with short_folder() as folder:
        there = Served(root, folder / "s", token, config)
        try:
            yield there
        finally:
            there.close()

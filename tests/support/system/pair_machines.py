"""Two machines of a pair on this one: brokers, the ways between them, their disks, a witness.

All that may be cut is a thing of its own: a cable for each direction of log shipping, and for each
machine a mount of the witness. That is a symbolic link in the folder that its process runs in: so
both name the witness alike, as `/proc/self/cwd/witness`. A process that has ended is started again,
as a supervisor does, unless its machine is down.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from sparkstore.witness.folder import FolderPlace
from sparkstore.witness.place import witness_at
from sparkstore.witness.turn import sight
from tests.support.checkout import CHECKOUT
from tests.support.system.cable import Cable
from tests.support.system.forked import ForkedProcess

_LONG_S = 120.0
_TICK_S = 0.02
_RESTART_S = 1.0
"""A supervisor starts nothing more often."""
_SETTINGS = """[store]
witness = "{witness}"
witness_lease_s = {lease_s}
standby_grace_s = 1.0
wal_file_bytes = 1_048_576
max_wal_files = 4
commit_interval_ms = 1_000
"""
"""A journal of few files: lives of a few seconds merge none, and nobody folds it here."""


class Pair:
    """Two machines of one configuration; either serves, the other is its standby.

    Attributes:
        lease_s: How long the one that serves goes on without the witness.
        ports: Where clients connect to each, while it serves.
        cables: The way of each machine to the other one's log.
        down: Machines that nobody starts again.
        starts: How often each was started.
    """

    def __init__(
        self,
        folder: Path,
        lease_s: float = 3.0,
        settings: str = "",
        options: Sequence[str] = (),
        witness: str = "",
        endpoint: int = 0,
    ) -> None:
        """Make the folders of both; nothing is started.

        Args:
            folder: Where all of it is.
            lease_s: The lease of whoever serves.
            settings: More lines of their configuration.
            options: More options of both brokers.
            witness: Where it is; empty: a folder that each machine mounts.
            endpoint: Port of the bucket that it is in: each machine has a cable to it.
        """
        self.folder, self.lease_s, self._options = folder, lease_s, options
        self._witness = folder / "witness"
        self._witness.mkdir()
        self._token = folder / "token"
        self._token.write_text("a token of the pair")
        self._token.chmod(0o600)
        self._settings = folder / "sparkstore.toml"
        self._place = witness_at(witness) if witness else FolderPlace(self._witness)
        values = {"lease_s": lease_s, "witness": witness or "/proc/self/cwd/witness"}
        self._settings.write_text(_SETTINGS.format(**values) + settings)
        self._alone = folder / "alone.toml"
        self._alone.write_text('[store]\nwitness = "none"\n')
        self.ports, self._shipping = ([_free_port(), _free_port()] for _ in range(2))
        self.cables = [Cable(self._shipping[1]), Cable(self._shipping[0])]
        self.processes: list[ForkedProcess | None] = [None, None]
        self.down, self.starts, self._started_s = {0, 1}, [0, 0], [0.0, 0.0]
        self._ways = [Cable(endpoint) for _ in range(2) if endpoint]
        self._disk = _failing_disk()
        for number in (0, 1):
            self.machine(number).mkdir()
            self.spoil_disk(number, "")
            self.mount(number)

    def machine(self, number: int) -> Path:
        """The folder of a machine."""
        return self.folder / f"machine{number}"

    def root(self, number: int) -> Path:
        """The root of a machine."""
        return self.machine(number) / "root"

    # ------------------------------------------------------------------ what may happen to it

    def start(self, number: int, *, is_alone: bool = False) -> None:
        """Start a machine's broker, and keep it running; alone: without witness and standby."""
        self.down.discard(number)
        self.starts[number] += 1
        self._started_s[number] = time.monotonic()
        settings = self._alone if is_alone else self._settings
        arguments = [str(self.root(number)), "--config", str(settings)]
        arguments += ["--listen", f"127.0.0.1:{self.ports[number]}"]
        if not is_alone:
            arguments += ["--standby-listen", f"127.0.0.1:{self._shipping[number]}"]
            arguments += ["--standby-of", f"tcp:127.0.0.1:{self.cables[number].port}"]
        arguments += ["--token-file", str(self._token), *self._options]
        environment = {
            "PYTHONPATH": str(CHECKOUT),
            "FAILING_DISK": str(self.machine(number) / "disk"),
        }
        if self._ways:
            environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{self._ways[number].port}"
        with self._log(number).open("ab") as log:
            self.processes[number] = ForkedProcess(
                "broker_shim.serve.command",
                *arguments,
                stdout=log.fileno(),
                stderr=log.fileno(),
                environment=os.environ | environment,
                cwd=self.machine(number),
                preloaded=self._disk,
            )

    def start_both(self) -> int:
        """Start a primary, then its standby, and wait until that is in step; the primary."""
        self.start(0)
        self.wait(lambda: self.holder().get("root_id"))
        self.start(1)
        return self.primary_in_step()

    def kill(self, number: int) -> None:
        """Kill a machine's broker, which stays down."""
        self.down.add(number)
        self.signal(number, signal.SIGKILL)
        process = self.processes[number]
        assert process is not None
        process.wait(_LONG_S)

    def order(self, number: int, *words: str, within_s: float = _LONG_S) -> None:
        """Run a command of `sparkstore` about a machine's root, which must go well.

        Machines are kept running meanwhile. If it does not end, the stacks of its threads are in
        the machine's log.
        """
        with self._log(number).open("ab") as log:
            process = ForkedProcess(
                "sparkstore.__main__",
                *words,
                str(self.root(number)),
                stdout=log.fileno(),
                stderr=log.fileno(),
                cwd=self.machine(number),
            )
        try:
            self.wait(lambda: process.poll() is not None, within_s)
        except AssertionError:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.send_signal(signal.SIGQUIT)  # a JVM writes its stacks, and goes on
            process.send_signal(signal.SIGABRT)
            raise
        assert process.poll() == 0, self._log(number).read_text()[-6000:]

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to a machine's broker."""
        process = self.processes[number]
        assert process is not None
        process.send_signal(which)

    def spoil_disk(self, number: int, fault: str) -> None:
        """Have a machine's disk fail (`failing_disk.c`), or no more."""
        (self.machine(number) / "disk").write_text(fault)

    def cut_witness(self, number: int) -> None:
        """Cut a machine off from the witness."""
        if self._ways:
            self._ways[number].cut()
        else:
            (self.machine(number) / "witness").unlink()

    def replace_witness(self, primary: int) -> None:
        """Go on by a new witness, as a person does when the old one is gone for good.

        Both are stopped; the primary serves once without any; then both start with the new one.
        """
        for number in (0, 1):
            self.down.add(number)
            self.signal(number, signal.SIGTERM)
        for process in self.processes:
            assert process is not None
            process.wait(_LONG_S)
        self.start(primary, is_alone=True)
        self.wait(lambda: _is_open(self.ports[primary]))
        self.down.add(primary)
        self.signal(primary, signal.SIGTERM)
        alone = self.processes[primary]
        assert alone is not None
        alone.wait(_LONG_S)
        self._witness = self._witness.with_name(f"{self._witness.name}+")
        self._witness.mkdir()
        self._place = FolderPlace(self._witness)
        for number in (primary, 1 - primary):
            self.mount(number)
            self.start(number)

    def mount(self, number: int) -> None:
        """Give a machine the witness (back)."""
        if self._ways:
            self._ways[number].mend()
        else:
            (self.machine(number) / "witness").symlink_to(self._witness)

    # ------------------------------------------------------------------ how it stands

    def holder(self) -> dict[str, Any]:
        """Return what the witness says; nothing before anybody has served."""
        sighted = sight(self._place)
        return {} if sighted is None else asdict(sighted[0])

    def primary(self) -> int:
        """Return the machine that the witness names."""
        self.wait(lambda: self.holder().get("where"))
        return int(Path(self.holder()["where"]).parent.name.removeprefix("machine"))

    def primary_in_step(self) -> int:
        """Return the machine that serves, once its standby has all that was confirmed."""
        self.wait(lambda: self.holder().get("in_step") and not self.holder()["is_closed"])
        return self.primary()

    def wait(self, is_so: Callable[[], object], within_s: float = _LONG_S) -> None:
        """Wait until something is so; the logs of both are shown if it does not become so."""
        ends_at = time.monotonic() + within_s
        tick = threading.Event()
        while not is_so():
            self._supervise()
            if time.monotonic() > ends_at:
                logs = [self._log(number).read_text()[-6000:] for number in (0, 1)]
                raise AssertionError(f"{self.holder()}\n\n" + "\n\n".join(logs))
            tick.wait(_TICK_S)

    def pause(self, seconds: float) -> None:
        """Let time pass, as for a person who has not noticed yet."""
        ends_at = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() > ends_at)

    def end(self) -> None:
        """Stop both."""
        self.down = {0, 1}
        for process in self.processes:
            if process is not None:
                process.send_signal(signal.SIGCONT)  # one that is frozen hears nothing
                process.terminate()
        for process in self.processes:
            if process is not None:
                process.wait(_LONG_S)
        for cable in self.cables + self._ways:
            cable.close()

    def _log(self, number: int) -> Path:
        return self.folder / f"log{number}"

    def _supervise(self) -> None:
        for number, process in enumerate(self.processes):
            is_due = time.monotonic() - self._started_s[number] > _RESTART_S
            if number in self.down or process is None or not is_due:
                continue
            if process.poll() is not None:
                self.start(number)


@cache
def _failing_disk() -> Path:
    """Compile what is preloaded, once."""
    source = CHECKOUT / "tests" / "support" / "system" / "failing_disk.c"
    library = CHECKOUT / "build" / "tests" / "failing_disk.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "a C compiler is needed, as `make check` says"
    scratch = library.with_name(f"failing_disk.{os.getpid()}")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(scratch), str(source), "-ldl"]
    subprocess.run(command, check=True)
    scratch.replace(library)
    return library


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port

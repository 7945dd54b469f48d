"""The kill loop on a root in a bucket: each round another machine opens what the last one left.

Of two machines for clients, and two for readers, each comes again after some rounds, and has a copy
then of what the bucket had: that start is refused by nobody.
A server of the test's own drops one answer in twenty after it did the work. A client is killed, or
stopped while another store takes over and let go on afterwards: what it is told then is held
against the root, too. With a write-ahead log every round is on the same machine, as it must be.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from broker_shim.store.delta import DeltaMessageStore
from sparkstore.config import StoreConfig
from tests.support.objects.s3_server import DROP, Request, S3Server
from tests.support.roots.logs import until
from tests.support.system.forked import ForkedProcess
from tests.support.system.kill_client import CONFIG
from tests.support.system.kill_loop import KillLoop, read_told

URI = "s3://lake/queues"


SHORT, LONG = (1, 20, 100, 300), (1, 300, 1000, 3000)
"""Calls that are answered before a client is ended."""


class BucketKillLoop(KillLoop):
    """See the module; `ack` is that of the setting, `is_long`: few kills for many messages."""

    @property
    def message_count(self) -> int:
        """Messages that clients have put, or tried to."""
        return len(self.known.bodies)

    def __init__(
        self,
        folder: Path,
        seed: int,
        server: S3Server | None,
        environment: pytest.MonkeyPatch,
        *,
        ack: str,
        is_long: bool = False,
    ) -> None:
        super().__init__(folder, seed)
        self._answers = LONG if is_long else SHORT
        self._chance = random.Random(seed)
        self._ack, self._environment = ack, environment
        self.taken_over = self.dropped = 0
        if server is not None:
            server.faults = [self._dropped]

    def round(self, *, power_cut: bool) -> None:
        """Start a client, end it, open the bucket elsewhere and compare; `power_cut`: stop it."""
        self.rounds += 1
        told = self._folder / f"told {self.rounds}"
        is_stopped = power_cut and self._ack == "delta"
        client = self._work(told, is_open=is_stopped)
        self.may_fail = is_stopped
        if is_stopped:
            os.kill(client.pid, signal.SIGSTOP)
        else:
            client.kill()
            client.wait(30)
        store = DeltaMessageStore(URI, self._config(f"reader {self.rounds % 2}"))
        try:
            if is_stopped:
                self._let_go_on(client, told)
            self._compare(store, told)
        finally:
            store.close()

    def _let_go_on(self, client: ForkedProcess, told: Path) -> None:
        """Until it is told that it was fenced, or has nothing to say."""
        self.taken_over += 1
        os.kill(client.pid, signal.SIGCONT)
        until(lambda: client.poll() is not None or any(w == "-" for w, *_ in read_told(told)), 120)
        client.kill()
        client.wait(30)

    def _work(self, told: Path, *, is_open: bool) -> ForkedProcess:
        told.touch()
        config = self._config(f"client {self.rounds // 2 % 2}")
        names = ("ack", "copy_dir", "wal_dir")
        more = json.dumps({name: getattr(config, name) for name in names})
        self._environment.setenv("SPARKSTORE_KILL_CONFIG", more)
        with (self._folder / "client.stderr").open("w+") as errors:
            client = ForkedProcess(
                "tests.support.system.kill_client",
                URI,
                str(told),
                str(self._seed * 1000 + self.rounds),
                stdout=errors.fileno(),
                stderr=errors.fileno(),
            )
            # One that is stopped before it opens would take over, when it goes on.
            answers = self._dice.choice([1 if is_open else 0, *self._answers])
            if self.rounds == 1:
                answers = 30

            def has_said_enough() -> bool:
                assert client.poll() is None, Path(errors.name).read_text()
                return told.read_bytes().count(b'["+"') >= answers

            until(has_said_enough, 120)
        threading.Event().wait(self._dice.random() * 0.05)
        return client

    def _config(self, machine: str) -> StoreConfig:
        if self._ack == "wal":
            machine = "here"
        folder = self._folder / machine
        more = replace(CONFIG, ack=self._ack, copy_dir=str(folder / "copy"), fence_check_s=3600)
        return more if self._ack == "delta" else replace(more, wal_dir=str(folder / "wal"))

    def _dropped(self, request: Request) -> int | None:
        if request.method == "PUT" and self._chance.random() < 1 / 20:
            self.dropped += 1
            return DROP
        return None

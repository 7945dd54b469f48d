"""A pair whose witness is a bucket, or a Lease of an API server: real brokers, begun at once."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from proton import Message

from sparkstore.exit_codes import ExitCode
from tests.support.checkout import CHECKOUT
from tests.support.objects import lease_server, s3_server
from tests.support.system.clients import send, take
from tests.support.system.pair_machines import Pair
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]
LEASE_S = 1.5
COUNT = 30


@contextmanager
def witness_of(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if kind == "bucket":
        with s3_server.served(monkeypatch):
            yield "s3://lake/witness/orders"
    else:
        with lease_server.served(folder, monkeypatch) as server:
            yield "kubernetes:queues/orders"
            spec = server.leases["orders"]["spec"]
            assert spec["holderIdentity"] == ""  # as both have ended
            assert spec["leaseTransitions"] == 2


@pytest.mark.parametrize("kind", ["bucket", "kubernetes"])
def test_a_standby_takes_over_by_it_and_the_old_primary_follows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with witness_of(kind, tmp_path, monkeypatch) as witness:
        pair = Pair(tmp_path, LEASE_S, witness=witness)
        try:
            for number in (0, 1):  # at once, with empty folders: one makes the root
                pair.start(number)
            first = pair.primary_in_step()
            messages = [Message(id=number, body="", durable=True) for number in range(COUNT)]
            send(f"amqp://127.0.0.1:{pair.ports[first]}", "orders", *messages)
            pair.kill(first)
            pair.wait(lambda: pair.primary() != first and not pair.holder()["is_closed"])
            pair.start(first)
            assert pair.primary_in_step() == 1 - first
            url = f"amqp://127.0.0.1:{pair.ports[1 - first]}"
            assert [message.id for message in take(url, "orders", COUNT)] == [*range(COUNT)]
            assert pair.holder()["generation"] == 2
        finally:
            pair.end()


class OfBucket:
    """A machine that serves a bucket, or waits until no other one does."""

    def __init__(self, folder: Path, name: str) -> None:
        settings = folder / f"{name}.toml"
        settings.write_text(f'[store]\ncopy_dir = "{folder / name}"\nwitness_lease_s = {LEASE_S}\n')
        command = [sys.executable, "-m", "broker_shim.serve.command", "s3://lake/queues"]
        command += ["--standby", "--listen", "127.0.0.1:0", "--config", str(settings)]
        self._log = (folder / f"{name}.log").open("ab")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=CHECKOUT
        )

    def says(self, word: str) -> str:
        """Wait for a line that begins with a word; what follows it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line.split()[1]
        raise AssertionError(f"it ended with {self.process.wait()}, and never said {word}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        return code


def test_a_second_store_of_a_bucket_waits_and_serves_what_the_first_one_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [Message(id=number, body="", durable=True) for number in range(COUNT)]
    with s3_server.served(monkeypatch), ExitStack() as machines:

        def machine(name: str) -> OfBucket:
            started = OfBucket(tmp_path, name)
            machines.callback(started.process.kill)
            return started

        first = machine("one")
        url = first.says("READY")
        second = machine("two")
        assert second.says("STANDBY") == "of=s3://lake/queues"
        send(url, "orders", *messages)  # it goes on: nobody takes the root from it
        first.end(signal.SIGKILL)
        url = second.says("READY")
        assert [message.id for message in take(url, "orders", COUNT)] == [*range(COUNT)]
        send(url, "orders", *messages)
        first = machine("one")  # its supervisor starts it again
        first.says("STANDBY")
        assert second.end() == 0
        url = first.says("READY")
        assert [message.id for message in take(url, "orders", COUNT)] == [*range(COUNT)]
        third = machine("two")
        third.says("STANDBY")
        assert third.end() == 0  # one that waits is stopped cleanly
        assert first.end() == 0


def copied(source: str, target: str) -> None:
    """Copy a file of a root at work, unless it goes meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def test_who_may_not_have_a_witness_is_refused_in_a_line_and_the_primary_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "witness").mkdir()
    settings = tmp_path / "s.toml"
    settings.write_text(f'[store]\nwitness = "{tmp_path / "witness"}"\nwitness_lease_s = 0.5\n')
    words = ("--listen", "127.0.0.1:0", "--config", str(settings))
    broker = BrokerProcess(str(tmp_path / "root"), *words)
    try:
        send(broker.url, "orders", Message(id=1, durable=True))
        sockets = shutil.ignore_patterns("*.sock")
        shutil.copytree(tmp_path / "root", tmp_path / "copy", ignore=sockets, copy_function=copied)
        for root, code, reason in (
            ("another", ExitCode.WRONG_CALL, "is the witness of .*/root: name another prefix"),
            ("copy", ExitCode.TRY_LATER, "a copy of this root is served as .*/root: stop that one"),
        ):
            command = [sys.executable, "-m", "broker_shim.serve.command", str(tmp_path / root)]
            run = subprocess.run(
                [*command, *words], capture_output=True, text=True, cwd=CHECKOUT, check=False
            )
            assert run.returncode == code, run.stderr
            assert re.search(reason, run.stderr)
            assert "Traceback" not in run.stderr
        assert not (tmp_path / "another" / "root.json").exists()
        send(broker.url, "orders", Message(id=2, durable=True))
        assert [message.id for message in take(broker.url, "orders", 2)] == [1, 2]
    finally:
        broker.terminate()

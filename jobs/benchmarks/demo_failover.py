"""`make demo-failover`: two brokers under load; whoever serves is killed, and cut off once.

python -m jobs.benchmarks.demo_failover [--kills 3] [--cuts 1] [--clients jms proton]
    [--folder build/demo-failover]

The clients are those of docs/failover.md, with the addresses that it shows. Their ledgers are the
judge: what was accepted must come, what a broker confirmed to be off the queue must not come again.
DuckDB asks the root that serves in the end, and that of its standby, whether each message was there
once. Exit code 1: something was lost, undone, or came twice.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_shim.demo.processes import Progress
from sparkstore import query
from sparkstore.cli.output import table
from tests.support.system.cable import Cable
from tests.support.system.failover_clients import (
    DUPLICATES_DROPPED,
    NEW_IDS,
    PROGRAMS,
    FailoverClient,
    make,
)
from tests.support.system.pair_machines import Pair

LEASE_S = 3.0
_BEFORE, _AFTER = 100, 50
"""So many answers of each client before something happens, and after it."""
_MACHINES = "ab"
_HISTORY = """
SELECT queue,
       count(*) FILTER (detail IS NULL) AS taken,
       count(*) FILTER (detail IS NOT NULL) AS dropped
FROM message_history
WHERE kind = 'dequeued'
GROUP BY queue"""
"""What is sent again under its id is dropped, which is all that these queues drop."""

Rows = list[dict[str, Any]]


class FailoverDemo:
    """Two machines, the cables between all of them, and the clients.

    Attributes:
        happened: What happened, and for how long clients waited: rows of a table.
    """

    def __init__(self, folder: Path, names: Sequence[str], progress: Progress) -> None:
        self._progress, self.happened = progress, Rows()
        self._pair = Pair(folder, LEASE_S, DUPLICATES_DROPPED, ("--amqp-0-10", "same"))
        self._entrances = [Cable(port) for port in self._pair.ports]
        ports = [entrance.port for entrance in self._entrances]
        progress.say(f"machines a and b start; their witness is a folder, its lease {LEASE_S:g} s")
        self._pair.start_both()
        self._clients = [FailoverClient(n, ports, folder / f"{n}.log") for n in names]
        self._say_who_serves()
        progress.say(f"clients send and take, with failover URLs: {', '.join(names)}")

    def kill(self) -> None:
        """Kill the primary by `kill -9`; it comes back once the other one serves."""
        primary = self._loaded()
        self._pair.kill(primary)
        self._wait_for_the_other("kill -9", primary)
        self._pair.start(primary)

    def cut_off(self) -> None:
        """Cut the primary off from clients, standby and witness: it runs, and reaches nobody."""
        primary = self._loaded()
        cables = [self._entrances[primary], *self._pair.cables]
        for cable in cables:
            cable.cut()
        self._pair.cut_witness(primary)
        self._wait_for_the_other("cut off", primary)
        for cable in cables:
            cable.mend()
        self._pair.mount(primary)

    def end(self) -> list[str]:
        """End the load, and judge; a line for each thing that is wrong."""
        serves = self._say_who_serves()
        for client in self._clients:
            client.stop()
        self._progress.say("all that was accepted has come; two roots are asked what they had")
        wrong = [
            f"{client.name}: {len(numbers)} messages {what}: {sorted(numbers)[:5]}"
            for client in self._clients
            for what, numbers in (
                ("were accepted, and never came", client.lost()),
                ("came again after the broker had confirmed them taken", client.undone()),
            )
            if numbers
        ]
        for machine in (serves, 1 - serves):
            wrong += self._stored_otherwise(machine)
        return wrong

    def summary(self) -> Rows:
        """Return a row for each client, as its ledger has it."""
        return [
            {
                "client": client.name,
                "accepted": len({*client.numbers("accepted")}),
                "lost": len(client.lost()),
                "undone": len(client.undone()),
                "sent again, dropped": self._stored(self._serves)[client.name]["dropped"],
                "delivered again": len(came := client.numbers("received")) - len({*came}),
            }
            for client in self._clients
        ]

    def close(self) -> None:
        """End everything that was started."""
        for client in self._clients:
            client.kill()
        self._pair.end()
        for entrance in self._entrances:
            entrance.close()

    def _loaded(self) -> int:
        """Return the machine that serves, in step, once all clients had answers for a while."""
        primary, since_s = self._pair.primary_in_step(), time.monotonic()
        self._answered(since_s, _BEFORE)
        return primary

    def _answered(self, since_s: float, count: int) -> None:
        self._pair.wait(
            lambda: all(len(c.numbers("accepted", since_s)) >= count for c in self._clients)
        )

    def _wait_for_the_other(self, what: str, primary: int) -> None:
        """Wait until all clients have answers of the other machine, and say what they waited."""
        began_s, name = time.monotonic(), _MACHINES[primary]
        self._progress.say(f"{what.upper()}: machine {name}, which serves")
        self._pair.wait(lambda: self._pair.primary() != primary)
        took_over_s = time.monotonic()
        self._answered(took_over_s, _AFTER)
        waits = {c.name: c.first("accepted", took_over_s) - began_s for c in self._clients}
        self.happened.append(
            {"what": what, "machine": name, "then serves": _MACHINES[1 - primary]}
            | {f"{name} waited": f"{wait_s:.1f} s" for name, wait_s in waits.items()}
        )
        answers = ", ".join(f"{name} {wait_s:.1f} s" for name, wait_s in waits.items())
        self._progress.say(f"machine {_MACHINES[1 - primary]} serves; first answers: {answers}")

    def _say_who_serves(self) -> int:
        self._serves = self._pair.primary_in_step()
        name, other = _MACHINES[self._serves], _MACHINES[1 - self._serves]
        self._progress.say(f"machine {name} serves, {other} is its standby and in step")
        return self._serves

    def _stored(self, machine: int) -> dict[str, dict[str, Any]]:
        rows = query(self._pair.root(machine), _HISTORY).to_pylist()
        return {row["queue"]: row for row in rows}

    def _stored_otherwise(self, machine: int) -> list[str]:
        """Say what a root has otherwise than the clients; an answer lags 200 ms behind."""
        counts = {client.name: len({*client.numbers("accepted")}) for client in self._clients}
        taken = dict.fromkeys(counts, 0)

        def has_all() -> bool:
            taken.update((name, row["taken"]) for name, row in self._stored(machine).items())
            return all(taken.get(name, 0) >= count for name, count in counts.items())

        self._pair.wait(has_all)
        return [
            f"{name}: {count} accepted, and {taken[name]} taken by the root of {_MACHINES[machine]}"
            for name, count in counts.items()
            if taken[name] != count and name != NEW_IDS
        ]


def usable(names: Sequence[str], progress: Progress) -> list[str]:
    """Return the clients that this machine can run, made; say which it cannot, and why."""
    usable_names = []
    for name in names:
        progress.say(f"the client {name} is made, if it is not yet")
        try:
            make(name)
        except pytest.skip.Exception as reason:
            progress.say(f"without that client: {reason}")
        else:
            usable_names.append(name)
    return usable_names


def run(folder: Path, names: Sequence[str], kills: int, cuts: int) -> int:
    """Run the demo in a folder that is wiped first; its exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    progress = Progress()
    demo = FailoverDemo(folder.resolve(), usable(names, progress), progress)
    try:
        for happens in [demo.kill] * kills + [demo.cut_off] * cuts:
            happens()
        wrong = demo.end()
        print("", *table(demo.happened), "", *table(demo.summary()), "", sep="\n  ")
    finally:
        demo.close()
        progress.end()
    for line in wrong:
        progress.say(f"WRONG: {line}")
    if not wrong:
        progress.say(
            "PROVED: what was accepted came, what was taken did not come again, and both roots"
            " have each message once"
        )
    return 1 if wrong else 0


def main() -> int:
    """Run the demo that the command line asks for."""
    parser = argparse.ArgumentParser(prog="make demo-failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--cuts", type=int, default=1)
    parser.add_argument("--clients", nargs="+", default=["proton", "jms"], choices=PROGRAMS)
    parser.add_argument("--folder", type=Path, default=Path("build/demo-failover"))
    options = parser.parse_args()
    try:
        return run(options.folder, options.clients, options.kills, options.cuts)
    except AssertionError as reason:
        print(f"demo: FAILED: {reason}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""What may happen to a pair under load, one row each, and the driver of them.

    kill           the primary is killed, and comes back when the other one serves
    restart        it is killed, and comes back at once, within its lease
    freeze         it is stopped for longer than its lease, and goes on
    stop           it is stopped cleanly
    switch         a person has the machines change places, twice in a row
    cut …          nothing passes between two of primary, standby and witness
    both           both are killed at once
    standby …      its disk is full, slow or fails; it is killed amid catch-up, and amid a copy
    witness        neither has it for a while, or for minutes; it is gone for good, and replaced
    compact        both roots are folded meanwhile
    backup         the primary's root is put back as it was some time before

Each row begins with a pair in step under load, and ends when it is so again. Expected of all is
what `pair_ledger.Verdict` says; a row says besides who serves then, where that is decided.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from tests.support.system.pair_ledger import Load, Verdict
from tests.support.system.pair_machines import Pair

_SLOW_MS, _JOB_S, _MANY_LEASES = 100, 600.0, 40
_SETTINGS = "[broker]\nstop_timeout_s = 1.0\n"
"""A clean stop without a witness waits so long for answers that cannot come."""
_IN_BUCKET = "s3://lake/witness/orders"


class Drill:
    """A pair under load, and all that may happen to it.

    Attributes:
        took_s: From each kill of a primary to the first answer of the other machine.
        switched_s: From the last answer before a planned switch to the first one after it.
    """

    def __init__(self, folder: Path, lease_s: float, seed: int, bucket: int = 0) -> None:
        """Start a pair and its load.

        Args:
            folder: Where its roots are.
            lease_s: The lease of whoever serves.
            seed: Of what is left to chance.
            bucket: Port of a bucket that the witness is in; 0: it is a folder.
        """
        options, witness = ("--amqp-0-10", "same"), _IN_BUCKET if bucket else ""
        self.pair = Pair(folder, lease_s, _SETTINGS, options, witness, bucket)
        self._dice = random.Random(seed)
        self.took_s: list[float] = []
        self.switched_s: list[float] = []
        self.pair.start_both()
        self._generation = self.pair.holder()["generation"]
        self.load = Load(self.pair.ports)

    def run(self, names: Iterable[str]) -> None:
        """Do what some rows say, in this order."""
        for name in names:
            began_s = time.monotonic()
            self._go_on(self._dice.randrange(5, 60))
            ROWS[name](self, self.pair.primary_in_step())  # now: it was seconds behind at load 20
            self._go_on(5)
            took_s = time.monotonic() - began_s
            took = f", first answer {self.took_s[-1]:.1f} s" if name == "kill" else ""
            print(f"{name}: {took_s:.1f} s{took}; {len(self.load.accepted)} sends", flush=True)
        self.pair.primary_in_step()

    def end(self) -> Verdict:
        """End the load, and judge."""
        self.load.stop()
        take_overs = self.pair.holder()["generation"] - self._generation
        return self.load.verdict(self.pair.ports[self.pair.primary()], take_overs)

    # ------------------------------------------------------------------ rows

    def kill(self, primary: int) -> None:
        began_s = time.monotonic()
        self.pair.kill(primary)
        self._taken_over(primary)
        self.took_s.append(self.load.accepted[-1].at_s - began_s)
        self.pair.start(primary)

    def restart(self, primary: int) -> None:
        self.pair.kill(primary)
        self.pair.start(primary)

    def freeze(self, primary: int) -> None:
        self.pair.signal(primary, signal.SIGSTOP)
        self._taken_over(primary)
        self.pair.signal(primary, signal.SIGCONT)

    def stop(self, primary: int) -> None:
        self.pair.signal(primary, signal.SIGTERM)  # its supervisor starts it again
        self._taken_over(primary)

    def switch_twice(self, primary: int) -> None:
        for number in (primary, 1 - primary):
            assert self.pair.primary_in_step() == number
            self.pair.order(number, "failover", "switch")
            self._taken_over(number)
            answers = sorted(answer.at_s for answer in self.load.accepted[-50:])
            self.switched_s.append(max(later - one for one, later in pairwise(answers)))

    def cut_pair(self, _primary: int) -> None:
        """Who serves goes on alone, and nobody takes over."""
        generation = self.pair.holder()["generation"]
        for cable in self.pair.cables:
            cable.cut()
        self.pair.wait(lambda: not self.pair.holder().get("in_step", "?"))
        self._go_on(50)
        self.pair.pause(2 * self.pair.lease_s)
        assert self.pair.holder()["generation"] == generation
        for cable in self.pair.cables:
            cable.mend()

    def cut_primary(self, primary: int) -> None:
        self.pair.cut_witness(primary)
        self._taken_over(primary)
        self.pair.mount(primary)

    def cut_standby(self, primary: int) -> None:
        """Nobody takes over, and the standby goes on to confirm."""
        self.pair.cut_witness(1 - primary)
        self.pair.pause(2 * self.pair.lease_s)
        self._go_on(20)
        self.pair.mount(1 - primary)
        assert self.pair.primary() == primary

    def lose_witness(self, primary: int, leases: int = 3) -> None:
        """Nothing is confirmed after the lease, nobody takes over; then it goes on."""
        self._without_witness(leases)
        for number in (0, 1):
            self.pair.mount(number)
        assert self.pair.primary() == primary

    def lose_witness_for_minutes(self, primary: int) -> None:
        self.lose_witness(primary, _MANY_LEASES)

    def replace_witness(self, primary: int) -> None:
        self._without_witness()
        self.pair.replace_witness(primary)
        assert self.pair.primary() == primary

    def compact(self, primary: int) -> None:
        for number in (primary, 1 - primary):
            # Beside this load one of the priority that it has by itself gets a tenth of a core.
            words = ("compact", "--no-progress", "--heap", "512m", "--nice", "0")
            self.pair.order(number, *words, within_s=_JOB_S)
            self._go_on(5)

    def _without_witness(self, leases: int = 3) -> None:
        for number in (0, 1):
            self.pair.cut_witness(number)
        self.pair.pause(2 * self.pair.lease_s)
        count = len(self.load.accepted)
        self.pair.pause((leases - 2) * self.pair.lease_s)
        assert len(self.load.accepted) == count

    def kill_both(self, primary: int) -> None:
        order = self._dice.sample([0, 1], 2)
        for number in order:
            self.pair.kill(number)
        for number in self._dice.sample(order, 2):
            self.pair.start(number)
        self._go_on(5)
        assert self.pair.primary() == primary

    def fill_disk(self, primary: int) -> None:
        self._without_disk(1 - primary, "full")

    def break_disk(self, primary: int) -> None:
        self._without_disk(1 - primary, "eio")

    def slow_disk(self, primary: int) -> None:
        """The price is the slower of two syncs; the standby stays in step."""
        self.pair.spoil_disk(1 - primary, f"slow {_SLOW_MS}")
        self._go_on(20)
        assert self.pair.holder()["in_step"]
        self.pair.spoil_disk(1 - primary, "")

    def kill_catching_up(self, primary: int) -> None:
        self._kill_coming(primary)

    def kill_copied(self, primary: int) -> None:
        self._kill_coming(primary, is_new=True)

    def put_back(self, primary: int) -> None:
        """A root that is older than what it confirmed is refused; the other one serves."""
        root, older = self.pair.root(primary), self.pair.folder / "older"
        self.pair.signal(primary, signal.SIGSTOP)
        shutil.copytree(root, older, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
        self.pair.signal(primary, signal.SIGCONT)
        self.pair.primary_in_step()
        if self.pair.primary() == primary:  # a copy that took longer than a lease was a freeze
            self._go_on(50)
            seen = self.pair.holder()["renewal"]  # only what a renewal told is known afterwards
            self.pair.wait(lambda: self.pair.holder()["renewal"] > seen + 1)
            self.pair.kill(primary)
            shutil.rmtree(root)
            older.rename(root)
            self.pair.start(primary)
            self._taken_over(primary)
        shutil.rmtree(older, ignore_errors=True)

    # ------------------------------------------------------------------ parts of them

    def _go_on(self, count: int) -> None:
        """Wait for so many more answers, which nobody had before."""
        least = len(self.load.accepted) + count
        self.pair.wait(lambda: len(self.load.accepted) > least)

    def _taken_over(self, primary: int) -> None:
        """Wait for the first answer of the other machine."""
        self.pair.wait(lambda: self.pair.primary() != primary)
        self.pair.wait(lambda: self.load.accepted[-1].machine != primary)

    def _without_disk(self, standby: int, fault: str) -> None:
        """The standby cannot follow: who serves goes on alone, until the disk is as it was."""
        self.pair.spoil_disk(standby, fault)
        self.pair.wait(lambda: not self.pair.holder().get("in_step", "?"))
        self._go_on(20)
        self.pair.spoil_disk(standby, "")

    def _kill_coming(self, primary: int, *, is_new: bool = False) -> None:
        """Kill the standby at a random moment after it came, some times."""
        standby = 1 - primary
        for _ in range(2):
            self.pair.kill(standby)
            if is_new:
                shutil.rmtree(self.pair.root(standby))
            self._go_on(20)
            self.pair.start(standby)
            self.pair.wait((self.pair.root(standby) / "writer.lock").exists)
            self.pair.pause(self._dice.uniform(0.5, 2.0))
        self.pair.kill(standby)
        self.pair.start(standby)


ROWS: dict[str, Callable[[Drill, int], None]] = {
    "kill": Drill.kill,
    "restart": Drill.restart,
    "freeze": Drill.freeze,
    "stop": Drill.stop,
    "switch twice": Drill.switch_twice,
    "cut primary - standby": Drill.cut_pair,
    "cut primary - witness": Drill.cut_primary,
    "cut standby - witness": Drill.cut_standby,
    "no witness": Drill.lose_witness,
    "no witness for minutes": Drill.lose_witness_for_minutes,
    "no witness for good": Drill.replace_witness,
    "compact both": Drill.compact,
    "kill both": Drill.kill_both,
    "standby's disk full": Drill.fill_disk,
    "standby's disk fails": Drill.break_disk,
    "standby's disk slow": Drill.slow_disk,
    "kill a standby that catches up": Drill.kill_catching_up,
    "kill a standby that is copied": Drill.kill_copied,
    "put the primary's root back": Drill.put_back,
}


OF_A_BUCKET = ("cut primary - witness", "no witness", "cut standby - witness", "kill")
"""Rows whose witness is a bucket, too: a network that is cut is silent, and a folder is not."""
_DEAR = {"compact both", "no witness for minutes"}
"""Where other rows are done once, these are not: `tests/spark` has jobs, a row a short loss."""


def plan(kills: int, others: int, seed: int) -> list[str]:
    """Rows in random order: so many kills of the primary, and so many of each other."""
    names = [name for name in ROWS if name != "kill" and name not in _DEAR] * others
    names += ["kill"] * kills + [*_DEAR] * (others // 3)
    random.Random(seed).shuffle(names)
    return names

"""Kill a working store again and again, and hold what it recovers against what it told.

The oracle is what the clients were told, nothing else: a call that was answered is true, a call
that was not may be either, but a transaction is whole or not at all.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.store.chain.mirror import take_place
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.tables.root import open_root
from tests.support.roots.logs import unsynced_files, until, zero
from tests.support.system.forked import ForkedProcess
from tests.support.system.kill_client import CONFIG, THREADS

Key = tuple[str, int]


Entries = dict[Key, str | None]
BRANCH = "a branch in doubt"


@dataclass(slots=True)
class Known:
    """What must be there, by what was told.

    Attributes:
        on: Entries and who holds each; a queue itself is here as message 0 of it, and a branch in
            doubt as the negative number of a message that it puts on a queue.
        bodies: Content by message id, of everything ever asked for.
        owners: The thread that made a message; it alone touches it.
        branches: What the commit of a branch makes true, by its number.
        answered: Calls that were answered.
    """

    on: Entries = field(default_factory=dict)
    bodies: dict[int, bytes] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=lambda: {0: 0})
    branches: dict[int, list[Any]] = field(default_factory=dict)
    answered: int = 0

    def learn(self, thread: int, facts: list[Any]) -> None:
        """What a call that was asked for brings, should it happen."""
        for kind, _, *rest in facts:
            if kind == "on":
                self.bodies[rest[0]] = bytes.fromhex(rest[1])
                self.owners[rest[0]] = thread
            elif kind == "doubt":
                self.owners[-rest[0]] = thread
                self.branches[rest[0]] = rest[1]
                self.learn(thread, rest[1])

    def of(self, thread: int, entries: Entries) -> Entries:
        """The entries that only this thread touches."""
        return {key: who for key, who in entries.items() if self.owners.get(key[1], 0) == thread}

    def apply(self, on: Entries, facts: list[Any]) -> None:
        """Make a call true."""
        for kind, queue, *rest in facts:
            if kind == "off":
                del on[queue, rest[0]]
            elif kind == "doubt":
                on[BRANCH, -rest[0]] = None
            elif kind in {"commit", "roll back"}:
                del on[BRANCH, -rest[0]]
                then = self.branches[rest[0]]
                back = [["held", fact[1], fact[2], None] for fact in then if fact[0] != "on"]
                self.apply(on, then if kind == "commit" else back)
            else:
                on[queue, rest[0]] = rest[1] if kind == "held" else None


def read_told(path: Path) -> Iterator[list[Any]]:
    """Whole lines of what a client was told: the last may have been cut."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)


class KillLoop:
    """One growing root; each round a client works on it until it is killed.

    With `is_mirrored` another root follows it, which now and then takes its place.
    """

    def __init__(self, folder: Path, seed: int, *, is_mirrored: bool = False) -> None:
        self.root = folder / "root"
        self.mirror = folder / "mirror 0" if is_mirrored else None
        self.promoted = 0
        self._folder = folder
        self._dice = random.Random(seed)
        self._seed = seed
        self.known = Known()
        self.rounds = self.in_doubt = self.zeroed = self.branches = 0
        self.may_fail = False

    def round(self, *, power_cut: bool) -> None:
        """Start a client, kill it, damage what a power cut may damage, open and compare.

        Raises:
            AssertionError: Something that was told is not true.
        """
        self.rounds += 1
        told = self._folder / f"told {self.rounds}"
        self._work_and_die(told)
        if power_cut:
            for path in unsynced_files(open_root(self.root)):
                zero(path)
                self.zeroed += 1
        if self.mirror is not None and self.rounds % 2:
            self._promote(told)
        store = DeltaMessageStore(self.root, CONFIG)
        try:
            self._compare(store, told)
        finally:
            store.close()

    def _promote(self, told: Path) -> None:
        """The mirror takes the first root's place, unless it had not caught up when that died.

        What was in doubt the time before, `_compare` has found in the first root or not, and the
        mirror gets it when the next client catches up: one that died before it said anything had
        not.
        """
        if self.mirror is None or not self.mirror.exists() or not told.stat().st_size:
            return
        store = DeltaMessageStore(self.mirror, CONFIG)
        try:
            if not take_place(store):
                return
        except InvalidRequest:
            return
        finally:
            store.close()
        self.promoted += 1
        self.root, self.mirror = self.mirror, self._folder / f"mirror {self.promoted}"

    def _work_and_die(self, told: Path) -> None:
        told.touch()
        seed = str(self._seed * 1000 + self.rounds)
        words = [self.root, told, seed, *filter(None, [self.mirror])]
        with (self._folder / "client.stderr").open("w+") as errors:
            client = ForkedProcess(
                "tests.support.system.kill_client",
                *map(str, words),
                stdout=errors.fileno(),
                stderr=errors.fileno(),
            )
            # Sometimes in the middle of its start, mostly in the middle of its work.
            lines = self._dice.choice([0, 1, 50, 300, 1000, 2500])

            with told.open("rb") as said:

                def has_said_enough() -> bool:
                    nonlocal lines
                    assert client.poll() is None, Path(errors.name).read_text()
                    lines -= said.read().count(b"\n")
                    return lines <= 0

                until(has_said_enough, 120)
            threading.Event().wait(self._dice.random() * 0.05)
            client.kill()
            client.wait(30)

    def _compare(self, store: DeltaMessageStore, told: Path) -> None:
        asked: dict[int, list[tuple[str, list[Any]]]] = {n: [] for n in range(THREADS)}
        answers: set[str] = set()
        for what, call, *rest in read_told(told):
            if what == "?" and rest[0] == "flush":
                continue  # answered by the Delta commit, behind calls that came later
            if what == "?":
                thread = int(call.split("/")[1])
                asked[thread].append((call, rest[1]))
                self.known.learn(thread, rest[1])
            elif what == "+":
                answers.add(call)
            elif what == "-":
                assert self.may_fail, f"{call} failed: {rest}"
        entries = store.recover().entries
        found: Entries = {(queue, 0): None for queue in entries}
        found |= {(BRANCH, -int(each.xid.global_id)): None for each in store.prepared()}
        for queue, on_it in entries.items():
            found |= {(queue, number): entry.acquired_by for number, entry in on_it.items()}
        for thread, calls in asked.items():
            self._compare_thread(thread, calls, answers, self.known.of(thread, found))
        assert found == self.known.on
        self._check_order(entries)
        self._check_content(store, {number for _, number in found if number > 0})
        self.branches += sum(name == BRANCH for name, _ in found)

    def _compare_thread(
        self, thread: int, calls: list[tuple[str, list[Any]]], answers: set[str], found: Entries
    ) -> None:
        """All that was answered is true, and of what was not, the first calls, each as a whole."""
        count = sum(call in answers for call, _ in calls)
        assert {call for call, _ in calls[:count]} <= answers, "answered out of order"
        self.known.answered += count
        for _, facts in calls[:count]:
            self.known.apply(self.known.on, facts)
        expected = self.known.of(thread, self.known.on)
        told = dict(expected)
        for _, facts in [("", []), *calls[count:]]:
            self.known.apply(expected, facts)
            self.known.apply(self.known.on, facts)
            self.in_doubt += bool(facts)
            if expected == found:
                return
        gone, more = told.keys() - found.keys(), found.keys() - told.keys()
        message = (
            f"thread {thread}: what was told, with no number of the {len(calls) - count} calls in"
            f" doubt, is what was found. Gone: {sorted(gone)[:9]}, more: {sorted(more)[:9]},"
            f" in doubt: {[facts for _, facts in calls[count:]]}"
        )
        raise AssertionError(message)

    def _check_order(self, entries: Any) -> None:
        """A thread's messages are on its own queue in the order in which it made them."""
        for queue, on_it in entries.items():
            positions = [entry.position for entry in on_it.values()]
            assert positions == sorted(positions)
            if queue.startswith("queue "):
                assert [*on_it] == sorted(on_it), f"{queue} is out of order"

    def _check_content(self, store: DeltaMessageStore, there: set[int]) -> None:
        for number in sorted(there) if len(there) < 60 else self._dice.sample(sorted(there), 60):
            assert store.load(number).body == self.known.bodies[number], number


def run(
    folder: Path, rounds: int, seed: int, *, power_cut_every: int = 3, is_mirrored: bool = False
) -> KillLoop:
    """So many rounds, with progress on stdout."""
    loop = KillLoop(folder, seed, is_mirrored=is_mirrored)
    for number in range(1, rounds + 1):
        loop.round(power_cut=number % power_cut_every == 0)
        if number % 10 == 0 or number == rounds:
            print(
                f"{number} kills, {loop.known.answered} calls answered, {loop.in_doubt} in doubt,"
                f" {len(loop.known.on)} entries waiting, {loop.zeroed} files zeroed: nothing lost",
                flush=True,
            )
    return loop

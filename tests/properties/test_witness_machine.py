"""Never may two roots tell completions at a time, whoever is cut off, killed or slow.

Every store and promotion has a clock of its own, which begins anywhere and goes a little faster or
slower than the others'. Requests are late, lost, or done without an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparkstore.errors import Fenced, StoreError, Unavailable
from sparkstore.tables.root import Identity
from sparkstore.witness.lease import Witness
from sparkstore.witness.turn import take_over
from tests.support.roots.late_witness import Network, World

LEASE_S = 10.0
MEMBERS = 3
FAULTS = st.sampled_from(["", "", "", "not sent", "not answered"])
DELAYS = st.sampled_from([0.0, 0.0, 1.0, LEASE_S / 2, LEASE_S * 2])


class _Killed(Exception):
    pass


@dataclass
class Machine:
    """A machine with a root on its disk.

    Attributes:
        rate: Of its clock; the promise allows for clocks that differ by a few per cent.
        store: The lease of the store that serves it, while one does.
    """

    identity: Identity
    rate: float
    offset: float
    store: Witness | None = None


class WitnessMachine(RuleBasedStateMachine):
    """One primary and its replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.place = Network(self.world)
        first = Identity("0" * 32)
        self.machines = [Machine(first, 1.0, 5.0)]
        for number in range(1, MEMBERS):
            replica = Identity(str(number) * 32, role="replica", primary_id=first.root_id)
            self.machines.append(Machine(replica, 1 + 0.02 * (-1) ** number, 1000.0 * number))
        self.has_served = False

    @rule(seconds=st.floats(0, 2 * LEASE_S))
    def time_goes_on(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(which=st.integers(0, MEMBERS - 1), fault=FAULTS, delay_s=DELAYS)
    def serve(self, which: int, fault: str, delay_s: float) -> None:
        """A start of the root on this machine, after the process before is gone."""
        machine = self.machines[which]
        if machine.identity.role != "primary":
            return
        lease = self._witness(machine)
        machine.store = None
        try:
            self._with(fault, delay_s, lambda: lease.claim(is_new=not self.has_served))
        except (Fenced, Unavailable):
            return
        self.has_served = True
        machine.store = lease

    @rule(
        which=st.integers(0, MEMBERS - 1),
        fault=FAULTS,
        delay_s=DELAYS,
        promoted=st.none() | st.integers(1, MEMBERS - 1),
    )
    def renew(self, which: int, fault: str, delay_s: float, promoted: int | None) -> None:
        store = self.machines[which].store
        if store is None:
            return
        if promoted is not None:
            self.world.meanwhile = partial(self.promote, promoted, "", 0.0, is_killed=False)
        try:
            self._with(fault, delay_s, store.renew)
        except Fenced:
            self.machines[which].store = None
        except Unavailable:
            pass

    @precondition(lambda self: self.has_served)
    @rule(
        which=st.integers(1, MEMBERS - 1),
        fault=FAULTS,
        delay_s=DELAYS,
        is_killed=st.booleans(),
    )
    def promote(self, which: int, fault: str, delay_s: float, *, is_killed: bool) -> None:
        machine = self.machines[which]
        if machine.identity.role != "replica":
            return
        new = replace(machine.identity, role="primary", generation=2)

        def wait(seconds: float) -> None:
            if is_killed:
                raise _Killed
            self.world.now += seconds / machine.rate

        try:
            self._with(
                fault,
                delay_s,
                lambda: take_over(self.place, machine.identity, new, "replica", wait),
            )
        except (StoreError, _Killed):
            return
        machine.identity = new

    @rule(which=st.integers(0, MEMBERS - 1))
    def end_well(self, which: int) -> None:
        machine = self.machines[which]
        if machine.store is not None:
            machine.store.stop()
            machine.store = None

    @invariant()
    def no_two_tell(self) -> None:
        telling = [each for each in self.machines if each.store is not None and each.store.left_s]
        assert len(telling) <= 1
        primaries = [each for each in self.machines[1:] if each.identity.role == "primary"]
        assert len(primaries) <= 1
        if primaries:
            assert telling in ([], primaries)

    def _witness(self, machine: Machine) -> Witness:
        def clock() -> float:
            return machine.offset + machine.rate * self.world.now

        def wait(seconds: float) -> None:
            self.world.now += seconds / machine.rate

        where = machine.identity.root_id
        return Witness(self.place, machine.identity, where, LEASE_S, clock, wait)

    def _with(self, fault: str, delay_s: float, call: Callable[[], object]) -> None:
        self.world.fault, self.world.delay_s = fault, delay_s
        try:
            call()
        finally:
            self.world.fault, self.world.delay_s, self.world.meanwhile = "", 0.0, None


TestWitness = WitnessMachine.TestCase
TestWitness.settings = settings(max_examples=300, stateful_step_count=12)

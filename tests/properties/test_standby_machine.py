"""What was confirmed is in the log of whoever serves next, whatever is cut off, killed or slow.

Two machines and a witness. The primary's side is the real one (`Shipping`, `Witness`), and so are
the decisions of a standby and of a start. Logs are lists; the network loses frames and answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkstore.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.log.wal_format import decode_group, encode_group
from sparkstore.shipping.frames import POSITION, PairFrame
from sparkstore.shipping.log_shipping import Shipping
from sparkstore.shipping.peer import Peer
from sparkstore.shipping.steps import Synchrony, may_take_over
from sparkstore.standby.admission import StartRole, role_at_start
from sparkstore.tables.root import Identity
from sparkstore.witness.holder import Holder
from sparkstore.witness.lease import Witness
from sparkstore.witness.turn import sight, take_place
from tests.support.roots.late_witness import Network, World

LEASE_S, GRACE_S = 10.0, 4.0
FAULTS = st.sampled_from(["", "", "not sent", "not answered"])
DELAYS = st.sampled_from([0.0, 0.0, 1.0, LEASE_S * 2])
STEPS = st.sampled_from(["", "", "", "released", "rewound", "brought up"])
SWITCH_STEPS = st.sampled_from(["", "", "", "drained", "released", "taken"])
TIMES = st.sampled_from([0.5, GRACE_S, LEASE_S / 2, LEASE_S * 1.1, LEASE_S * 1.3])
MACHINES = st.integers(0, 1)


class _Killed(Exception):
    pass


@dataclass
class Machine:
    """A machine: what is on its disk, and the process that runs there.

    Attributes:
        log: Values on its disk, by position; all synced.
        in_tables: So many of them are in its tables, and no more in its log alone.
        rate: Of its clock.
        is_up: A process runs, as primary if it has a lease, else as standby.
        held: The value that its log thread waits to confirm.
        is_through: Both logs have that value, or nobody need have it: the lease is looked at next.
        seen: The witness's object as its watch last saw it, its tag, and when it was new.
    """

    identity: Identity | None
    rate: float
    offset: float
    log: list[int] = field(default_factory=list)
    in_tables: int = 0
    is_up: bool = False
    lease: Witness | None = None
    shipping: Shipping | None = None
    held: int | None = None
    is_through: bool = False
    seen: tuple[Holder, str, float] | None = None
    link: Link | None = None

    def end(self) -> None:
        """The process is gone; its disk stays."""
        self.is_up, self.lease, self.shipping, self.held, self.seen = False, None, None, None, None
        self.is_through = False
        if self.link is not None:
            self.link.is_cut = True


class Link:
    """A connection of a primary to a standby, in place of `Peer`."""

    where, patience_s = "the standby", GRACE_S

    def __init__(self, standby: Machine) -> None:
        self._standby, self._answers = standby, list[int]()
        self.is_cut, self.fault = False, ""

    def send(self, kind: PairFrame, body: bytes = b"") -> None:
        if self.is_cut or self.fault == "not sent":
            self.is_cut = True
            raise Unavailable("cut off")
        if kind is PairFrame.GROUP:
            group = decode_group(memoryview(body)[POSITION.size :], 0)
            assert group is not None
            assert group.first_position == len(self._standby.log) + 1
            self._standby.log.append(int(group.payload))
        confirmed = POSITION.unpack_from(body)[0]
        self._standby.in_tables = max(self._standby.in_tables, confirmed)
        assert confirmed <= len(self._standby.log)
        self._answers.append(len(self._standby.log))

    def receive(self, _limit: object) -> tuple[PairFrame, bytes]:
        if self.is_cut or self.fault == "not answered":
            self.is_cut = True
            raise Unavailable("no answer")
        return PairFrame.ACK, POSITION.pack(self._answers.pop(0))

    def close(self) -> None:
        self.is_cut = True


class StandbyMachine(RuleBasedStateMachine):
    """Two machines of a pair."""

    is_always = False

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.place = Network(self.world)
        self.machines = [Machine(None, 1.0, 5.0), Machine(None, 1.02, 900.0)]
        self.values = iter(range(1, 1_000_000))
        self.confirmed: set[int] = set()
        self.start(0, "", 0.0)
        self.start(1, "", 0.0)
        self.connect(False, "", 0.0, "", 0)

    def primary(self, is_second: bool) -> Machine | None:  # drawn
        """One that serves, or believes so; of two the second, if it is asked for."""
        serving = [machine for machine in self.machines if machine.shipping is not None]
        return serving[is_second and len(serving) > 1] if serving else None

    # ------------------------------------------------------------------ time and machines

    @rule(seconds=TIMES)
    def time_goes_on(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(which=MACHINES)
    def kill(self, which: int) -> None:
        self.machines[which].end()

    @rule(is_second=st.booleans(), lost=st.integers(0, 3))
    def put_back(self, is_second: bool, lost: int) -> None:
        """Somebody puts back an old copy of the root that serves, and starts it."""
        machine = self.primary(is_second)
        if machine is None:
            return
        self.renew(is_second, "", 0.0)
        machine.end()
        sighted = sight(self.place)
        assert sighted is not None
        assert machine.identity is not None
        if sighted[0].root_id == machine.identity.root_id:
            del machine.log[max(0, sighted[0].position - 1 - lost) :]
            machine.in_tables = min(machine.in_tables, len(machine.log))
        self.start(self._number(machine), "", 0.0)

    @rule(which=MACHINES, fault=FAULTS, delay_s=DELAYS)
    def start(self, which: int, fault: str, delay_s: float) -> None:
        machine = self.machines[which]
        if machine.is_up:
            return
        standing = sight(self.place)
        try:
            role = role_at_start(machine.identity, standing and standing[0], "root")
        except InvalidRequest:
            return
        machine.is_up = True
        if role is StartRole.FOLLOW:
            return
        if machine.identity is None:
            machine.identity = Identity(f"{which}" * 32)
        if role is StartRole.FINISH:
            self._finish(machine)
        self._serve(machine, fault, delay_s, is_new=standing is None)

    def _serve(self, machine: Machine, fault: str, delay_s: float, *, is_new: bool) -> None:
        assert machine.identity is not None
        clock = partial(self._clock, machine)
        lease = Witness(
            self.place, machine.identity, "root", LEASE_S, clock, partial(self._wait, machine)
        )
        try:
            self._with(fault, delay_s, lambda: lease.claim(is_new=is_new))
        except StoreError:
            machine.end()
            return
        try:
            lease.check_whole(len(machine.log))
        except InvalidRequest:  # put back
            lease.stop()
            machine.end()
            return
        assert self.confirmed <= {*machine.log}
        machine.log.append(-next(self.values))  # `opened`
        machine.in_tables = len(machine.log)
        try:
            self._with(fault, delay_s, partial(lease.serve, print, lambda: machine.in_tables))
        except StoreError:
            machine.end()
            return
        synchrony = Synchrony(self.is_always, GRACE_S)
        encode = partial(encode_group, start=0)
        next_position = len(machine.log) + 1
        machine.lease = lease
        machine.shipping = Shipping(synchrony, encode, next_position, lease.name_in_step, clock)

    @rule(is_second=st.booleans())
    def end_well(self, is_second: bool) -> None:
        machine = self.primary(is_second)
        if machine is not None and machine.lease is not None and machine.held is None:
            machine.lease.stop()
            machine.end()

    @rule(is_second=st.booleans(), fault=FAULTS, delay_s=DELAYS, step=SWITCH_STEPS, who=MACHINES)
    def switch(self, is_second: bool, fault: str, delay_s: float, step: str, who: int) -> None:
        """A person has the standby take over; one of the two may be killed at a step.

        The old process then looks which machine serves, whether the standby was in time or not.
        """
        primary = self.primary(is_second)
        if primary is None or primary.lease is None or primary.held is not None:
            return
        if primary.link is None or primary.link.is_cut:
            return
        standby = self.machines[1 - self._number(primary)]
        try:
            self._at("drained", step)
            self._with(fault, delay_s, primary.lease.stop)
            assert not primary.lease.left_s
            self._at("released", step)
            primary.link.is_cut = True
            self.watch(self._number(standby), "", 0.0, is_killed=step == "taken")
            self.no_two_confirm()
        except _Killed:
            self.machines[who].end()
        if primary.is_up:
            primary.end()
            self.start(self._number(primary), "", 0.0)

    # ------------------------------------------------------------------ the primary's log

    @rule(is_second=st.booleans(), fault=FAULTS, is_killed=st.sampled_from([False, False, True]))
    def append(self, is_second: bool, fault: str, *, is_killed: bool) -> None:
        machine = self.primary(is_second)
        if machine is None or machine.shipping is None or machine.held is not None:
            return
        value = next(self.values)
        if machine.link is not None:
            machine.link.fault = fault
        machine.shipping.ship(b"%d" % value, 1, len(machine.log) + 1)
        if is_killed:  # the standby may have it, and the own disk has not
            machine.end()
            return
        machine.log.append(value)
        machine.held = value
        self._look(machine)
        self.confirm(is_second)

    @rule(is_second=st.booleans(), fault=FAULTS, delay_s=DELAYS)
    def look_again(self, is_second: bool, fault: str, delay_s: float) -> None:
        machine = self.primary(is_second)
        if machine is not None:
            self._with(fault, delay_s, partial(self._look, machine))
            self.confirm(is_second)

    def _look(self, machine: Machine) -> None:
        if machine.held is None or machine.is_through or machine.shipping is None:
            return
        try:
            machine.is_through = machine.shipping.wait(0.0)
        except Fenced:
            machine.end()
        except StoreError:
            pass

    @rule(is_second=st.booleans())
    def confirm(self, is_second: bool) -> None:
        """It may have been frozen since it looked at its standby."""
        machine = self.primary(is_second)
        if machine is None or machine.lease is None:
            return
        if not (machine.is_through and machine.lease.left_s):
            return
        assert machine.held is not None
        other = self.machines[1 - self._number(machine)]
        assert machine.held in machine.log
        assert machine.held in other.log or self._says(machine, "")
        self.confirmed.add(machine.held)
        machine.in_tables = len(machine.log)
        machine.held, machine.is_through = None, False

    @rule(is_second=st.booleans(), fault=FAULTS, delay_s=DELAYS)
    def renew(self, is_second: bool, fault: str, delay_s: float) -> None:
        machine = self.primary(is_second)
        if machine is not None and machine.lease is not None:
            try:
                self._with(fault, delay_s, machine.lease.renew)
            except Fenced:
                machine.end()
            except Unavailable:
                pass

    # ------------------------------------------------------------------ the standby

    @rule(is_second=st.booleans(), fault=FAULTS, delay_s=DELAYS, step=STEPS, who=MACHINES)
    def connect(self, is_second: bool, fault: str, delay_s: float, step: str, who: int) -> None:
        """Bring the other machine up as a standby; one of the two may be killed at a step."""
        primary = self.primary(is_second)
        if primary is None or primary.shipping is None:
            return
        if primary.link is not None and primary.link.is_cut:
            self.beat(is_second, "", 0.0)
        standby = self.machines[1 - self._number(primary)]
        self.start(self._number(standby), "", 0.0)
        if not standby.is_up or standby.lease is not None:
            return
        link = Link(standby)
        try:
            self._with(fault, delay_s, lambda: self._bring_up(primary, standby, link, step))
        except _Killed:
            link.is_cut = True
            self.machines[who].end()
            primary.shipping and primary.shipping.leave(cast("Peer", link))
        except StoreError:
            link.is_cut = True
            primary.shipping.leave(cast("Peer", link))

    def _bring_up(self, primary: Machine, standby: Machine, link: Link, step: str) -> None:
        shipping = primary.shipping
        assert shipping is not None
        assert primary.identity is not None
        shipping.release()
        self._at("released", step)
        common = standby.in_tables
        if primary.log[:common] != standby.log[:common]:
            common = 0  # a copy of all
        del standby.log[common:]
        self._at("rewound", step)
        own = standby.identity.root_id if standby.identity else f"{1 - self._number(primary)}" * 32
        standby.identity = Identity(
            own,
            role="standby",
            generation=primary.identity.generation,
            primary_id=primary.identity.root_id,
        )
        joined_at = shipping.join()
        standby.log += primary.log[common : joined_at - 1]
        standby.in_tables = len(standby.log)
        self._at("brought up", step)
        primary.link = link
        shipping.attach(cast("Peer", link), own)

    @rule()
    def cut(self) -> None:
        for machine in self.machines:
            if machine.link is not None:
                machine.link.is_cut = True

    @rule(is_second=st.booleans(), fault=FAULTS, delay_s=DELAYS)
    def beat(self, is_second: bool, fault: str, delay_s: float) -> None:
        machine = self.primary(is_second)
        if machine is not None and machine.shipping is not None and machine.link is not None:
            beat = partial(machine.shipping.beat, cast("Peer", machine.link))
            try:
                self._with(fault, delay_s, beat)
            except StoreError:
                machine.shipping.leave(cast("Peer", machine.link))

    @rule(which=MACHINES, fault=FAULTS, delay_s=DELAYS, seconds=TIMES)
    def watch_twice(self, which: int, fault: str, delay_s: float, seconds: float) -> None:
        self.watch(which, "", 0.0, is_killed=False)
        self.world.now += seconds
        self.watch(which, fault, delay_s, is_killed=False)

    @rule(which=MACHINES, fault=FAULTS, delay_s=DELAYS, is_killed=st.booleans())
    def watch(self, which: int, fault: str, delay_s: float, *, is_killed: bool) -> None:
        """The standby looks at the witness, and takes over if it is due."""
        machine = self.machines[which]
        if not machine.is_up or machine.lease is not None or machine.identity is None:
            return
        sighted = sight(self.place)
        if sighted is None:
            return
        now_s = self._clock(machine)
        if machine.seen is None or machine.seen[1] != sighted[1]:
            machine.seen = (*sighted, now_s)
        holder, tag, since_s = machine.seen
        if may_take_over(holder, machine.identity.root_id, now_s - since_s):
            self._take_over(machine, holder, tag, fault, delay_s, is_killed=is_killed)
        else:
            assert machine.identity.root_id != holder.root_id, "nobody would ever serve"

    def _take_over(
        self, machine: Machine, holder: Holder, tag: str, fault: str, delay_s: float, **how: bool
    ) -> None:
        link = self.machines[1 - self._number(machine)].link
        if link is not None:
            link.is_cut = True  # first: nothing more is confirmed to the primary
        assert machine.identity is not None
        new = Identity(machine.identity.root_id, generation=machine.identity.generation + 1)
        take = partial(take_place, self.place, holder, tag, new, "root")
        try:
            if holder.root_id != new.root_id and not self._with(fault, delay_s, take):
                return
        except StoreError:
            return
        if how["is_killed"]:
            machine.end()
            return
        self._finish(machine)
        self._serve(machine, "", 0.0, is_new=False)

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def no_two_confirm(self) -> None:
        telling = [one for one in self.machines if one.lease is not None and one.lease.left_s]
        assert len(telling) <= 1

    @invariant()
    def who_serves_has_all(self) -> None:
        for machine in self.machines:
            if machine.lease is not None and machine.lease.left_s:
                assert self.confirmed <= {*machine.log}

    @invariant()
    def who_may_take_over_has_all(self) -> None:
        sighted = sight(self.place)
        for machine in self.machines:
            if sighted and machine.identity and sighted[0].in_step == machine.identity.root_id:
                assert self.confirmed <= {*machine.log}

    def _says(self, machine: Machine, in_step: str) -> bool:
        sighted = sight(self.place)
        assert sighted is not None
        assert machine.identity is not None
        holder = sighted[0]
        return holder.root_id == machine.identity.root_id and holder.in_step == in_step

    def _finish(self, machine: Machine) -> None:
        identity = machine.identity
        assert identity is not None
        machine.identity = Identity(identity.root_id, generation=identity.generation + 1)

    def _at(self, step: str, killed_at: str) -> None:
        if step == killed_at:
            raise _Killed

    def _number(self, machine: Machine) -> int:
        return self.machines.index(machine)

    def _clock(self, machine: Machine) -> float:
        return machine.offset + machine.rate * self.world.now

    def _wait(self, machine: Machine, seconds: float) -> None:
        self.world.now += seconds / machine.rate

    def _with(self, fault: str, delay_s: float, call: Any) -> Any:
        self.world.fault, self.world.delay_s = fault, delay_s
        try:
            return call()
        finally:
            self.world.fault, self.world.delay_s = "", 0.0


class AlwaysMachine(StandbyMachine):
    """The same where nothing is confirmed without a standby."""

    is_always = True


TestStandby = StandbyMachine.TestCase
TestStandby.settings = settings(max_examples=1000, stateful_step_count=30)
TestAlways = AlwaysMachine.TestCase
TestAlways.settings = settings(max_examples=100, stateful_step_count=25)

"""Query, store and checkpoint of a stream that takes, each ended between any two steps.

The query is a real reader that is driven as Spark drives it, and the service and its root are
real. Whatever comes before, each message is in the sink once, as long as the query comes back
within its lease; after it, a message may be there twice, and none is ever lost. That holds, too,
where the checkpoint is lost or an old copy is put back, and where the sink is told numbers that it
had under the same name: the query is refused, and goes on when its user does what that says.
`tests/system/test_tickets_killed.py` kills real processes of Spark.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from broker_shim.errors import InvalidRequest
from broker_shim.service.members import known_members
from tests.support.stores.tickets import Query, TicketPlace

_MOST_RUNS = 200
"""Until all is settled at the end: a killed query is not always gone when it is asked for."""


class Tickets(RuleBasedStateMachine):
    """A model of what was put on the queue, beside a query that takes it."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.place = TicketPlace(Path(self._folder.name))
        self.query = Query(self.place, maxRecordsPerTrigger=3)
        self.put_count = 0
        self.is_running = self.comes_twice = False

    @rule(count=st.integers(1, 5))
    def put(self, count: int) -> None:
        first, self.put_count = self.put_count, self.put_count + count
        self.place.put(*(str(number) for number in range(first, self.put_count)))

    @rule(steps=st.integers(1, 6))
    def go_on(self, steps: int) -> None:
        self.is_running = True
        for _ in range(steps):
            if not self._is_refused(self.query.step):
                continue
            self.is_running = False
            return

    @precondition(lambda self: self.is_running)
    @rule()
    def kill_query(self) -> None:
        self.query.kill()
        self.is_running = False

    @rule()
    def restart_store(self) -> None:
        self.place.restart()

    @precondition(lambda self: not self.is_running and self.query.done)
    @precondition(lambda self: self.query.done == len(self.query.checkpoint))
    @rule()
    def end_lease(self) -> None:
        """Only of a batch that is done: another one is refused then."""
        self.place.end_lease(self.query)
        self.comes_twice = True

    @precondition(lambda self: not self.is_running)
    @rule(has_own_name=st.booleans())
    def lose_checkpoint(self, has_own_name: bool) -> None:
        self.query.lose_checkpoint(has_own_name=has_own_name)
        self.comes_twice = True

    @precondition(lambda self: not self.is_running and self.query.checkpoint)
    @rule(back=st.integers(1, 3))
    def put_back_checkpoint(self, back: int) -> None:
        left = max(len(self.query.checkpoint) - back, 0)
        self.query.checkpoint, self.query.done = self.query.checkpoint[:left], left
        self.comes_twice = True

    def _is_refused(self, go_on: Callable[[], object]) -> bool:
        """Go on; where that is refused, do what the refusal says."""
        refusal = ""
        try:
            go_on()
        except InvalidRequest as reason:
            refusal = str(reason)
        if not refusal:
            return False
        assert re.search("never read|an old copy|not held any more", refusal), refusal
        assert "new checkpointLocation" in refusal
        self.query.kill()
        self.query.lose_checkpoint(has_own_name=True)
        self.comes_twice = True
        return True

    def _end_leases_of_runs_without_a_checkpoint(self) -> None:
        own = {f"spark-{offset['query']}" for offset in self.query.checkpoint}
        service = self.place.serviced.service
        with service.store.look() as machine:
            members = {*known_members(machine.state)}
        for member in members - own:
            service._lose(member)

    def teardown(self) -> None:
        try:
            self.query.kill()
            for _ in range(_MOST_RUNS):
                if not self.place.holders() and len({*self.query.bodies()}) == self.put_count:
                    break
                self._end_leases_of_runs_without_a_checkpoint()
                self._is_refused(self.query.run)
            self.query.kill()
            times = Counter(self.query.bodies())
            assert {*times} == {str(number) for number in range(self.put_count)}
            assert self.comes_twice or {*times.values()} <= {1}
        finally:
            self.place.stop()
            self._folder.cleanup()


def test_what_a_query_takes_is_in_its_sink_once() -> None:
    bounded = settings(settings(), max_examples=min(20, settings().max_examples))
    run(Tickets, settings=settings(bounded, stateful_step_count=15))

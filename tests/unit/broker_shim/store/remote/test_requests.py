"""The requests of a remote store that wait, over connections that come and go."""

from __future__ import annotations

from collections.abc import Sequence

from broker_shim.errors import InvalidRequest, NotAcquired, StoreError
from broker_shim.store.protocol import Refusal, Welcome
from broker_shim.store.remote.pending_requests import (
    MAX_READS_OUT,
    Answer,
    Completed,
    PendingReads,
    PendingRequests,
    Waiting,
)


class Told:
    """Requests of a store, and what each was told, by its number."""

    def __init__(self, count: int) -> None:
        self.requests = PendingRequests()
        self.outcomes: dict[int, StoreError | None] = {}
        for request in range(1, count + 1):
            self._add(request)

    def _add(self, request: int) -> None:
        def told(error: StoreError | None) -> None:
            assert request not in self.outcomes
            self.outcomes[request] = error

        self.requests.add(Waiting(request, b"%d;" % request, told, None, 0.0))

    def welcome(self, last_request: int, refusals: Sequence[Refusal] = ()) -> None:
        """Connected again, to a service that has decided so many."""
        self.tell(self.requests.welcome(Welcome(last_request, "i", "root", refusals, 1, 1, 1, 0)))

    def tell(self, completed: Completed) -> None:
        """As a store does."""
        for on_complete, error in completed:
            on_complete(error)


def test_what_was_refused_while_the_connection_was_lost_is_told_as_refused() -> None:
    it = Told(4)
    it.welcome(3, [(1, "InvalidRequest", "no such queue"), (3, "NotAcquired", "held")])
    assert [type(it.outcomes[request]) for request in (1, 2, 3)] == [
        InvalidRequest,
        type(None),
        NotAcquired,
    ]
    assert str(it.outcomes[1]) == "no such queue"
    assert it.requests.take(100) == b"4;"
    it.tell(it.requests.done(4, [(4, "InvalidRequest", "nor this")]))
    assert isinstance(it.outcomes[4], InvalidRequest)


def test_a_refusal_that_was_told_before_is_no_later_requests() -> None:
    it = Told(2)
    it.tell(it.requests.done(1, [(1, "InvalidRequest", "no such queue")]))
    it.welcome(2, [(1, "InvalidRequest", "no such queue")])
    assert it.outcomes[2] is None
    assert len(it.requests) == 0


def test_so_many_reads_are_out_at_a_time_and_no_request_waits_behind_the_others() -> None:
    it = Told(0)
    most = MAX_READS_OUT
    for read in range(most + 3):
        it.requests.add_read(read, b"r")
    it.requests.add_read(10_000, b"order;", is_order=True)
    it._add(1)
    assert it.requests.take(1 << 20) == b"r" * most + b"order;1;"
    it.requests.end_read(most + 1)  # nobody waits for it any more, and it was not sent
    it.requests.end_read(7)
    it.requests.end_read(8)
    assert it.requests.take(1 << 20) == b"rr"
    it.welcome(0)
    assert it.requests.take(1 << 20) == b"1;" + b"r" * most + b"order;"
    it.requests.end_read(9)
    it.requests.end_read(10_000)
    assert it.requests.take(1 << 20) == b""


def test_answers_before_a_lost_connection_are_not_told_with_those_after_it() -> None:
    reads, told = PendingReads(), list[Answer]()
    read = reads.add(told.append)
    assert reads.answered(read, (False, (b"lost",), None)) is None
    reads.begin_anew()
    assert reads.answered(read, (False, (b"one",), None)) is None
    ended = reads.answered(read, (True, (b"two",), None))
    assert ended == (told.append, [(False, (b"one",), None), (True, (b"two",), None)])
    assert reads.answered(read, (True, (b"late",), None)) is None
    assert reads.end_all() == {}

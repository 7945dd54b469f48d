"""The broker of a store service without AMQP: it decides for members, and for administrators.

It has a loop on a thread of its own, and is not made before somebody asks for it: a service for a
Broker-J host has none. What an administrator orders is carried out as by any broker
(`administration.order_turns`), so members are told of it as of all else.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.orders.bulk_operations import BulkOperations
from broker_shim.broker.orders.expiry_timer import Expiry
from broker_shim.broker.queues.queue_index import Survivors
from broker_shim.broker.queues.recovered_order import in_order_of_delivery
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop, wall_us
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import wait_for
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.members.kept_links import KeptLinks
from broker_shim.members.member_dispatcher import MemberDispatcher
from broker_shim.members.wiring_rows import applied, rows_of
from broker_shim.serve.administration.connection_orders import ConnectionOrders
from broker_shim.serve.administration.order_turns import HeldMessage, OrderTurns
from broker_shim.serve.broker_recovery import create_wiring
from broker_shim.serve.headers import all_headers
from broker_shim.serve.http_option import listen_to_owner
from broker_shim.serve.stores import trouble_of
from broker_shim.service.members import known_members
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Recovered
from sparkstore.control.audit import Audit, write_audit
from sparkstore.core.entries import Stretch
from sparkstore.core.fold import State
from sparkstore.core.holders import since_by_holder, since_of
from sparkstore.core.policies import policies_of
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.definitions import recovered_of
from sparkstore.core.state_machine.sole_host import sole_host
from sparkstore.core.xids import is_branch_holder

if TYPE_CHECKING:
    from broker_shim.serve.http.http_server import HttpServer

_log = logging.getLogger(__name__)

_RETIRE_POLL_S = 0.01
_WIRING_S = 600.0


class DecidingThread:
    """The loop of the broker that decides for members, in a process that serves no AMQP.

    It is a `administration.order_turns.Decider`, too.

    Attributes:
        dispatcher: For the service.
    """

    def __init__(
        self,
        store: DeltaMessageStore,
        settings: BrokerSettings,
        audit: Audit = write_audit,
        http: HttpServer | None = None,
    ) -> None:
        """Begin: administrators are listened to when this returns, if the root allows it.

        Raises:
            InvalidRequest: The settings want wiring that cannot be, or on the root of a Broker-J
                host, which has its own.
            StoreError: The store has ended.
            TimeoutError: That took too long.
        """
        self._inbox = Inbox()
        self._loop = Loop(self._inbox)
        self._store, self._settings, self._http = store, settings, http
        self._loop.at_end_of_turn(self._dispatch)
        self.dispatcher = MemberDispatcher(
            store, self._loop, self._inbox, self._make_broker, retire=self._retire
        )
        try:
            if settings.queues or settings.exchanges or settings.bindings:
                self._make_wiring()
        except BaseException:
            self._loop.close()
            raise
        connections = ConnectionOrders(tuple, audit, self.dispatcher.inquiries)
        self._turns = OrderTurns(self._loop, self, audit, connections, partial(trouble_of, store))
        if http is not None:
            http.serving(self._loop, self._turns, store, store.root.identity.root_id)
            listen_to_owner(http, store.root, audit)
        self._thread = threading.Thread(target=self._loop.run, name="dispatch", daemon=True)
        self._thread.start()

    @property
    def broker(self) -> Broker | None:
        """Return the broker that decides, if one was started. See `Decider.broker`."""
        return self.dispatcher.broker

    def decide(self) -> Broker:
        """Start the broker that decides, if none is there, and return it. See `Decider.decide`."""
        return self.dispatcher.start()

    def _decider(self) -> BulkOperations | None:
        """Those of the broker, which decides now; None while a Broker-J host does, or may."""
        try:
            return self.decide().bulk
        except StoreError:
            return None

    def expire(self) -> None:
        """Have messages leave their queues when their time is over, from now on."""
        self._loop.post(Expiry(self._store, self._decider, self._loop.later).start)

    def held(self) -> Iterator[HeldMessage]:
        """List the messages that members and branches in doubt hold in the store.

        See `Decider.held`.
        """
        with self._store.look() as machine:
            acquired = [*_acquired(machine.state)]
            since = since_by_holder(machine.state)
        for name, message_id, holder in acquired:
            yield HeldMessage(name, message_id, [holder], since_of(holder, since))

    def close(self) -> None:
        """Hand nothing out and take no orders any more, before the store is closed."""
        if self._http is not None:
            self._http.stopping()
        self._loop.stop()
        self._thread.join()
        self._turns.give_up()
        self._loop.close()

    def _dispatch(self) -> None:
        if self.dispatcher.broker is not None:
            self.dispatcher.broker.dispatch()

    def _make_wiring(self) -> None:
        """Have what the settings say, by a broker that is forgotten then: nobody is here yet."""
        with self._store.look() as machine:
            host, wiring = sole_host(machine.state), recovered_of(machine.state)
        if host is not None:
            message = (
                f"this root belongs to virtual host {shown(host.name)}, which makes its own queues:"
                " leave queues, exchanges and bindings out of the settings"
            )
            raise InvalidRequest(message)
        create_wiring(self._store, self._broker_of(wiring), _WIRING_S)

    def _make_broker(self, state: State) -> Broker:
        """A broker with all that is on the queues; nobody but members consumes from it."""
        survived = recovered_of(state)
        broker = self._broker_of(survived)
        absent = {*known_members(state)} - self.dispatcher.absences.given_up
        recovered = partial(broker.claims.auto_deletion.recovered, survived.configured, absent)
        self._loop.post(recovered)  # not under the store's lock, and before any member says more
        return broker

    def _broker_of(self, recovered: Recovered) -> Broker:
        calls = StoreCalls(self._store, self._inbox, _log_end, entries=recovered.entries)
        broker = Broker(calls, self._settings, Metrics(), self._loop.later, all_headers())
        broker.queue_owners.append(KeptLinks(self._store, broker, self.dispatcher.link_is_nobodys))
        broker.policies = policies_of(recovered.configured)
        for row in rows_of(recovered):
            applied(broker, row)
        for name, queue in broker.queues.items():
            entries = recovered.entries.get(name, {})
            queue.recovered(map(_survivors, in_order_of_delivery(entries, wall_us())))
        return broker

    def _retire(self, broker: Broker, on_retired: Callable[[], None]) -> None:
        """Answer administrators that wait; retire when the broker has no open calls.

        See `dispatcher.Retire`.
        """
        broker.is_stopping = True
        self._turns.give_up()
        self._look_if_retired(broker, on_retired)

    def _look_if_retired(self, broker: Broker, on_retired: Callable[[], None]) -> None:
        if broker.open_count:
            again = partial(self._look_if_retired, broker, on_retired)
            self._loop.later(_RETIRE_POLL_S, again)
        else:
            on_retired()


def release_lost(store: DeltaMessageStore, timeout_s: float = 600.0) -> None:
    """Make available what nobody holds who may come back: that of a broker that had the root.

    Its connections are gone, so this counts as a failed delivery, as at the start of a broker.
    What members hold they keep for their grace, and links of tier 2 and branches in doubt theirs.

    Raises:
        StoreError: The store has ended.
        TimeoutError: It took too long.
    """
    with store.look() as machine:
        state = machine.state
        members = {*known_members(state)}
        keepers = {text for text, link in state.links.items() if _keeps(link.detail)}
        lost = [
            entry
            for entry in _acquired(state)
            if entry[2] not in keepers
            and not is_branch_holder(entry[2])
            and entry[2].partition("/")[0] not in members
        ]
    wait_for(
        (
            partial(store.release, message_id, queue, holder, delivery_failed=True)
            for queue, message_id, holder in lost
        ),
        timeout_s,
    )
    if lost:
        _log.info("released %d messages that links of an earlier broker held", len(lost))


def _survivors(stretch: Stretch) -> Survivors:
    failures = {i: entry.delivery_count for i, entry in stretch.marked if entry.delivery_count}
    return Survivors(stretch.message_ids, stretch.priorities, failures)


def _keeps(detail: str) -> bool:
    kept: bool = json.loads(detail).get("durability") == TerminusDurability.UNSETTLED_STATE
    return kept


def _acquired(state: State) -> Iterator[tuple[str, int, str]]:
    for name, queue in state.queues.items():
        for message_id, entry in queue.entries.marked():
            if entry.acquired_by is not None:
                yield name, message_id, entry.acquired_by


def _log_end(error: StoreError) -> None:
    _log.critical("the store has ended: %s", error)

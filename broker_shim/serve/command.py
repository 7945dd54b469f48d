"""`sparkstore serve`: the composition root of the broker."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.serve.administration.connection_orders import ConnectionOrders
from broker_shim.serve.administration.order_turns import OneBroker, OrderTurns
from broker_shim.serve.bind_address import parse_loopback
from broker_shim.serve.broker_recovery import expire, recover
from broker_shim.serve.entrance import Entrance, entrance_of
from broker_shim.serve.headers import all_headers
from broker_shim.serve.http_option import http_of, listen_to_owner
from broker_shim.serve.options import parser, settings_of
from broker_shim.serve.pair.standby import serve_in_turns, stores_when_due
from broker_shim.serve.protocols import listen
from broker_shim.serve.reporting import Reporter, announce, show_broker, show_service
from broker_shim.serve.signals import handle_signals, note_stops
from broker_shim.serve.stores import Stores, trouble_of
from broker_shim.serve.systemd import ALIVE, STOPPING, notify
from broker_shim.service.service_options import ServiceAddresses, service_addresses_of
from broker_shim.sockets.listener import Listener
from broker_shim.store.interface import BrokerStore, MessageStore
from sparkstore.cli.output import one_line
from sparkstore.config import StoreConfig
from sparkstore.control.audit import write_audit
from sparkstore.exit_codes import ExitCode, end_process, exit_code_of
from sparkstore.log.tuning import tune_process
from sparkstore.log_format import TextFormatter, say, use

if TYPE_CHECKING:
    from broker_shim.members.membership import Membership
    from broker_shim.serve.http.http_server import HttpServer
    from broker_shim.serve.members import ServedBeside

_log = logging.getLogger("sparkstore.serve")


class Entrances(NamedTuple):
    """The ways in: that of clients, and that of administrators over HTTP if there is one."""

    entrance: Entrance
    http: HttpServer | None

    @contextmanager
    def open_to(self, loop: Loop, stores: Stores, turns: OrderTurns) -> Iterator[dict[str, str]]:
        """Let administrators in while the loop runs; yields what is in force, to be told."""
        in_force, root = dict(self.entrance.in_force), stores.root
        if self.http is not None:
            root_id = None if root is None else root.identity.root_id
            self.http.serving(loop, turns, stores.messages, root_id)
            in_force |= {"http": self.http.url} if self.http.url else {}
            if root is not None:
                listen_to_owner(self.http, root)
        try:
            yield in_force
        finally:
            if self.http is not None:
                self.http.stopping()
                turns.give_up()


ServeBeside = Callable[[Loop, Inbox, Amqp10Listener], "ServedBeside"]

_PROBE_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the broker until it is told to stop, and return its exit code."""
    options = parser().parse_args(argv)
    _log_to_standard_error(options)
    return serve_in_turns(options, _run)


def _run(options: argparse.Namespace) -> int:
    try:
        settings, config = settings_of(options)
        addresses = service_addresses_of(options)
        if addresses is not None and addresses.listen is not None:
            parse_loopback(addresses.listen, "--store-listen")
        entrance = entrance_of(options)
        reporter = Reporter(options.metrics_file)
    except InvalidRequest as reason:
        return _complain(str(reason), exit_code_of(reason))
    http = None
    try:
        if not options.no_amqp:
            port = entrance.take_port().getsockname()[1]
            if options.store is not None and options.member is None:
                options.member = f"{socket.gethostname()}:{port}"
        http = http_of(options, entrance.guard, reporter, settings)
        return _open(options, settings, config, Entrances(entrance, http), addresses, reporter)
    except InvalidRequest as reason:  # another process has the port
        return _complain(str(reason), exit_code_of(reason))
    except KeyboardInterrupt:  # while it started: later SIGINT is a clean stop
        return _complain("interrupted before it served", ExitCode.INTERRUPTED)
    finally:
        if http is not None:
            http.close()
        entrance.close()


def _log_to_standard_error(options: argparse.Namespace) -> None:
    level = logging.DEBUG if options.verbose else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(handlers=[handler], level=level)
    use(options.log_format, level)


def _open(
    options: argparse.Namespace,
    settings: BrokerSettings,
    config: StoreConfig,
    entrances: Entrances,
    addresses: ServiceAddresses | None,
    reporter: Reporter,
) -> int:
    """Open the store and serve it, once it is this machine's turn; the exit code."""
    try:
        with stores_when_due(options, config, settings.stop_timeout_s, reporter) as stores:
            if stores is None:
                return ExitCode.DONE
            code = _serve_stores(stores, options, settings, config, entrances, addresses, reporter)
            pair = reporter.probes.pair
            return code if pair is None else pair.code_of(code)
    except (StoreError, OSError) as reason:
        return _complain(str(reason), _code_of(reason, options))


def _serve_stores(
    stores: Stores,
    options: argparse.Namespace,
    settings: BrokerSettings,
    config: StoreConfig,
    entrances: Entrances,
    addresses: ServiceAddresses | None,
    reporter: Reporter,
) -> int:
    if options.no_amqp:
        assert addresses is not None
        http = entrances.http
        return _serve_members(stores.messages, settings, addresses, config, options, reporter, http)
    if options.accept_durable:
        _log.warning("--accept-durable: durable messages are taken, and lost with this process")
    if addresses is None:
        return serve(stores, settings, entrances, options, reporter)
    from broker_shim.serve.members import serve_beside  # noqa: PLC0415

    beside = partial(serve_beside, stores.messages, addresses, config)
    return serve(stores, settings, entrances, options, reporter, beside)


def serve(
    stores: Stores,
    settings: BrokerSettings,
    entrances: Entrances,
    options: argparse.Namespace,
    reporter: Reporter,
    beside: ServeBeside | None = None,
) -> int:
    """Serve stores, which are closed at the end, and `beside` it their members; the exit code."""
    entrance, loop, failures = entrances.entrance, Loop(inbox := Inbox()), list[StoreError]()
    listener = Listener(loop)

    def fatal(error: StoreError) -> None:
        failures.append(error)
        listener.end("the broker's store has ended: connect again after its restart")

    entrance.guard.counts = metrics = Metrics()
    try:
        make = partial(_make_broker, settings, metrics, loop, inbox, fatal)
        host, membership = _take_over(stores, make, loop, options, is_shared=beside is not None)
        url = entrance.open()  # after recovery: no client meets a broker without its queues
        _probe(loop, host.broker.calls)
        served = beside and beside(loop, inbox, host)
        urls = served.service.urls if served else ()
    except (InvalidRequest, OSError, StoreError, TimeoutError) as reason:
        loop.close()
        stores.close()
        return _complain(str(reason), _code_of(reason, options))
    tune_process()
    listen(listener, host, entrance, None if served else reporter.probes.pair)
    handle_signals(loop, listener, host.broker, stores, entrance, reporter, options)
    show_broker(reporter, loop, listener, host.broker, stores.messages, options)
    connections = ConnectionOrders(listener.connections, write_audit, served and served.inquiries)
    turns = _turns_of(stores, loop, host.broker, connections, membership)
    with entrances.open_to(loop, stores, turns) as in_force:
        announce([url, *urls], in_force | stores.in_force, options, reporter.url)
        listener.run()
    reporter.stopping()
    for closing in (served.service, listener) if served else (listener,):
        closing.close()
    return end(stores, failures, metrics, options)


def _turns_of(
    stores: Stores,
    loop: Loop,
    broker: Broker,
    connections: ConnectionOrders,
    membership: Membership | None,
) -> OrderTurns:
    """Make the turns in which orders for the broker of these stores are carried out.

    A member has no root: the service of its members asks it about connections (`membership`).
    """
    if membership is not None:
        membership.answer_administrator = connections.answer
    decider = OneBroker(broker, getattr(stores.messages, "look", None))
    trouble = partial(trouble_of, stores.messages)
    return OrderTurns(loop, decider, connections=connections, trouble=trouble)


def _make_broker(
    settings: BrokerSettings,
    metrics: Metrics,
    loop: Loop,
    inbox: Inbox,
    fatal: Callable[[StoreError], None],
    store: BrokerStore,
    membership: Membership | None,
) -> Broker:
    if membership is None:
        return Broker(StoreCalls(store, inbox, fatal), settings, metrics, loop.later, all_headers())
    calls = StoreCalls(store, inbox, fatal, entries=membership.entries)
    return Broker(calls, settings, metrics, loop.later, all_headers(), membership.make_queue)


def _take_over(
    stores: Stores,
    make_broker: Callable[[BrokerStore, Membership | None], Broker],
    loop: Loop,
    options: argparse.Namespace,
    *,
    is_shared: bool,
) -> tuple[Amqp10Listener, Membership | None]:
    """Make a broker with all that its store has; `is_shared`: members may hold some of it."""
    store = stores.messages
    if not is_shared and options.store is None:
        host = Amqp10Listener(make_broker(store, None), stores.registry())
        recover(store, host)
        expire(store, host.broker)
        return host, None
    from broker_shim.serve import members  # noqa: PLC0415

    membership = None if is_shared else members.membership_of(store, loop.inbox)
    host = Amqp10Listener(make_broker(store, membership), stores.registry())
    if membership is None:
        recover(store, host, members.members_of(store))
        expire(store, host.broker)
    else:
        members.join(store, host, membership)
        members.send_by_turns(store, loop)
    return host, membership


def end(
    stores: Stores, failures: list[StoreError], metrics: Metrics, options: argparse.Namespace
) -> int:
    """Close what was served, and tell how it ended; the exit code."""
    notify(STOPPING)
    note_stops(options)
    try:
        stores.close()
    except StoreError as error:
        failures.append(error)
    if failures:
        reason = failures[0]
        code = _code_of(reason, options)
        return _complain(f"stopped: {type(reason).__name__}: {reason}", code)
    _log.info("stopped cleanly; %s", metrics.line())
    return ExitCode.DONE


def _probe(loop: Loop, calls: StoreCalls) -> None:
    """Ask the store from time to time, so that one that is fenced ends the broker."""
    calls.probe()
    notify(ALIVE)
    loop.later(_PROBE_S, lambda: _probe(loop, calls))


def _serve_members(
    store: MessageStore,
    settings: BrokerSettings,
    addresses: ServiceAddresses,
    config: StoreConfig,
    options: argparse.Namespace,
    reporter: Reporter,
    http: HttpServer | None,
) -> int:
    """Serve a store to members alone; it is closed at the end; the exit code."""
    from broker_shim.serve.members import decide_for, serve_store  # noqa: PLC0415
    from broker_shim.service.service import serve_alone  # noqa: PLC0415

    deciding = None
    try:
        deciding = decide_for(store, settings, http)
        service = serve_store(store, addresses, config, deciding.dispatcher, settings)
    except (OSError, StoreError, TimeoutError) as reason:
        if deciding is not None:
            deciding.close()
        store.close()
        return _complain(str(reason), exit_code_of(reason))
    tune_process()
    show_service(reporter, service, lambda: deciding.broker)
    in_force = {"keeps": store.durability.word}
    failure = serve_alone(
        service,
        reporter.write,
        lambda: announce(service.urls, in_force, options, reporter.url),
        deciding.close,
        options.stop_requests,
    )
    if failure is not None:
        return _complain(f"stopped: {type(failure).__name__}: {failure}", exit_code_of(failure))
    return ExitCode.DONE


def _code_of(reason: Exception, options: argparse.Namespace) -> ExitCode:
    return exit_code_of(reason, is_member=options.store is not None)


def _complain(line: str, code: int) -> int:
    say("sparkstore serve", one_line(line), logging.ERROR)
    return code


if __name__ == "__main__":
    end_process(main())

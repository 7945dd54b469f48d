"""`sparkstore serve`: the composition root of the embedded broker."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cproton import pn_sasl_extended, pn_ssl_present

from broker_shim.embedded.bind_address import ListenAddress, listening_socket, parse_listen
from broker_shim.embedded.broker import Broker, recover
from broker_shim.embedded.control import ControlServer
from broker_shim.embedded.inbox import Inbox
from broker_shim.embedded.listener import Listener, Timers
from broker_shim.embedded.metrics import Metrics
from broker_shim.embedded.settings import BrokerSettings, read_settings
from broker_shim.embedded.store_calls import StoreCalls
from broker_shim.errors import InvalidRequest, Locked, StoreError
from broker_shim.store.interface import BindingKey, Exchange, MessageStore, Queue
from sparkstore.config import StoreConfig, read_config
from sparkstore.log.tuning import tune_process
from sparkstore.root import open_root

_log = logging.getLogger("sparkstore.serve")

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_TRY_LATER = 0, 1, 2, 75
_PROBE_S = 1.0

EXAMPLES = """\
examples:
  sparkstore serve /var/lib/orders
  sparkstore serve /var/lib/orders --queue orders --bind 'amq.topic:order.#:orders'
  sparkstore serve --memory --listen 127.0.0.1:0

addresses a client may use:
  orders                the queue; created when a client attaches to it (auto_create)
  amq.topic/order.new   an exchange and a routing key
  amq.topic             an exchange; the subject of each message is its routing key
exchanges that are always there: amq.direct, amq.fanout, amq.topic
A message that routes to no queue is rejected with amqp:not-found.

exit codes: 0 stopped cleanly, 1 the store failed or another writer took over, 2 wrong call,
75 another process has the root open
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the broker until it is told to stop; its exit code."""
    options = _parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        address = parse_listen(options.listen)
        settings, config = _settings(options)
    except InvalidRequest as reason:
        return _complain(str(reason), EXIT_USAGE)
    try:
        store = _store(options, config)
    except InvalidRequest as reason:
        return _complain(str(reason), EXIT_USAGE)
    except Locked as reason:
        return _complain(str(reason), EXIT_TRY_LATER)
    except StoreError as reason:
        return _complain(f"{type(reason).__name__}: {reason}", EXIT_FAILED)
    return serve(store, settings, address, options)


def serve(
    store: MessageStore,
    settings: BrokerSettings,
    address: ListenAddress,
    options: argparse.Namespace,
) -> int:
    """Serve a store, which is closed at the end; the exit code."""
    _log_what_is_missing()
    inbox, timers = Inbox(), Timers()
    listener = Listener(inbox, timers)
    failures: list[StoreError] = []

    def fatal(error: StoreError) -> None:
        failures.append(error)
        listener.end()

    metrics = Metrics()
    calls = StoreCalls(store, inbox, fatal)
    broker = Broker(calls, settings, metrics, _later(timers))
    try:
        listening = listening_socket(address)
        recover(store, broker)
    except (OSError, StoreError, TimeoutError) as reason:
        store.close()
        return _complain(f"{type(reason).__name__}: {reason}", EXIT_FAILED)
    tune_process()
    listener.listen(broker, listening)
    _handle_signals(listener, metrics)
    _report(timers, metrics, options.metrics_file)
    _probe(timers, calls)
    port = listening.getsockname()[1]
    control = _control(options, listener, broker)
    _announce(f"amqp://{address.url_host}:{port}", options)
    listener.run()
    if control is not None:
        control.close()
    listener.close()
    return _end(store, failures, metrics, options.metrics_file)


def _end(
    store: MessageStore, failures: list[StoreError], metrics: Metrics, file: Path | None
) -> int:
    try:
        store.close()
    except StoreError as error:
        failures.append(error)
    if file is not None:
        metrics.write(file)
    if failures:
        reason = failures[0]
        return _complain(f"stopped: {type(reason).__name__}: {reason}", EXIT_FAILED)
    _log.info("stopped cleanly; %s", metrics.line())
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparkstore serve",
        description="Serve a root to AMQP 1.0 clients of this machine.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_options(parser.add_argument)
    return parser


def _add_options(add: Callable[..., object]) -> None:
    add("root", nargs="?", help="folder of the store; created if it is absent or empty")
    add(
        "--listen",
        default="127.0.0.1:5672",
        metavar="HOST:PORT",
        help="loopback address; port 0 takes a free one (default: %(default)s)",
    )
    add("--config", type=Path, metavar="FILE", help="sparkstore.toml: [store] and [broker]")
    add("--queue", action="append", default=[], metavar="NAME", help="create this queue")
    add(
        "--exchange",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help="create this exchange: direct, fanout or topic",
    )
    add(
        "--bind",
        action="append",
        default=[],
        metavar="EXCHANGE:KEY:QUEUE",
        help="bind this queue; give it with --queue if it is new",
    )
    add("--memory", action="store_true", help="keep nothing: no root, nothing survives")
    add(
        "--metrics-file",
        type=Path,
        metavar="FILE",
        help="write counters there every 5 s, as a textfile of Prometheus",
    )
    add("--json", action="store_true", help="print the READY line as JSON")
    add("--verbose", action="store_true", help="log more")


def _settings(options: argparse.Namespace) -> tuple[BrokerSettings, StoreConfig]:
    if not options.memory and not options.root:
        raise InvalidRequest("give the folder of the store, or --memory to keep nothing")
    settings, config = BrokerSettings(), StoreConfig()
    if options.config is not None:
        settings, config = read_settings(options.config), read_config(options.config)
    exchanges = []
    for text in options.exchange:
        name, kind = _split(text, "--exchange NAME:TYPE", 2)
        exchanges.append(Exchange(name, kind))
    bindings = []
    for text in options.bind:
        exchange, key, queue = _split(text, "--bind EXCHANGE:KEY:QUEUE", 3)
        bindings.append(BindingKey(exchange, queue, key))
    settings = settings.with_wiring([Queue(name) for name in options.queue], exchanges, bindings)
    return replace(settings, max_message_bytes=config.max_message_bytes), config


def _split(text: str, form: str, count: int) -> list[str]:
    """The parts of an argument; a colon too many belongs to the last part."""
    parts = text.split(":", count - 1)
    if len(parts) != count:
        message = f"{text!r}: write it as {form}"
        raise InvalidRequest(message)
    return parts


def _store(options: argparse.Namespace, config: StoreConfig) -> MessageStore:
    """Imported here: a broker that keeps nothing needs no deltalake."""
    if options.memory:
        from broker_shim.store.memory import MemoryMessageStore  # noqa: PLC0415

        return MemoryMessageStore(config.max_message_bytes)
    from broker_shim.store.delta import DeltaMessageStore  # noqa: PLC0415

    return DeltaMessageStore(options.root, config)


def _control(
    options: argparse.Namespace, listener: Listener, broker: Broker
) -> ControlServer | None:
    """Listen for bulk operations; AMQP is served even if that is not possible."""
    if options.memory:
        return None
    try:
        root = open_root(options.root)
        return ControlServer(listener.selector, broker, root.path, root.identity.root_id)
    except (OSError, StoreError) as reason:
        _log.warning("no control socket, so no bulk operations while this runs: %s", reason)
        return None


def _later(timers: Timers) -> Callable[[float, Callable[[], None]], None]:
    return lambda delay_s, call: timers.add(time.monotonic() + delay_s, call)


def _handle_signals(listener: Listener, metrics: Metrics) -> None:
    def stop(number: int, _frame: object) -> None:
        _log.info("%s: stopping", signal.Signals(number).name)
        listener.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGUSR1, lambda _number, _frame: _log.info("%s", metrics.line()))


def _report(timers: Timers, metrics: Metrics, file: Path | None) -> None:
    if file is None:
        return

    def write() -> None:
        try:
            metrics.write(file)
        except OSError as reason:  # counting is not worth an outage
            _log.warning("counters were not written: %s", reason)
        timers.add(time.monotonic() + 5, write)

    write()


def _probe(timers: Timers, calls: StoreCalls) -> None:
    """A store that was fenced while nothing is sent must end the broker all the same."""
    calls.probe()
    timers.add(time.monotonic() + _PROBE_S, lambda: _probe(timers, calls))


def _announce(url: str, options: argparse.Namespace) -> None:
    root = None if options.memory else str(options.root)
    if options.json:
        line = json.dumps({"ready": url, "root": root})
    else:
        line = f"READY {url} root={root or '(memory)'}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _log_what_is_missing() -> None:
    if not pn_ssl_present():
        _log.warning("proton was built without OpenSSL: no TLS; install its headers, build again")
    if not pn_sasl_extended():
        _log.info("proton was built without Cyrus SASL: ANONYMOUS only, which loopback needs")


def _complain(line: str, code: int) -> int:
    sys.stderr.write(f"sparkstore serve: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

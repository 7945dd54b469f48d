"""The command line of `sparkstore serve`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from broker_shim.addressing.bindings import Routing
from broker_shim.broker.settings import (
    AddressSettings,
    BrokerSettings,
    DurableMessages,
    read_settings,
)
from broker_shim.errors import InvalidRequest
from broker_shim.security import security_options
from broker_shim.serve.bind_address import LISTEN, LISTEN_TLS
from broker_shim.serve.pair import standby
from broker_shim.serve.stores import check_choice
from broker_shim.service import service_options
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.config import StoreConfig, read_config
from sparkstore.core.queue_names import canonical
from sparkstore.folder_name import check_is_folder_name
from sparkstore.log_format import add_log_format
from sparkstore.storage.access import use_storage_settings

EXAMPLES = """\
examples:
  sparkstore serve /var/lib/orders
  sparkstore serve /var/lib/orders --queue orders --bind 'amq.topic:order.#:orders'
  sparkstore serve --memory --listen 127.0.0.1:0     for what is not durable, or --accept-durable
  sparkstore serve /var/lib/orders --metrics-listen 127.0.0.1:9672
                                                 curl http://127.0.0.1:9672/metrics, /readyz
  sparkstore serve /var/lib/orders --http 127.0.0.1:8161
                                                 curl http://127.0.0.1:8161/api/v1/queues
  sparkstore serve --configuration /var/lib/wiring   messages in memory; queues and links survive
  sparkstore serve /var/lib/orders --amqp-0-10 127.0.0.1:5673      for clients of AMQP 0-10, too
  sparkstore serve /var/lib/orders --no-amqp     the store service alone, for Broker-J
  sparkstore serve /var/lib/orders --store-socket /run/orders/service.sock
  sparkstore serve --store unix:/run/orders/service.sock --listen 127.0.0.1:5673 --member b
                                                 two brokers on one set of queues
  sparkstore serve /var/lib/orders --listen 0.0.0.0:5671 --tls-cert cert.pem --tls-key key.pem \
      --users users.json                         for other machines; users by `sparkstore passwd`

addresses a client may use:
  orders                the queue; created when a client attaches to it (auto_create)
  prices::alice         the queue alice on the address prices; created likewise
  prices                multicast: every queue on it, or a subscription; else one of its queues
  amq.topic/order.new   an exchange and a routing key
  amq.topic             an exchange; the subject of each message is its routing key
the same names hold for AMQP 0-10 (--amqp-0-10): a routing key of the default exchange is such an
address; messages are the same, whatever protocol they come and go by
exchanges that are always there: amq.direct, amq.fanout, amq.match, amq.topic
A message that routes to no queue is rejected with amqp:not-found.

logs for a collector, one JSON object a line: --log-format json

exit codes: 0 stopped cleanly, 1 the store failed, 2 wrong call, 3 another took over, 4 the data is
damaged, 75 try later: another process has the root open, no room, no answer (docs/commands.md)
"""


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line of `sparkstore serve`."""
    arguments = argparse.ArgumentParser(
        prog="sparkstore serve",
        description="Serve a root to clients of AMQP 1.0, and of AMQP 0-10 with --amqp-0-10.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_options(arguments.add_argument)
    _add_membership(arguments.add_argument)
    _add_0_10(arguments.add_argument)
    _add_metrics(arguments.add_argument)
    _add_http(arguments.add_argument)
    _add_wiring(arguments.add_argument)
    standby.add_options(arguments.add_argument)
    security_options.add_options(arguments.add_argument)
    service_options.add_options(arguments.add_argument)
    return arguments


def _add_options(add: Callable[..., object]) -> None:
    add("root", nargs="?", help="folder or s3:// URI of the store; made if absent or empty")
    add(
        "--listen",
        metavar="HOST:PORT",
        help=f"port 0 takes a free one (default: {LISTEN}, with TLS {LISTEN_TLS}); an address that"
        " other machines reach needs --tls-cert and --users, or --insecure",
    )
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="sparkstore.toml: [store], [broker] and [security]",
    )
    add(
        "--configuration",
        type=_folder,
        metavar="FOLDER",
        help="keep queues, exchanges, bindings and links in JSON files there, but no message",
    )
    add("--memory", action="store_true", help="keep nothing: no root, nothing survives")
    add(
        "--accept-durable",
        action="store_true",
        help="with --memory or --configuration: take durable messages, too, though they are lost"
        " with the process; without it they are rejected",
    )
    add(
        "--accept-loss",
        action="store_true",
        help="serve a mirror of another root ([store] chain) that was behind when that ended, or a"
        " bucket that was put back to less than this machine has seen in it (that copy is kept), or"
        " a root put back to less than its witness knows: what it lacks is lost; without it such a"
        " root is refused",
    )
    add("--json", action="store_true", help="print the READY line as JSON")
    add_log_format(add)
    add("--verbose", action="store_true", help="log more")


def _folder(text: str) -> Path:
    """The folder of an option; a URI, however it is spelled, is none."""
    try:
        check_is_folder_name(text, "")
    except InvalidRequest as reason:
        raise argparse.ArgumentTypeError(str(reason)) from reason
    return Path(text)


def _add_membership(add: Callable[..., object]) -> None:
    add(
        "--store",
        metavar="URL",
        help="be one of several brokers on the queues of a store service: unix:PATH, or"
        " tcp:HOST:PORT with --token-file; of a pair both, with a comma between them",
    )
    add(
        "--member",
        metavar="NAME",
        help="with --store: what this broker is called there, the same after each restart and no"
        " other's (default: HOST:PORT, of --listen)",
    )


def _add_0_10(add: Callable[..., object]) -> None:
    add(
        "--amqp-0-10",
        metavar="HOST:PORT|same",
        help="listen for clients of AMQP 0-10, too, by the rules of --listen; port 0 takes a free"
        " one; `same`, or the address of --listen: one port for both, told apart by the first"
        " bytes of each client (default: only AMQP 1.0 is spoken)",
    )


def _add_metrics(add: Callable[..., object]) -> None:
    add(
        "--metrics-file",
        type=Path,
        metavar="FILE",
        help="write metrics there every 5 s, as a textfile of Prometheus",
    )
    add(
        "--metrics-listen",
        metavar="HOST:PORT",
        help="answer http://HOST:PORT/metrics, /healthz and /readyz, for example 127.0.0.1:9672",
    )


def _add_http(add: Callable[..., object]) -> None:
    add(
        "--http",
        metavar="HOST:PORT",
        help="serve a console, REST (/api/v1), /metrics, /healthz and /readyz over HTTP, for"
        " example 127.0.0.1:8161; TLS, users and permissions are those of --listen, roles are"
        " monitor, operator and admin (docs/http.md)",
    )


def _add_wiring(add: Callable[..., object]) -> None:
    add(
        "--queue",
        action="append",
        default=[],
        metavar="NAME",
        help="create this queue: NAME or ADDRESS::NAME",
    )
    add(
        "--multicast",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="what is sent to this address goes to all its queues; a pattern such as prices.#",
    )
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


def settings_of(options: argparse.Namespace) -> tuple[BrokerSettings, StoreConfig]:
    """Settings of broker and store.

    Raises:
        InvalidRequest: No store or two, a file that cannot be used, an argument that is none.
    """
    check_choice(options)
    settings, config = BrokerSettings(), StoreConfig()
    if options.config is not None:
        settings, config = read_settings(options.config), read_config(options.config)
        use_storage_settings(options.config)
    exchanges = []
    for text in options.exchange:
        name, kind = _split(text, "--exchange NAME:TYPE", 2)
        exchanges.append(Exchange(_named(name, "--exchange NAME:TYPE"), kind))
    bindings = []
    for text in options.bind:
        exchange, key, queue = _split(text, "--bind EXCHANGE:KEY:QUEUE", 3)
        queue = _named(queue, "--bind EXCHANGE:KEY:QUEUE")
        bindings.append(ExchangeBindingKey(exchange, queue, key))
    queues = [Queue(canonical(_named(name, "--queue NAME"))) for name in options.queue]
    addresses = [
        AddressSettings(_named(match, "--multicast ADDRESS"), Routing.MULTICAST)
        for match in options.multicast
    ]
    settings = settings.with_wiring(queues, exchanges, bindings, addresses)
    return replace(
        settings,
        max_message_bytes=config.max_message_bytes,
        durable_messages=_durable_messages(options),
    ), config


def _durable_messages(options: argparse.Namespace) -> DurableMessages:
    if options.root or options.store is not None:
        return DurableMessages.KEPT
    return DurableMessages.IN_MEMORY if options.accept_durable else DurableMessages.REJECTED


def _named(name: str, form: str) -> str:
    if not name:
        message = f"{form}: a name is needed"
        raise InvalidRequest(message)
    return name


def _split(text: str, form: str, count: int) -> list[str]:
    """The parts of an argument; a colon too many belongs to the last part."""
    parts = text.split(":", count - 1)
    if len(parts) != count:
        message = f"{text!r}: write it as {form}"
        raise InvalidRequest(message)
    return parts

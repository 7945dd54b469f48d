"""A machine of a pair: the port for its standby while it serves, its life as one while it does not.

`--standby-of` names the other machine, on either. With a witness each start decides anew which of
the two serves (`sparkstore.standby.admission`), and who was fenced becomes the standby of the other
in the same process. Without one it is a copy that a person promotes.
"""

from __future__ import annotations

import argparse
import logging
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from broker_shim.errors import InvalidRequest
from broker_shim.security.security_options import security_of
from broker_shim.security.tls import server_context
from broker_shim.serve.bind_address import listening_socket, parse_listen
from broker_shim.serve.pair.bucket import bucket_turn, held
from broker_shim.serve.pair.witness import wait_for_witness
from broker_shim.serve.signals import FOR_BROKERS
from broker_shim.serve.stores import Stores, open_stores
from broker_shim.serve.systemd import READY, notify
from broker_shim.service.socket import read_token
from sparkstore.config import StoreConfig, read_config
from sparkstore.exit_codes import ExitCode
from sparkstore.storage.objects import is_object_uri

if TYPE_CHECKING:
    from broker_shim.serve.pair.control import PairControl
    from broker_shim.serve.reporting import Reporter
    from sparkstore.log.writer import Log
    from sparkstore.standby.bucket_turn import BucketTurn
    from sparkstore.standby.stand_by import PeerAddress, StandBy

_log = logging.getLogger(__name__)

_MOST_PORTS = 65_535


def add_options(add: Callable[..., object]) -> None:
    """Add the options of a pair to an argparse parser."""
    add(
        "--standby-of",
        metavar="tcp:HOST:PORT",
        help="be the standby of the broker with this --standby-listen: ROOT gets all that it"
        " confirms; with a witness this one takes over by itself (docs/failover.md); needs"
        " --token-file",
    )
    add(
        "--standby-listen",
        metavar="HOST:PORT",
        help="let a standby of this root connect here; beyond loopback it needs --tls-cert; needs"
        " --token-file",
    )

    add(
        "--standby",
        action="store_true",
        help="of a root in a bucket: wait until no other store that was started so serves it, then"
        " serve (docs/buckets.md)",
    )


def with_pair(options: argparse.Namespace, config: StoreConfig) -> StoreConfig:
    """Return the settings with what the command line says of a pair, checked.

    Raises:
        InvalidRequest: They contradict one another.
    """
    config = replace(
        config,
        peer=options.standby_of or config.peer,
        standby_listen=options.standby_listen or config.standby_listen,
    )
    if not (config.peer or config.standby_listen):
        return config
    option = "--standby-of" if config.peer else "--standby-listen"
    if not options.root or is_object_uri(options.root):
        text = (
            "needs a root in a folder: --configuration and --memory have no log to ship; for a root"
        )
        text += " in a bucket say --standby on both machines (docs/buckets.md)"
        raise InvalidRequest(f"{option} {text}")
    if config.chain:
        raise InvalidRequest(f"{option} and [store] chain: have one of them, both copy all records")
    if config.ack == "delta":
        raise InvalidRequest(f'{option} ships the write-ahead log, which ack = "delta" has not')
    if options.token_file is None:
        raise InvalidRequest(f"{option} needs --token-file FILE, the same on both machines")
    if config.peer:
        _host_and_port(config.peer)
    if config.peer == f"tcp:{config.standby_listen}":
        text = "is this machine's own --standby-listen: name the other machine"
        raise InvalidRequest(f"--standby-of {config.peer} {text}")
    return config


def serve_in_turns(options: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Run a broker, again as a standby after the other machine took over; the exit code.

    Who asks this process to stop amid that (`options.stop_requests`) is not made to ask again.
    """
    options.stop_requests = list[int]()
    code = run(options)
    while code == ExitCode.TAKEN_OVER and _has_peer(options):
        if options.stop_requests:
            return ExitCode.DONE
        _log.warning("this machine looks which of the two serves")
        code = run(options)
    return code


def _has_peer(options: argparse.Namespace) -> bool:
    return bool(
        options.standby
        or options.standby_of
        or (options.config and read_config(options.config).peer)
    )


def _host_and_port(peer: str) -> tuple[str, int]:
    """Split the address of the other machine, whose name need not resolve while it is down."""
    kind, _, rest = peer.partition(":")
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host or not port.isdecimal() or int(port) > _MOST_PORTS:
        raise InvalidRequest(f"--standby-of {peer}: write it as tcp:HOST:PORT")
    return host.strip("[]"), int(port)


def _is_loopback(peer: str) -> bool:
    try:
        return parse_listen(peer.partition(":")[2], "--standby-of").is_loopback
    except InvalidRequest:  # it does not resolve
        return False


def _peer_address(options: argparse.Namespace, config: StoreConfig) -> PeerAddress:
    from sparkstore.standby.stand_by import PeerAddress  # noqa: PLC0415

    host, port = _host_and_port(config.peer)
    tls = None
    if config.peer_ca or not _is_loopback(config.peer):
        try:
            tls = ssl.create_default_context(cafile=config.peer_ca or None)
        except OSError as reason:
            raise InvalidRequest(f"[store] peer_ca {config.peer_ca}: {reason}") from reason
    return PeerAddress(host, port, read_token(options.token_file), tls)


def _follow_first(options: argparse.Namespace, config: StoreConfig, reporter: Reporter) -> bool:
    """Be a standby until this machine is to serve; False if it was told to stop before.

    Raises:
        StoreError: It can be no standby of that machine; the witness did not answer.
    """
    from sparkstore.standby.admission import StartRole  # noqa: PLC0415
    from sparkstore.standby.stand_by import StandBy, finish, start_role  # noqa: PLC0415

    role = start_role(options.root, config)
    if role is StartRole.FINISH:
        finish(options.root)
    if role is not StartRole.FOLLOW:
        return True
    standby = StandBy(options.root, config, _peer_address(options, config))
    return _wait_as(standby, config.peer, options, reporter)


def _wait_as(
    standby: StandBy | BucketTurn, of: str, options: argparse.Namespace, reporter: Reporter
) -> bool:
    """Be a standby, and say so; False if it was told to stop before it is to serve."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: standby.stop())
    if options.stop_requests:
        standby.stop()
    probes = reporter.probes
    probes.now(lambda: (), lambda: standby.trouble, None)
    probes.standby_trouble = lambda: None if standby.is_live else standby.trouble
    sys.stdout.write(f"STANDBY of={of} root={options.root}\n")
    sys.stdout.flush()
    notify(READY, f"STATUS=standby of {of}")
    try:
        return standby.run()
    finally:
        probes.standby_trouble = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # While it opens its store a stop is noted: what serves the store heeds it at once.
        signal.signal(signal.SIGTERM, lambda number, _frame: options.stop_requests.append(number))


@contextmanager
def stores_when_due(
    options: argparse.Namespace, config: StoreConfig, stop_timeout_s: float, reporter: Reporter
) -> Iterator[Stores | None]:
    """Open the stores once it is this machine's turn, and let a standby of them connect.

    Yields None if this machine was told to stop while it was a standby.

    Raises:
        StoreError: The settings contradict one another; as the store's constructor; as `run`.
    """
    for number in FOR_BROKERS:
        signal.signal(number, signal.SIG_IGN)
    config = with_pair(options, config)
    wait_for_witness(options.root, config, reporter.probes)
    turn = bucket_turn(options, config)
    if turn is not None:
        may_serve = _wait_as(turn, str(options.root), options, reporter)
    else:
        may_serve = not config.peer or _follow_first(options, config, reporter)
    if not may_serve:
        yield None
        return
    stores = open_stores(options, config, stop_timeout_s)
    try:
        with held(turn, stores), _standby_port(options, config, stores) as url:
            if url:
                _log.info("a standby may connect to %s", url)
                reporter.probes.pair = _pair_of(stores, config)
            yield stores
    except InvalidRequest:  # of the port
        stores.close()
        raise
    finally:
        reporter.probes.pair = None


def _pair_of(stores: Stores, config: StoreConfig) -> PairControl:
    from broker_shim.serve.pair.control import PairControl  # noqa: PLC0415  # it loads deltalake

    log: Log = stores.messages.log  # type: ignore[attr-defined]  # that of a root
    assert log.shipping is not None
    return PairControl(log, log.shipping, config)


@contextmanager
def _standby_port(
    options: argparse.Namespace, config: StoreConfig, stores: Stores
) -> Iterator[str]:
    """Let a standby connect while the body runs, if the settings say so; yields where.

    Raises:
        InvalidRequest: The address cannot be listened at, or others reach it without TLS.
    """
    log = getattr(stores.messages, "log", None)
    if not config.standby_listen or log is None:
        yield ""
        return
    from sparkstore.standby.port import StandbyPort  # noqa: PLC0415

    address = parse_listen(config.standby_listen, "--standby-listen")
    files = security_of(options).tls
    if files is None and not address.is_loopback and not options.insecure:
        text = "is reached by other machines: give --tls-cert and --tls-key, or --insecure"
        raise InvalidRequest(f"--standby-listen {config.standby_listen} {text}")
    try:
        listening = listening_socket(address)
    except OSError as reason:
        raise InvalidRequest(f"--standby-listen {reason.strerror}") from reason
    tls = None if files is None else server_context(files)
    port = StandbyPort(log, listening, read_token(options.token_file), tls)
    try:
        yield port.url
    finally:
        port.close()

"""The signals that a broker heeds, while it serves and while it ends."""

from __future__ import annotations

import argparse
import logging
import signal

from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.virtual_host import Broker
from broker_shim.serve.entrance import Entrance
from broker_shim.serve.reporting import Reporter
from broker_shim.serve.stores import Stores
from broker_shim.sockets.listener import Listener

_log = logging.getLogger(__name__)
_STOPS = (signal.SIGTERM, signal.SIGINT)
FOR_BROKERS = (signal.SIGHUP, signal.SIGUSR1)
"""They end no process that does not serve yet, or any more: it reads all when it serves."""


def handle_signals(
    loop: Loop,
    listener: Listener,
    broker: Broker,
    stores: Stores,
    entrance: Entrance,
    reporter: Reporter,
    options: argparse.Namespace,
) -> None:
    """Stop by SIGTERM and SIGINT, tell figures by SIGUSR1, read certificates by SIGHUP.

    A switch stops this process by a signal, too: that is no request to end for good.
    """

    def stop(number: signal.Signals) -> None:
        pair = reporter.probes.pair
        if pair is None or not pair.took_signal():
            options.stop_requests.append(number)
        _log.info("%s: stopping", number.name)
        listener.stop()

    def hang_up() -> None:
        entrance.reload(options, broker)
        listener.end_unknown()

    for number in _STOPS:
        loop.asyncio.add_signal_handler(number, stop, number)
    loop.asyncio.add_signal_handler(signal.SIGUSR1, lambda: _log.info("%s", broker.metrics.line()))
    loop.asyncio.add_signal_handler(signal.SIGHUP, hang_up)
    stores.limit_stop()
    if options.stop_requests:  # by a signal that came while this machine took over
        listener.stop()


def note_stops(options: argparse.Namespace) -> None:
    """Note who asks to stop while a broker ends: it is not to be a standby after that."""
    for number in FOR_BROKERS:
        signal.signal(number, signal.SIG_IGN)
    for number in _STOPS:
        signal.signal(number, lambda number, _frame: options.stop_requests.append(number))

"""The service without a broker beside it: serve until a signal, or until the store has ended."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable

from broker_shim.errors import StoreError, Unavailable
from broker_shim.service.service import Service
from broker_shim.store.delta import DeltaMessageStore

_log = logging.getLogger("sparkstore.serve")

_PROBE_S = 1.0
_REPORT_PROBES = 5


def serve_alone(
    service: Service, report: Callable[[], None], announce: Callable[[], None]
) -> StoreError | None:
    """Wait for SIGTERM or SIGINT, then close service and store.

    Args:
        service: What serves; its store is closed, too.
        report: Writes what was counted, every 5 s and at the end.
        announce: Called once it serves.

    Returns:
        What the store ended with, if it was not told to.
    """
    store, stopping, failure = service.store, threading.Event(), None

    def stop(number: int, _frame: object) -> None:
        _log.info("%s: stopping", signal.Signals(number).name)
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    line = service.members.metrics.line
    signal.signal(signal.SIGUSR1, lambda _number, _frame: _log.info("%s", line(store.metrics)))
    announce()
    probes = 0
    while not stopping.wait(_PROBE_S) and failure is None:
        failure = _probe(store)
        probes += 1
        if probes % _REPORT_PROBES == 0:
            report()
    service.close(failure)
    try:
        store.close()
    except StoreError as error:
        failure = failure or error
    report()
    if failure is None:
        _log.info("stopped cleanly; %s", line(store.metrics))
    return failure


def _probe(store: DeltaMessageStore) -> StoreError | None:
    """What the store has ended with; that there is no room now ends nothing."""
    try:
        with store.batch():
            return None
    except Unavailable:
        return store.failure
    except StoreError as error:
        return error

"""Make what serves HTTP, if anybody may ask: its libraries are imported then."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Guard
from broker_shim.serve.reporting import Reporter
from sparkstore.control.audit import Audit, write_audit

if TYPE_CHECKING:
    from broker_shim.serve.http.http_server import HttpServer
    from sparkstore.tables.root import Root

_log = logging.getLogger(__name__)


def check_http(options: argparse.Namespace) -> None:
    """Check that `--http` is asked of a process that has queues.

    Raises:
        InvalidRequest: It is not.
    """
    if options.http is not None and (options.no_amqp or options.store is not None):
        text = "--http is for a broker that has its queues: leave it out with --no-amqp and --store"
        raise InvalidRequest(f"{text}, and ask by sparkstore's commands")


def http_of(
    options: argparse.Namespace, guard: Guard, reporter: Reporter, settings: BrokerSettings
) -> HttpServer | None:
    """Make what serves `--http`, `--metrics-listen` and the control socket; None: none of them.

    Raises:
        InvalidRequest: It cannot be; says what to do.
    """
    check_http(options)
    if options.http is options.metrics_listen is None and not options.root:
        return None
    from broker_shim.serve.http import http_server  # noqa: PLC0415

    server = http_server.HttpServer(reporter.probes, settings)
    try:
        if options.metrics_listen is not None:
            reporter.url = http_server.listen_for_metrics(server, options.metrics_listen)
        if options.http is not None:
            http_server.listen_over_http(server, options, guard)
    except InvalidRequest:
        server.close()
        raise
    return server


def listen_to_owner(server: HttpServer, root: Root, audit: Audit = write_audit) -> None:
    """Listen in the root, too; what else the process serves is served even if it cannot."""
    try:
        server.listen_to_owner(root.path, audit)
    except OSError as reason:
        _log.warning("no control socket, so no administration while this runs: %s", reason)

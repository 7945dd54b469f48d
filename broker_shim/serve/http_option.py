"""The option `--http`: the port is made if it is asked for, and its libraries are imported then."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Guard
from sparkstore.extras import missing_extra

if TYPE_CHECKING:
    from broker_shim.serve.http.calls import Probes
    from broker_shim.serve.http.http_server import HttpServer


def http_of(
    options: argparse.Namespace, guard: Guard, probes: Probes | None, settings: BrokerSettings
) -> HttpServer | None:
    """Make the server of `--http`; None if it is not asked for.

    Raises:
        InvalidRequest: It cannot be; says what to do.
    """
    if options.http is None or probes is None:
        return None
    if options.no_amqp or options.store is not None:
        text = "--http is for a broker that has its queues: leave it out with --no-amqp and --store"
        raise InvalidRequest(f"{text}, and ask by sparkstore's commands")
    try:
        from broker_shim.serve.http.http_server import http_server_of  # noqa: PLC0415
    except ModuleNotFoundError as reason:
        raise missing_extra(reason) or reason from reason
    return http_server_of(options, guard, probes, settings)

"""The table of all endpoints, of every noun: what is not in it is refused."""

from __future__ import annotations

from broker_shim.serve.http.openapi import description_of
from broker_shim.serve.http.reports import (
    consumers,
    overview,
    probes,
    search,
    series,
    streams,
    subscriptions,
    users,
)
from broker_shim.serve.http.resources import (
    bulk_orders,
    connections,
    copies,
    definitions,
    events,
    exchanges,
    failover,
    messages,
    new_messages,
    operations,
    placements,
    policies,
    queues,
    sql,
    transactions,
    upkeep,
)

_NOUNS = (
    probes.ENDPOINTS,
    connections.ENDPOINTS,
    queues.ENDPOINTS,
    bulk_orders.ENDPOINTS,
    operations.ENDPOINTS,
    upkeep.ENDPOINTS,
    failover.ENDPOINTS,
    sql.ENDPOINTS,
    events.ENDPOINTS,
    messages.ENDPOINTS,
    exchanges.ENDPOINTS,
    policies.ENDPOINTS,
    new_messages.ENDPOINTS,
    transactions.ENDPOINTS,
    placements.ENDPOINTS,
    copies.ENDPOINTS,
    definitions.ENDPOINTS,
    overview.ENDPOINTS,
    series.ENDPOINTS,
    search.ENDPOINTS,
    consumers.ENDPOINTS,
    streams.ENDPOINTS,
    subscriptions.ENDPOINTS,
    users.ENDPOINTS,
)
_DESCRIBED = tuple(endpoint for endpoints in _NOUNS for endpoint in endpoints)
ENDPOINTS = (*_DESCRIBED, description_of(_DESCRIBED))

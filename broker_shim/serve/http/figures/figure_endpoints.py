"""The endpoints for figures over time."""

from __future__ import annotations

from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.serve.http.endpoint import QUEUE, Endpoint
from broker_shim.serve.http.figures import figure_bodies, series_requests

FIGURE_ENDPOINTS = (
    Endpoint(
        "GET",
        QUEUE + "/series",
        HttpRole.MONITOR,
        series_requests.show_series,
        figure_bodies.SeriesAnswer,
        figure_bodies.SeriesQuery,
    ),
)

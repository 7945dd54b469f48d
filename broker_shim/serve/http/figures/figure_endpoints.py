"""The endpoints for figures over time."""

from __future__ import annotations

from broker_shim.serve.http.endpoints import QUEUE, Endpoint
from broker_shim.serve.http.figures import figure_bodies, series_requests
from broker_shim.serve.http.roles import HttpRole

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

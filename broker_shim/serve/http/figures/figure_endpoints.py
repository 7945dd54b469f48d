"""The endpoints for figures over time."""

from __future__ import annotations

from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.serve.http.endpoint import API, QUEUE, Endpoint
from broker_shim.serve.http.figures import figure_bodies, overview_requests, series_requests

FIGURE_ENDPOINTS = (
    Endpoint(
        "GET",
        API + "/overview",
        HttpRole.MONITOR,
        overview_requests.show_overview,
        figure_bodies.OverviewAnswer,
    ),
    Endpoint(
        "GET",
        QUEUE + "/series",
        HttpRole.MONITOR,
        series_requests.show_series,
        figure_bodies.SeriesAnswer,
        figure_bodies.SeriesQuery,
    ),
)

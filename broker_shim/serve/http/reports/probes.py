"""Requests of monitors: metrics, health and readiness.

Health and readiness have a thread of their own: whatever other requests wait for, they do not.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import MONITOR, Endpoint
from broker_shim.serve.http.port.exchange import TEXT, Response

_PROBES = ThreadPoolExecutor(1, thread_name_prefix="http-probes")


async def show_metrics(call: Call) -> Response:
    """Show all metrics in the text format of Prometheus, or in that of OpenMetrics."""
    body, kind = await asyncio.to_thread(call.probes.metrics, call.headers.get("accept"))
    return Response(body, kind=kind)


async def show_health(call: Call) -> Response:
    """Answer 200 while the process comes round."""
    await asyncio.get_running_loop().run_in_executor(_PROBES, call.probes.health)
    return Response(b"ok\n", kind=TEXT)


async def show_readiness(call: Call) -> Response:
    """Answer 200 while the broker serves, else 503 and one line why not.

    Decision: 200 also without a standby, and the line says so. Whoever takes a machine that is not
    ready out of service would take the only one that serves. An alert tells people.
    """
    why = await asyncio.get_running_loop().run_in_executor(_PROBES, call.probes.readiness)
    well = "ok, alone: no standby has what is confirmed" if call.probes.is_alone else "ok"
    text = f"{why or well}\n".encode(errors="backslashreplace")
    return Response(text, 200 if why is None else 503, TEXT)


async def show_primary(call: Call) -> Response:
    """Answer 200 on the machine of a pair that serves, else 503."""
    is_primary = call.probes.is_serving
    return Response(
        b"primary\n" if is_primary else b"no primary\n", 200 if is_primary else 503, TEXT
    )


async def show_standby(call: Call) -> Response:
    """Answer 200 on a standby that has all that was confirmed, else 503 and one line why not."""
    why = call.probes.standby()
    text = f"{why or 'in step'}\n".encode(errors="backslashreplace")
    return Response(text, 200 if why is None else 503, TEXT)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/healthz", None, show_health),
    Endpoint("GET", "/readyz", None, show_readiness),
    Endpoint("GET", "/primary", None, show_primary),
    Endpoint("GET", "/standby", None, show_standby),
    Endpoint("GET", "/metrics", MONITOR, show_metrics, needs_broker=False),
)
OF_MONITOR = tuple(endpoint._replace(role=None) for endpoint in ENDPOINTS)
"""What is answered at a monitor's port, where nobody logs in."""

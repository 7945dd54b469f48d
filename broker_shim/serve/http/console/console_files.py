"""Serve the files of the console: those that are listed, and no path leads to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import Endpoint
from broker_shim.serve.http.port.exchange import Response

_FOLDER = Path(__file__).parent
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = sorted(path.name for path in _FOLDER.iterdir() if path.suffix in _KINDS)


def console_endpoints() -> tuple[Endpoint, ...]:
    """List the endpoints of the console: its page, and the files that this loads."""
    files = [Endpoint("GET", f"/console/{name}", HttpRole.MONITOR, _sender(name)) for name in FILES]
    return (Endpoint("GET", "/", HttpRole.MONITOR, _sender("index.html")), *files)


def _sender(name: str) -> Callable[[Call], Awaitable[Response]]:
    content, kind = (_FOLDER / name).read_bytes(), _KINDS[Path(name).suffix]

    async def send(call: Call) -> Response:  # noqa: ARG001  # as all endpoints
        """Send the console, or a file of it."""
        return Response(content, kind=kind)

    return send

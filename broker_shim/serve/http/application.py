"""The gate of the HTTP port: each request is let through step by step, or answered with why not.

    endpoint? ─► host and login ─► role ─► origin ─► query, body ─► the endpoint

Decision: there are no cookies, and a browser sends Basic to this port for any site that asks it to.
So a request is refused if its browser says that another site made it (Origin, Sec-Fetch-Site): one
that changes nothing, too, as it costs what an answer costs, and tells by its time. A link to the
console may stand on any site. A body is JSON, which no form of a site can send without being asked.
Programs that are no browsers say neither.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import TimeoutError as NoAnswer
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from broker_shim.errors import StoreError
from broker_shim.security.guard import Guard, Remote
from broker_shim.serve.http.bodies import ProblemAnswer
from broker_shim.serve.http.calls import Call, House, Probes
from broker_shim.serve.http.door import Door, Visitor
from broker_shim.serve.http.endpoints import Endpoint
from broker_shim.serve.http.refusals import HttpRefusal, refused_by
from broker_shim.serve.http.request_models import body_of_request, disconnected, query_of
from broker_shim.serve.http.roles import HttpRole

_log = logging.getLogger(__name__)

_OUR_SITES = {"same-origin", "none"}
MOST_ANSWER_BYTES = 16 << 20
"""A longer answer is refused, as it would stand in memory whole."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Gate:
    """Lets requests through to endpoints, for one broker."""

    def __init__(self, guard: Guard, probes: Probes, *, is_loopback: bool) -> None:
        self._guard, self._probes = guard, probes
        self._door = Door(guard, is_loopback=is_loopback)
        self.house: House | None = None

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        """Answer a request, whatever becomes of it."""
        try:
            found = await self._answer(endpoint, request)
        except HttpRefusal as refusal:
            return problem(refusal)
        except StoreError as error:
            return problem(refused_by(error, endpoint.conflict))
        except NoAnswer:
            return problem(HttpRefusal(503, "the process has not come round: look into its log"))
        except Exception:  # noqa: BLE001  # whoever asked is told, and the next one is served
            _log.exception("a request over HTTP failed")
            return problem(HttpRefusal(500, "the broker failed on this request: see its log"))
        if isinstance(found, Response):
            found.headers.update(_HEADERS)
            return _bounded(found)
        return _bounded(_json(found))

    async def _answer(self, endpoint: Endpoint, request: Request) -> Any:
        if endpoint.role is None:
            return await endpoint.run(Call(self._probes))
        house = self.house
        if house is None:
            raise HttpRefusal(
                503, "the broker does not serve yet, or no more: GET /readyz says why"
            )
        enter = partial(self._door.enter, house.broker, _remote(request), request.headers)
        needs_loop = not self._door.is_open or "authorization" in request.headers
        visitor = await house.calls.read(enter) if needs_loop else enter()
        if not visitor.role.includes(endpoint.role):
            await house.calls.read(partial(_refuse, endpoint, endpoint.role, visitor))
        if _is_of_another_site(request):
            await house.calls.read(partial(_refuse_site, endpoint, visitor))
        query = query_of(endpoint.query, request.query_params)
        body = await body_of_request(endpoint.body, request, endpoint.most_body_bytes)
        names = _names(request.path_params)
        gone = partial(disconnected, request.receive)
        call = Call(self._probes, house, visitor, names, query, body, request.headers, gone)
        return await endpoint.run(call)


def application_of(gate: Gate, endpoints: tuple[Endpoint, ...]) -> ASGIApp:
    """Make the application of these endpoints, which refuses all others."""

    def route(path: str, by_method: Mapping[str, Endpoint]) -> Route:
        async def run(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            return await gate.answer(by_method[method], request)

        return Route(path, run, methods=[*by_method])

    def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = {
            404: "there is nothing here: GET /api/v1/openapi.json lists what there is",
            405: "this cannot be done here: GET /api/v1/openapi.json lists what can",
        }
        status = error.status_code
        return problem(HttpRefusal(status, text.get(status, error.detail), error.headers))

    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:  # one route for a path: its methods are what 405 says is allowed
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [route(*each) for each in by_path.items()]
    application = Starlette(routes=routes, exception_handlers={HTTPException: refused})
    application.router.redirect_slashes = False
    return _as_sent(application)


def problem(refusal: HttpRefusal) -> Response:
    """Answer with why not, in one line."""
    line = " ".join(str(refusal).split())
    found = _json(ProblemAnswer(status=refusal.status, error=line), refusal.status)
    found.headers.update(refusal.headers)
    return found


def _bounded(answer: Response) -> Response:
    """Refuse an answer that is too long to be kept until it is read."""
    if len(getattr(answer, "body", b"")) <= MOST_ANSWER_BYTES:
        return answer
    text = f"the answer is longer than {MOST_ANSWER_BYTES >> 20} MiB: ask for less of it, or by"
    return problem(HttpRefusal(413, f"{text} sparkstore's commands on the root"))


def _as_sent(inner: ASGIApp) -> ASGIApp:
    """Find endpoints by the path as it was sent, in which a name is one segment."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path") or scope["path"].encode()
            scope = {**scope, "path": raw.decode("ascii", "replace"), "root_path": ""}
        await inner(scope, receive, send)

    return application


def _names(said: dict[str, Any]) -> dict[str, str]:
    try:
        return {name: unquote(value, errors="strict") for name, value in said.items()}
    except UnicodeDecodeError as reason:
        raise HttpRefusal(400, "a name in the path is not UTF-8, percent-encoded") from reason


def _remote(request: Request) -> Remote:
    host, port = request.client or ("", 0)
    tls = "TLS" if request.url.scheme == "https" else None
    return Remote(host, port, tls, getattr(request.state, "certificate_name", None))


def _refuse(endpoint: Endpoint, needed: HttpRole, visitor: Visitor) -> None:
    """Refuse a user without the role of an endpoint, and write it down. On the loop's thread."""
    access, principal = visitor.access, visitor.principal
    act = f"{endpoint.method} {endpoint.path}"
    access.guard.role_refused(access.remote, principal, act, needed)
    text = f"this needs the role {needed}, and {principal.name} is {visitor.role}"
    raise HttpRefusal(403, f"{text}: sparkstore passwd FILE NAME --roles {needed}")


def _refuse_site(endpoint: Endpoint, visitor: Visitor) -> None:
    """Refuse what another site had a browser ask, and write it down. On the loop's thread."""
    access, act = visitor.access, f"{endpoint.method} {endpoint.path} for another site"
    access.guard.role_refused(access.remote, visitor.principal, act, None)
    raise HttpRefusal(403, "another site may not ask here: use the console of this port")


def _is_of_another_site(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    here = request.headers.get("host", "")
    is_link = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
    is_strange = origin is not None and origin != "" and urlsplit(origin).netloc != here
    return (site not in _OUR_SITES and not is_link) or is_strange


def _json(found: Any, status: int = 200) -> Response:
    content = msgspec.json.encode(found)
    return Response(content, status, {**_HEADERS, "Content-Type": "application/json"})

"""Route each request to its endpoint, let through step by step, or answered with why not.

    endpoint? ─► host and login ─► role ─► origin ─► query, body ─► the endpoint

Decision: there are no cookies, and a browser sends Basic to this port for any site that asks it to.
So a request is refused if its browser says that another site made it (Origin, Sec-Fetch-Site): one
that changes nothing, too, as it costs what an answer costs, and tells by its time. A link to the
console may stand on any site. A body is JSON, which no form of a site can send without being asked.
Programs that are no browsers say neither. No browser reaches the control socket.

Decision: no framework. What a table of endpoints needs of one is here in a page: a path to its
endpoint, methods that are allowed, and JSON. Each broker of a root imports this, as its control
socket is served from here. Starlette with anyio took 3 MB on the disk and 40 ms of each start. What
is left are h11 (0.2 MB, 12 ms), which parses requests, and msgspec (0.7 MB, 14 ms), which has
bodies, their checks and OpenAPI.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from concurrent.futures import TimeoutError as NoAnswer
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from broker_shim.errors import StoreError
from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.serve.http.authenticator import Authenticator, Caller
from broker_shim.serve.http.calls import Call, ServedBroker
from broker_shim.serve.http.endpoint import Endpoint
from broker_shim.serve.http.port.exchange import HttpExchange, Response
from broker_shim.serve.http.refusals import HttpRefusal, refused_by
from broker_shim.serve.http.request_models import MOST_BODY_BYTES, body_of_request, query_of
from broker_shim.serve.probes import Probes
from sparkstore.control.audit import AuditEvent

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


class EndpointTable:
    """Finds endpoints by method and path."""

    def __init__(
        self, endpoints: Iterable[Endpoint], advice: str = "GET /api/v1/openapi.json lists what"
    ) -> None:
        """Find these endpoints; the advice is for who asks for what is not among them."""
        self._advice = advice
        self._by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            self._by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        self._patterns = [
            (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]*)", re.escape(path))), by_method)
            for path, by_method in self._by_path.items()
        ]

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """Return the endpoint of a request, and the names in its path, percent-encoded.

        Raises:
            HttpRefusal: There is none, or it has not this method.
        """
        for pattern, by_method in self._patterns:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            endpoint = by_method.get("GET" if method == "HEAD" else method)
            if endpoint is None:
                allowed = [*by_method, *(["HEAD"] if "GET" in by_method else [])]
                text = f"this cannot be done here: {self._advice} can"
                raise HttpRefusal(405, text, {"Allow": ", ".join(allowed)})
            return endpoint, match.groupdict()
        raise HttpRefusal(404, f"there is nothing here: {self._advice} there is")


class RequestRouter:
    """Answers the requests of one port.

    Attributes:
        served: The broker that is asked; None: none is served yet, or none any more.
    """

    served: ServedBroker | None = None

    def __init__(
        self,
        table: EndpointTable,
        authenticator: Authenticator,
        probes: Probes,
        most_large_body: int = 0,
    ) -> None:
        """Answer by a table of endpoints.

        Args:
            table: All that may be asked.
            authenticator: Finds the user of a request.
            probes: Metrics and health of the process.
            most_large_body: The longest body of an endpoint that takes long ones, if that is more.
        """
        self._table, self._authenticator, self._probes = table, authenticator, probes
        self._most_large_body = most_large_body

    async def answer(self, exchange: HttpExchange) -> Response:
        """Answer a request, whatever becomes of it."""
        conflict = 400
        try:
            endpoint, names = self._table.find(exchange.method, exchange.path)
            conflict = endpoint.conflict
            answer = await self._answer(endpoint, names, exchange)
        except HttpRefusal as refusal:
            return problem(refusal)
        except StoreError as error:
            return problem(refused_by(error, conflict))
        except NoAnswer:
            return problem(HttpRefusal(503, "the process has not come round: look into its log"))
        except Exception:  # noqa: BLE001  # whoever asked is told, and the next one is served
            _log.exception("a request over HTTP failed")
            return problem(HttpRefusal(500, "the broker failed on this request: see its log"))
        if not isinstance(answer, Response):
            answer = Response(msgspec.json.encode(answer))
        return self._finished(answer)

    async def _answer(
        self, endpoint: Endpoint, encoded: dict[str, str], exchange: HttpExchange
    ) -> Any:
        if endpoint.role is None:
            return await endpoint.run(Call(self._probes, headers=exchange.headers))
        served = self.served
        if served is None:
            raise HttpRefusal(503, self._probes.whom_to_ask)
        caller = await self._caller(served, endpoint, exchange)
        if not caller.role.includes(endpoint.role):
            await served.calls.read(partial(_refuse, endpoint, endpoint.role, caller))
        if not self._authenticator.is_local and _is_of_another_site(exchange):
            await served.calls.read(partial(_refuse_site, endpoint, caller))
        query = query_of(endpoint.query, dict(parse_qsl(exchange.query, keep_blank_values=True)))
        most_bytes = endpoint.most_body_bytes
        if most_bytes > MOST_BODY_BYTES:
            most_bytes = max(most_bytes, self._most_large_body)
        body = await body_of_request(endpoint.body, exchange, most_bytes)
        names = {name: _name(text) for name, text in encoded.items()}
        headers, gone = exchange.headers, exchange.gone
        call = Call(self._probes, served, caller, names, query, body, headers, gone, endpoint.acts)
        try:
            return await endpoint.run(call)
        except HttpRefusal as refusal:
            if endpoint.role is not HttpRole.MONITOR and refusal.kind is not None:
                await served.calls.read(partial(_audit_refusal, endpoint, call, refusal))
            raise

    async def _caller(
        self, served: ServedBroker, endpoint: Endpoint, exchange: HttpExchange
    ) -> Caller:
        """Find who asks, and the broker that is asked, which is decided on the loop's thread."""

        def caller() -> Caller:
            broker = served.broker(needs_one=endpoint.needs_broker)
            return self._authenticator.caller(broker, exchange.remote, exchange.headers)

        if served.is_fixed and self._authenticator.is_open_to(exchange.headers):
            return caller()
        return await served.calls.read(caller)

    def _finished(self, answer: Response) -> Response:
        """Add what each answer has; refuse one that is too long to be kept until it is read."""
        if len(answer.body) > MOST_ANSWER_BYTES:
            text = f"the answer is longer than {MOST_ANSWER_BYTES >> 20} MiB: ask for less of it,"
            return problem(HttpRefusal(413, f"{text} or by sparkstore's commands on the root"))
        answer.headers = _HEADERS | answer.headers
        return answer


def problem(refusal: HttpRefusal) -> Response:
    """Answer with why not, in one line."""
    body = msgspec.json.encode(refusal.content)
    return Response(body, refusal.status, headers={**_HEADERS, **refusal.headers})


def _name(text: str) -> str:
    """Decode a name in a path; half a pair of surrogates is refused where names are judged."""
    try:
        return unquote(text, errors="surrogatepass")
    except UnicodeDecodeError as reason:
        raise HttpRefusal(400, "a name in the path is not UTF-8, percent-encoded") from reason


def _audit_refusal(endpoint: Endpoint, call: Call, refusal: HttpRefusal) -> None:
    """Write down an order that is wrong before its turn comes. On the loop's thread."""
    caller, act = call.caller, endpoint.run.__name__.replace("_", "-")
    details = {"peer": caller.peer, "user": caller.user, "act": act, "error": refusal}
    queue = call.names.get("queue")
    caller.access.guard.audit(AuditEvent.ADMINISTRATION, **details, queue=queue)


def _refuse(endpoint: Endpoint, needed: HttpRole, caller: Caller) -> None:
    """Refuse a user without the role of an endpoint, and write it down. On the loop's thread."""
    access, principal = caller.access, caller.principal
    act = f"{endpoint.method} {endpoint.path}"
    access.guard.role_refused(access.remote, principal, act, needed)
    text = f"this needs the role {needed}, and {principal.name} is {caller.role}"
    raise HttpRefusal(403, f"{text}: sparkstore passwd FILE NAME --roles {needed}")


def _refuse_site(endpoint: Endpoint, caller: Caller) -> None:
    """Refuse what another site had a browser ask, and write it down. On the loop's thread."""
    access, act = caller.access, f"{endpoint.method} {endpoint.path} for another site"
    access.guard.role_refused(access.remote, caller.principal, act, None)
    raise HttpRefusal(403, "another site may not ask here: use the console of this port")


def _is_of_another_site(request: HttpExchange) -> bool:
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_link = request.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
    is_strange = origin is not None and origin != "" and urlsplit(origin).netloc != host
    return (site not in _OUR_SITES and not is_link) or is_strange

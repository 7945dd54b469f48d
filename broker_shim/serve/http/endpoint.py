"""An endpoint: what may be asked over HTTP, by whom, and what answers it.

A path is that of a request as it is sent: a name in it is percent-encoded as a whole, `/` too, so
no queue's name leads to another endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import Model
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.request_models import MOST_BODY_BYTES

API = "/api/v1"
QUEUE = API + "/queues/{queue}"
MONITOR, OPERATOR, ADMIN = HttpRole.MONITOR, HttpRole.OPERATOR, HttpRole.ADMIN


class Endpoint(NamedTuple):
    """An endpoint: what may be asked, by whom, and what does it.

    Attributes:
        method: The HTTP method.
        path: With a name in braces for each segment that names something.
        role: The role that is needed; None: no login is.
        run: Answers a call, by a value of `answer` or by a response of its own.
        answer: The model of its answer; None: a text.
        query: The model of what stands after the question mark; None: nothing may.
        body: The model of its body; None: it has none.
        conflict: The status of an order that cannot be carried out as things are.
        most_body_bytes: The longest body that is read; `MOST_LONG_BODY_BYTES`, or as long as
            messages may be where the owner of the root asks.
        needs_broker: A broker has to decide from now on; else none needs to be there.
        acts: What the user must have the right to at the thing that its path or body names. At a
            queue in the path `Call.named_queue` checks it; else the function does.
        target_acts: What the user must have the right to at further queues; the function checks.
        only_reads: It changes nothing, although it is no GET.
    """

    method: str
    path: str
    role: HttpRole | None
    run: Callable[[Call], Awaitable[Any]]
    answer: type | None = None
    query: type[Model] | None = None
    body: type[Model] | None = None
    conflict: int = 400
    most_body_bytes: int = MOST_BODY_BYTES
    needs_broker: bool = True
    acts: tuple[Act, ...] = ()
    target_acts: tuple[Act, ...] = ()
    only_reads: bool = False

    @property
    def changes(self) -> bool:
        """True if something may be another one afterwards."""
        return self.method != "GET" and not self.only_reads

    @property
    def has_dry_run(self) -> bool:
        """True if it can be tried: its model says so."""
        return any(
            "dry_run" in model.__struct_fields__ for model in (self.query, self.body) if model
        )

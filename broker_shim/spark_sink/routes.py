"""The queues of a message: those of the target of a write, as they are when it begins. Pure.

A task asks the service once for its wiring. What changes afterwards counts for the next task, but
no message is lost by it: a queue on which something is staged cannot be destroyed.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from broker_shim.addressing.topics import too_long
from broker_shim.broker.wiring.headers_exchange import properties_of
from broker_shim.broker.wiring.routing import DEFAULT_EXCHANGES, Router
from broker_shim.errors import InvalidRequest
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.spark_sink.message_columns import RowMessage, RowRefused
from broker_shim.store.interface import Exchange, Recovered
from sparkstore.core.queue_names import canonical, shown


class TargetRoute:
    """A queue or an exchange, and what it does with a message."""

    def __init__(
        self, wiring: Recovered, target: str, kind: str | None, routing_key: str | None
    ) -> None:
        """Find the target of the write.

        Args:
            wiring: All queues, exchanges and bindings.
            target: Name of a queue or of an exchange.
            kind: `queue` or `exchange`; None: whichever is there.
            routing_key: Of messages that name none; None: their subject.

        Raises:
            InvalidRequest: Neither is there, or both are.
        """
        queues = {queue.name for queue in wiring.queues}
        router = _router_of(wiring)
        queue = canonical(target)
        is_queue = queue in queues and kind != "exchange"
        is_exchange = target in router and kind != "queue"
        if is_queue and is_exchange:
            message = (
                f"target {shown(target)} is a queue and an exchange: say which by the option"
                " targetType"
            )
            raise InvalidRequest(message)
        if not is_queue and not is_exchange:
            raise InvalidRequest(_missing(target, kind, {*queues, *router.definitions}))
        self._queues = [queue] if is_queue else None
        self._router, self._exchange, self._key = router, target, routing_key

    def queues_of(self, message: RowMessage) -> Sequence[str]:
        """Name the queues that a message goes to, in the order of their names.

        Raises:
            RowRefused: It goes to none.
        """
        if self._queues is not None:
            return self._queues
        header, _body, row_key = message
        key = row_key if row_key is not None else self._key
        key = key if key is not None else header.subject or ""
        reason = too_long(key) if self._router.reads_words(self._exchange) else None
        if reason is not None:
            raise RowRefused(reason)
        queues = self._router.route(self._exchange, key, properties_of(AmqpCommonHeader, header))
        if not queues:
            message_ = (
                f"exchange {shown(self._exchange)} sends it to no queue (routing key {shown(key)}):"
                " bind one, or give the exchange an alternate"
            )
            raise RowRefused(message_)
        return sorted(queues)


def _router_of(wiring: Recovered) -> Router:
    router = Router()
    for name, kind in DEFAULT_EXCHANGES.items():
        router.add_exchange(Exchange(name, kind))
    for exchange in wiring.exchanges:
        router.add_exchange(exchange)
    for key, arguments in wiring.bindings.items():
        router.bind(key.exchange, key.binding_key, key.queue, arguments)
    return router


def _missing(target: str, kind: str | None, names: set[str]) -> str:
    near = difflib.get_close_matches(target, names, 1, 0.5)
    hint = f" (is {shown(near[0])} meant?)" if near else ""
    return (
        f"target {shown(target)} is no {kind or 'queue or exchange'} of this store{hint}: create it"
        " first, as by `sparkstore queue create`"
    )

"""Exchanges that are deleted when their last binding goes (the argument `auto_delete`).

An exchange that never had a binding stays. It is deleted in the turn in which the binding goes, so
whoever binds to it after that is told that there is none. The alternate exchange of something is
deleted by nobody, so it stays, too. Of several brokers on one store the one that decides deletes
it. A kill between the two leaves the exchange, until the next time that its last binding goes.
"""

from __future__ import annotations

import logging
from typing import Any

from broker_shim.broker.administration import Administration
from broker_shim.broker.routing import Router
from broker_shim.errors import StoreError
from sparkstore.operations.administration import AdminAction, Order

_log = logging.getLogger(__name__)


class ExchangeDeletion:
    """Deletes exchanges whose last binding is gone. On the loop's thread only."""

    def __init__(self, router: Router, administration: Administration) -> None:
        """Begin to watch the bindings of a virtual host.

        Args:
            router: Has the exchanges, and what is bound to them.
            administration: Carries the order out, and knows whether another broker decides.
        """
        self._administration = administration
        router.on_unused = self._delete

    def _delete(self, exchange: str) -> None:
        if self._administration.decider is not None:
            return

        def report(error: StoreError | None, _told: dict[str, Any]) -> None:
            if error is None:
                _log.info("exchange %r is deleted: nothing is bound to it any more", exchange)
            else:
                _log.info("exchange %r stays: %s", exchange, error)

        order = Order(AdminAction.DELETE_EXCHANGE, exchange=exchange, if_unused=True)
        self._administration.order(order, report)

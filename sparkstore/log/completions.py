"""Call completions once each, so that one caller's bug stops nobody else's."""

from __future__ import annotations

import logging

from sparkstore.errors import StoreError
from sparkstore.log.batcher import Fire

_log = logging.getLogger(__name__)


def fire_once(fire: Fire, error: StoreError | None) -> None:
    """Call a completion; what it raises is logged."""
    try:
        fire(error)
    except Exception:  # noqa: BLE001 - a caller's bug must not stop everybody's completions
        _log.exception("a completion callback failed")


def bound(fire: Fire, error: StoreError | None) -> Fire:
    """Bind an error to a completion; it goes before the error of whoever calls it."""

    def fire_bound(outcome: StoreError | None) -> None:
        fire_once(fire, error or outcome)

    return fire_bound


def ignore(_error: StoreError | None) -> None:
    """Ignore a completion that nobody waits for."""

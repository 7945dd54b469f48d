"""Find the Broker-J host that a root belongs to, and whether it missed a change. Pure.

That host reads its queues once, when it starts, and nobody tells it of what others do to them. So
the root remembers three things as one configured object:

* whose it is;
* as which member of the store's service the host is attached, from its first connection until it
  is seen to leave, or is away for longer than a member's grace. While its service is stopped, and
  until it is back after that, it may live: what others would change is refused;
* that others changed the root since. The start of the host that missed it is sent away when it
  connects again, and the next one reads all that is there.

Decision: a host that may live can be waited for, by a service that runs, and is not refused for
ever: when its machine is lost, an operator has to be able to decide what it left in doubt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkstore.core import records
from sparkstore.core.fold import State
from sparkstore.core.holders import OWN_CATEGORY
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.call_values import RecordStep

OBJECT = (OWN_CATEGORY + "service", "host")
"""Category and key of the configured object."""


class SoleHost(NamedTuple):
    """The Broker-J host that owns a root.

    Attributes:
        name: The virtual host.
        attached_as: The member that it is, or was when it was last heard of; None: it left.
        is_changed: Others changed the root after it had left.
    """

    name: str
    attached_as: str | None = None
    is_changed: bool = False


def sole_host(state: State) -> SoleHost | None:
    """Return the host that a root belongs to; None if it is no host's."""
    detail = state.configured.get(OBJECT)
    return None if detail is None else _host_of(json.loads(detail))


def why_unchangeable(state: State) -> str | None:
    """Say why only its host may change a root now, and what to do first; None if all may."""
    host = sole_host(state)
    if host is None or host.attached_as is None:
        return None
    return (
        f"Broker-J host {shown(host.name)} was attached when this root's service was ended, and"
        " would not see what is changed beside it: stop that host"
    )


def came(state: State, name: str, member: str | None, now_us: int) -> list[RecordStep]:
    """Note that this host serves the root and knows all of it; `member` None: not alone."""
    return _configured(state, SoleHost(name, member), now_us)


def left(state: State, member: str, now_us: int) -> list[RecordStep]:
    """Note that a member is gone; None if it is no host."""
    host = sole_host(state)
    if host is None or host.attached_as != member:
        return []
    return _configured(state, host._replace(attached_as=None), now_us)


def changed_by_others(state: State, now_us: int) -> list[RecordStep]:
    """Note that somebody else changes the root; None if no host misses it."""
    host = sole_host(state)
    return [] if host is None else _configured(state, SoleHost(host.name, is_changed=True), now_us)


def changed_object(detail: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Make the configured object for a broker that takes the root over.

    None: it says so already, or the root is no host's (`detail` is None).
    """
    if detail is None or _host_of(detail).is_changed:
        return None
    return _object(SoleHost(detail["host"], is_changed=True))


def _host_of(detail: Mapping[str, Any]) -> SoleHost:
    return SoleHost(detail["host"], detail.get("attached"), detail.get("changed", False))


def _object(host: SoleHost) -> dict[str, Any]:
    return {"host": host.name, "attached": host.attached_as, "changed": host.is_changed}


def _configured(state: State, host: SoleHost, now_us: int) -> list[RecordStep]:
    if host == sole_host(state):
        return []
    detail = json.dumps(_object(host))
    return [RecordStep(records.configured(now_us, *OBJECT, detail), is_kept=True)]

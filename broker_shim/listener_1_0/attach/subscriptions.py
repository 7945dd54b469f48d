"""Which subscription a receiver's link is on, and by what name its queue goes. Pure.

A link whose source is a multicast address or an exchange is served from a queue of its own. As
Qpid JMS has it (2.x), a durable subscription is a source that never expires; its container id is
the client id, and the link's name:

    link name            container   capabilities    subscription
    news                 client id   -               `news` of that client
    news, news|2, …      client id   shared          the same for all of them, of that client
    news|global, …       any         shared global   the same for everybody
    news|volatile1, …    client id   shared          of that client, until its last link ends
    news|global-volatile1, …         shared global   of everybody, until its last link ends

A shared subscription is a terminus that several links stand for; its key is that of its first
link, without a container if it is everybody's. The last two are those that are not durable.
Everybody is every client of one user, where users are told apart (`owners`).
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from broker_shim.links import LinkKey, Role
from broker_shim.links.termini.owner import owner_of

DELIMITER = "|"
"""Between the name of a subscription and what Qpid JMS adds to it."""
PREFIX = "subscription."
"""Of the names of subscriptions' queues."""


class Subscription(NamedTuple):
    """A subscription that outlives a link, or serves several.

    Attributes:
        key: Of its terminus.
        is_shared: Several links may be on it at once.
        is_volatile: It ends with the last of them.
    """

    key: LinkKey
    is_shared: bool
    is_volatile: bool


def subscription_of(
    key: LinkKey, capabilities: Container[str], *, is_durable: bool
) -> Subscription:
    """The subscription of a link with these capabilities of its source."""
    if "shared" not in capabilities:
        return Subscription(key, is_shared=False, is_volatile=False)
    is_global = "global" in capabilities
    name, _, _ = key.name.partition(DELIMITER)
    suffix = ("global" if is_global else "", "" if is_durable else "volatile")
    name = DELIMITER.join([name, *filter(None, suffix)])
    container = owner_of(key.remote_container_id) if is_global else key.remote_container_id
    together = LinkKey(container, name, Role.SENDER)
    return Subscription(together, is_shared=True, is_volatile=not is_durable)


def looked_up(key: LinkKey, desired: Container[str]) -> LinkKey:
    """Whose terminus is meant by an attach without a source (how JMS unsubscribes)."""
    is_global = "global" in desired and "shared" in desired
    everybody = owner_of(key.remote_container_id)
    return key._replace(remote_container_id=everybody) if is_global else key


def queue_of(key: LinkKey) -> str:
    """The name of a subscription's queue: two subscriptions never have the same."""
    return f"{PREFIX}{_escaped(key.remote_container_id)}.{_escaped(key.name)}"


def _escaped(text: str) -> str:
    """Without dots, so that these part the names, and without colons, which part address::queue."""
    return text.replace("%", "%25").replace(".", "%2E").replace(":", "%3A")

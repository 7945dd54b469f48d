"""AMQP 1.0 link state that outlives a connection (AMQP 2.6, 3.5).

    termini      one end of a link as a value: whose it is, what was granted, when it ends. Pure
    endpoint     the live object of an attached link
    registry     all termini of a virtual host: attach, steal, detach, expire
    terminus_storage    what the stores are told, by durability
    link_store   `LinkStore`: termini survive a restart
    unsettled_stores  `UnsettledStore`: deliveries that are not settled do, too

A link is one object with its endpoint. Its terminus takes and loses that endpoint, and keeps the
delivery states, so that they outlive it. There is one registry for a virtual host, and the remote
container is part of a link's key.

Decision: sending and receiving links are one map, keyed by the role: a link's name is
unique for each direction alone, so the role is part of who it is. Rejected: a map of containers of
maps.

Decision: termini and unsettled deliveries are two stores: a store of
configuration can keep the first without being able to keep the second.

Nothing here knows frames, queues or where a store keeps what it is told.
"""

from broker_shim.links.link_store import LinkStore, NoLinkStore, granted_durability
from broker_shim.links.registry import Attached, LinkRegistry
from broker_shim.links.termini.terminus import EndpointPlace, LinkEndpoint, Terminus
from broker_shim.links.termini.terminus_expiry import EndedScope, ExpiryPolicy
from broker_shim.links.termini.terminus_values import Filter, LinkTerms, Source, Target
from broker_shim.links.unsettled_stores import MemoryUnsettledStore, UnsettledStore
from sparkstore.core.link_records import LinkKey, Role, link_text

__all__ = [
    "Attached",
    "EndedScope",
    "EndpointPlace",
    "ExpiryPolicy",
    "Filter",
    "LinkEndpoint",
    "LinkKey",
    "LinkRegistry",
    "LinkStore",
    "LinkTerms",
    "MemoryUnsettledStore",
    "NoLinkStore",
    "Role",
    "Source",
    "Target",
    "Terminus",
    "UnsettledStore",
    "granted_durability",
    "link_text",
]

"""AMQP 1.0 link state that outlives a connection (source: design document 003; AMQP 2.6, 3.5).

    key          who a link is: (remote container id, link name, our role)
    values       source, target and what was granted, as values ↔ JSON
    terminus     our end of a link, attached or not: what was granted, and its unsettled deliveries
    endpoint     the live object of an attached link
    registry     all termini of a virtual host: attach, steal, detach, expire
    keeping      what the stores are told, by durability
    expiry       when an unattached terminus ends. Pure
    proof        which deliveries the sender must know the end of by now. Pure
    store        `LinkStore`: termini survive a restart
    unsettled    `UnsettledStore`: deliveries that are not settled do, too

The document's five steps, and where they are:

    1  one object for link and link endpoint               endpoint.LinkEndpoint
    2  a terminus takes and loses its endpoint, and        terminus.Terminus
       keeps the delivery states
    3  source and target derive from what termini have     values.Source, values.Target
       in common; delivery states move off the endpoint
    4  a class for the registry, the remote container      registry.LinkRegistry, key.LinkKey
       within it, its values termini
    5  it replaces the map of registries by container      one `LinkRegistry` a virtual host

Decision: sending and receiving links are one map, keyed by the role. The document wants nobody to
know; a link's name is unique for each direction alone, so the role is part of who it is. Rejected:
a map of containers of maps (step 5 of the document had just removed it).

Decision: termini and unsettled deliveries are two stores, as the document asks: a store of
configuration can keep the first without being able to keep the second.

Nothing here knows frames, queues or where a store keeps what it is told.
"""

from broker_shim.links.endpoint import LinkEndpoint, Place
from broker_shim.links.expiry import Ended, ExpiryPolicy
from broker_shim.links.key import LinkKey, Role, holder_of
from broker_shim.links.registry import Attached, LinkRegistry
from broker_shim.links.store import LinkStore, NoLinkStore, granted_durability
from broker_shim.links.terminus import Terminus
from broker_shim.links.unsettled import MemoryUnsettledStore, UnsettledStore
from broker_shim.links.values import Filter, LinkTerms, Source, Target

__all__ = [
    "Attached",
    "Ended",
    "ExpiryPolicy",
    "Filter",
    "LinkEndpoint",
    "LinkKey",
    "LinkRegistry",
    "LinkStore",
    "LinkTerms",
    "MemoryUnsettledStore",
    "NoLinkStore",
    "Place",
    "Role",
    "Source",
    "Target",
    "Terminus",
    "UnsettledStore",
    "granted_durability",
    "holder_of",
]

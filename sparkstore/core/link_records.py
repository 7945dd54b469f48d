"""Records about links: their termini, whether they are attached, their unsettled deliveries. Pure.

    kind        holder    binding_key   detail
    attached    the link  -             JSON object: termini and more (`LinkCalls.attach`)
    detached    the link  -             nil: it is kept; `CLOSED`: it is gone, with its deliveries
    unsettled   the link  delivery tag  JSON object: state of the delivery; nil: none yet
    settled     the link  delivery tag  -

Decision: no column of their own. A link is named by one text, `link_text`, in the column `holder`,
because a link is a holder. The entries that it has acquired carry the same text, so that one
equation joins them with it, in SQL too. A tag is bytes: hexadecimal text in `binding_key`, which
no other record with a holder uses. In `state` the text is in `exchange`, a column of the MERGE's
key (`schema`).

Decision: one `settled` record a tag, not one with many. What decides is the last record of each
(link, tag), so every fold is a maximum over groups; the price is a row of few bytes.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from sparkstore.core.records import Kind, Record

DETAIL_VERSION = 1
"""Of the JSON that `attached` carries, as readers of a link know it."""
LINK_KINDS = frozenset({Kind.ATTACHED, Kind.DETACHED, Kind.UNSETTLED, Kind.SETTLED})
CLOSED = '{"closed": true}'
"""Detail of a `detached` record after which the link is gone; to who reads one, any detail is."""


MEMBER = "member"
"""In that JSON: the member of a store service at which the link was attached last."""

SELECTOR = "subscription_selector"
"""Argument of a subscription's queue: what its selector does not fit is not routed there.

These are arguments by which every broker on the store knows what is one link's own: whoever
publishes, or asks to consume, may do so at a broker that the link was never attached at.
"""
NO_LOCAL = "subscription_no_local"
"""Argument of such a queue: what connections of this container send is not routed there."""
TEMPORARY_OF = "temporary_of"
"""Argument of a queue that was made for a client's answers: whose it is, "" without a name."""
ENDS_WITH_LINK = "ends_with_link"
"""Argument of a queue that ends with a link which no store knows, or with that link's broker."""


class Role(StrEnum):
    """The end of a link that is ours."""

    SENDER = "sender"
    RECEIVER = "receiver"


class LinkKey(NamedTuple):
    """A link's identity at this broker (AMQP 2.6.1: names are unique for each direction).

    Attributes:
        remote_container_id: The peer's; several connections may have the same.
        name: The peer's name of the link.
        role: Our end: a `Role`, or its text, which is equal.
    """

    remote_container_id: str
    name: str
    role: str


def link_text(key: LinkKey) -> str:
    """The text that names a link: a JSON array, so that two keys never have the same."""
    return json.dumps([*key], ensure_ascii=False, separators=(",", ":"))


def link_key(text: str) -> LinkKey:
    """The key of a text that `link_text` made.

    Raises:
        ValueError: It is none.
    """
    parts = json.loads(text)
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        message = f"{text!r} names no link"
        raise ValueError(message)
    try:
        return LinkKey(*parts)
    except TypeError as reason:
        message = f"{text!r} names no link"
        raise ValueError(message) from reason


def attached(at: int, link: str, detail: str) -> Record:
    """Make the record of a link that was attached; its termini are these from now on."""
    return Record(Kind.ATTACHED, at, holder=link, detail=detail)


def detached(at: int, link: str, *, closed: bool) -> Record:
    """Make the record of a link's detach.

    For good if `closed`, else its termini and deliveries stay.
    """
    return Record(Kind.DETACHED, at, holder=link, detail=CLOSED if closed else None)


def unsettled(
    at: int, link: str, tag: bytes, state: str | None, transaction: int | None = None
) -> Record:
    """Make the record of an unsettled delivery; `state` is a JSON object, or None without one."""
    return Record(
        Kind.UNSETTLED,
        at,
        holder=link,
        transaction=transaction,
        binding_key=tag.hex(),
        detail=state,
    )


def settled(at: int, link: str, tag: bytes, transaction: int | None = None) -> Record:
    """Make the record of a delivery on a link that is forgotten."""
    return Record(Kind.SETTLED, at, holder=link, transaction=transaction, binding_key=tag.hex())

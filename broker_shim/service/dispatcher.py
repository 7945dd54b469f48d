"""The interface between the service and whoever decides for the consumers of members.

The service knows requests and records; queues, selectors and turns are the broker's (`members`),
which stands above it. Its frames are looked at here, as they come off the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from broker_shim.errors import InvalidRequest
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import Body
from sparkstore.operations.administration import AdminAction

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection

_BODIES: Mapping[int, tuple[type | tuple[type, ...], ...]] = {
    wire.WATCH: (str, int, tuple),
    wire.SEEN: (),
    wire.SUBSCRIBE: (int, str, str, (str, type(None)), int, tuple),
    wire.CREDIT: (int, int),
    wire.REFUSE: (int, int),
    wire.CANCEL: (int,),
    wire.LOOK: (int, str, tuple, int),
    wire.ORDER: (int, str, str, bool, bool, bool, str, str),
    wire.TOLD: (int, str),
}
MAX_PRIORITY = 9
MOST_LOOKED = 1_000
"""Messages in one LOOKED."""

DISPATCHING = frozenset(_BODIES)
"""Types of the frames that are about a member's consumers, its orders, or what it watches."""
PURGE, DESTROY, USAGE = "purge", "destroy-queue", "usage"
CLAIM, RELEASE = "claim-xid", "release-xid"
TOLD_WIRING = "told-wiring"
ORDERS = frozenset(
    {AdminAction.DELETE_QUEUE.value, PURGE, DESTROY, USAGE, CLAIM, RELEASE, TOLD_WIRING}
)
"""What a member may have done to a queue, or be told of it; the xids that it begins; and to be
answered when it is told of all wiring."""


class Dispatcher(Protocol):
    """Hands messages out to consumers on members. Any thread may call it; calls do not wait."""

    def take(self, peer: MemberConnection, kind: int, body: Body) -> None:
        """Handle a well-formed frame of `DISPATCHING`, in its turn."""

    def link_moves(self, peer: MemberConnection, text: str) -> None:
        """Note that a member asks for a link, so that whoever had it loses it."""

    def left(self, peer: MemberConnection) -> None:
        """End the consumers of a connection that ended. What they hold the member keeps."""

    def lost(self, member: str) -> None:
        """Give up a member that was gone too long, and has lost what it held."""

    def check_exclusive(self, peer: MemberConnection) -> None:
        """Let a member be alone on the root; this waits until nothing is decided here.

        Nothing is until `left` is called with this peer, whatever this came to.

        Raises:
            InvalidRequest: It cannot be, as consumers are served here.
            Unavailable: What was under way did not end in time.
        """


def check_frame(kind: int, body: Body) -> None:
    """Check the body of a frame. Raises InvalidRequest if the protocol has no such."""
    shape = _BODIES[kind]
    is_right = len(body) == len(shape) and all(
        isinstance(value, kind_wanted) for value, kind_wanted in zip(body, shape, strict=True)
    )
    if kind == wire.LOOK and is_right:
        places, count = body[2:]
        is_right = len(places) == MAX_PRIORITY + 1 and 0 < count <= MOST_LOOKED
        is_right = is_right and all(type(place) is int and place >= 0 for place in places)
    if kind == wire.ORDER and is_right:
        is_right = body[1] in ORDERS
    if kind in {wire.SUBSCRIBE, wire.WATCH} and is_right:
        is_right = _are_held(kind, body[-1])
    if not is_right or any(type(value) is int and value < 0 for value in body):
        message = f"the body of a frame of type {kind} is not what the protocol says"
        raise InvalidRequest(message)


def _are_held(kind: int, held: tuple[object, ...]) -> bool:
    if kind == wire.SUBSCRIBE:
        return all(type(i) is int for i in held)
    return all(
        type(row) is tuple
        and len(row) == 2
        and type(row[0]) is str
        and type(row[1]) is tuple
        and _are_held(wire.SUBSCRIBE, row[1])
        for row in held
    )

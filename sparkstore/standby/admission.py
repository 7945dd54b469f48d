"""Decide whether a standby may come to a primary, and which root serves at a start. Pure."""

from __future__ import annotations

import hmac
from enum import Enum

from sparkstore.errors import Fenced, InvalidRequest
from sparkstore.shipping.frames import StandbyHello
from sparkstore.tables.fencing import PRIMARY, REPLICA, STANDBY
from sparkstore.tables.root import Identity
from sparkstore.tables.schema import SCHEMA_VERSION
from sparkstore.witness.holder import Holder


def check_token(hello: StandbyHello, token: str) -> None:
    """Refuse who does not know the token.

    Raises:
        InvalidRequest: The token is another one.
    """
    shown = hello.token.encode(errors="surrogatepass")  # JSON has half pairs, a token has none
    if not hmac.compare_digest(shown, token.encode()):
        raise InvalidRequest("the token is wrong: --token-file must name the same on both machines")


def check_standby(hello: StandbyHello, primary: Identity) -> None:
    """Refuse a root that cannot be, or become, a standby of this primary.

    Raises:
        InvalidRequest: It is this root itself, another store's, a replica, or of another version.
        Fenced: It was promoted: this primary is the one that is to end.
    """
    if hello.schema_version != SCHEMA_VERSION:
        message = f"the standby keeps schema version {hello.schema_version}, this primary"
        raise InvalidRequest(f"{message} {SCHEMA_VERSION}: install the same sparkstore on both")
    if hello.root_id == primary.root_id:
        text = "this is the very root of the standby: a standby needs a root of its own"
        raise InvalidRequest(text)
    if not hello.role:
        return
    if hello.role == REPLICA:
        text = "that root is a replica that replicate or backup writes: give the standby another"
        raise InvalidRequest(f"{text} folder")
    family = {primary.root_id, primary.primary_id, *primary.superseded} - {""}
    if not family & {hello.root_id, hello.primary_id}:
        text = "the standby's root is of another store: give it an empty folder"
        raise InvalidRequest(text)
    if hello.generation > primary.generation:
        message = f"the standby has generation {hello.generation}, this primary"
        raise Fenced(f"{message} {primary.generation}: that one took over, use it")


class StartRole(Enum):
    """Roles of a machine of a pair, decided at its start."""

    SERVE = "serve"
    FOLLOW = "follow"
    FINISH = "finish"
    """Its take-over was killed after the witness named it: become the primary, then serve."""


def role_at_start(own: Identity | None, standing: Holder | None, where: str) -> StartRole:
    """Decide whether a machine of a pair serves, by its root and the witness's object.

    Args:
        own: Its root; None: it has none yet.
        standing: What the witness says; None: it has no object.
        where: The root, to tell people.

    Raises:
        InvalidRequest: A standby whose witness has lost its object.
    """
    if standing is None:
        if own is not None and own.role == STANDBY:
            message = f"{where} is a standby, and its witness is empty: see that the other machine"
            raise InvalidRequest(f"{message} does not serve, and promote it")
        return StartRole.SERVE
    if own is None or standing.root_id != own.root_id:
        return StartRole.FOLLOW
    return StartRole.SERVE if own.role == PRIMARY else StartRole.FINISH

"""Frames between a primary and a standby: what each is, and how large it may be.

    frame      u32 bytes of the body, u8 kind, the body; integers are little-endian
    HELLO      standby → primary, once: JSON, 4 KiB at most: all that is read without a token
    WELCOME    primary → standby: JSON: who the primary is, and whether a copy comes first
    REFUSED    either way: JSON: the reason, and its kind; the last frame
    CALL       primary → standby, while it copies: JSON, a call of `Storage`; PIECE, bytes of a file
    ROWS       primary → standby: CRC-32, then records of the journal as a stream of Arrow
    LIVE       primary → standby: JSON: epoch and first position of the groups that follow
    GROUP      primary → standby: u64 position up to which all is confirmed, then a group as the
               write-ahead log has it (`wal_format`): its CRC names root and epoch, its turn counts
    BEAT       primary → standby: u64, the same position
    ACK        standby → primary: u64, the last position that it has synced
    ANSWER     standby → primary: JSON, what a call gave

After HELLO the standby only answers: one frame for each. So neither side can be flooded, and a
frame that nobody asked for ends the connection.
"""

from __future__ import annotations

import json
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from sparkstore.errors import CorruptData, InvalidRequest

PROTOCOL = 1
HEAD = Struct("<IB")
POSITION = Struct("<Q")
MOST_HELLO_BYTES = 4 << 10
MOST_ANSWER_BYTES = 16 << 20
"""Answers of a standby: a listing of files is the longest."""
PIECE_BYTES = 1 << 20
MOST_ROWS_BYTES = 64 << 20
MOST_OTHER_BYTES = 64 << 10
_GROUP_HEAD_BYTES = 64
_INTEGERS = range(1 << 63)


class PairFrame(IntEnum):
    """Kinds of frames; a number is never used again."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    CALL = 4
    PIECE = 5
    ANSWER = 6
    ROWS = 7
    LIVE = 8
    GROUP = 9
    BEAT = 10
    ACK = 11


class StandbyHello(NamedTuple):
    """Identity of a standby that connects, and the end of what it has.

    Attributes:
        protocol: `PROTOCOL`.
        schema_version: Of the records that it can keep.
        token: Proof that it may read everything.
        root_id: UUID of the standby's root, also of one that is still to be copied.
        role: Role of that root; empty: there is none yet.
        generation: Generation of that root.
        primary_id: The root that it is, or was, a copy of.
        end: Last position in its tables.
        end_digest: Fingerprint of the record there.
        log_end: Last position in its write-ahead log, 0 if that has no more than its tables.
        log_end_digest: Fingerprint of that record.
    """

    protocol: int
    schema_version: int
    token: str
    root_id: str
    role: str = ""
    generation: int = 0
    primary_id: str = ""
    end: int = 0
    end_digest: str = ""
    log_end: int = 0
    log_end_digest: str = ""


class PrimaryWelcome(NamedTuple):
    """Identity of the primary, and what it is going to send.

    Attributes:
        root_id: UUID of the primary's root.
        generation: Generation of that root.
        superseded: Roots that it was a copy of.
        witness: Where the root's witness is; empty: it has none.
        must_copy: A copy of all tables comes first: the standby has none that fits.
        has_log_end: The primary has the very record at the end of the standby's log.
    """

    root_id: str
    generation: int
    superseded: list[str]
    witness: str
    must_copy: bool
    has_log_end: bool


def encoded(kind: PairFrame, body: bytes = b"") -> bytes:
    """Encode a frame with its length and kind."""
    return HEAD.pack(len(body), kind) + body


def as_json(value: Any) -> bytes:
    """Encode the body of a frame that is JSON."""
    return json.dumps(value).encode()


def from_json(body: bytes) -> Any:
    """Decode the body of a frame that is JSON.

    Raises:
        CorruptData: It is none.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as reason:
        raise CorruptData(
            "a frame of the other machine is no JSON: it is no sparkstore"
        ) from reason


def hello_of(body: bytes) -> StandbyHello:
    """Decode the greeting of a standby.

    Raises:
        InvalidRequest: It is none, or of another version of this protocol.
    """
    try:
        fields = from_json(body)
        if fields["protocol"] != PROTOCOL:
            message = (
                f"a standby of another version (protocol {fields['protocol']}, here {PROTOCOL})"
            )
            raise InvalidRequest(f"{message}: install the same sparkstore on both machines")
        hello = StandbyHello(**fields)
    except (CorruptData, TypeError, KeyError) as reason:
        raise InvalidRequest("this is no standby's greeting") from reason
    for value, default in zip(hello, StandbyHello(0, 0, "", ""), strict=True):
        if type(value) is not type(default) or (default == 0 and value not in _INTEGERS):
            raise InvalidRequest("this is no standby's greeting: a field has a wrong value")
    return hello


def most_bytes(kind: int, longest_group_bytes: int) -> int:
    """Return how long a frame's body may be that a primary sends."""
    if kind == PairFrame.GROUP:
        return longest_group_bytes + _GROUP_HEAD_BYTES
    if kind == PairFrame.ROWS:
        return longest_group_bytes + MOST_ROWS_BYTES
    return PIECE_BYTES if kind == PairFrame.PIECE else MOST_OTHER_BYTES

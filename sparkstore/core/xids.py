"""Names of the branches of distributed (XA) transactions: checked, as text and as bytes. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sparkstore.errors import InvalidRequest

MAX_ID_BYTES = 64
"""Of each half of an xid (X/Open XA: MAXGTRIDSIZE, MAXBQUALSIZE)."""
MAX_FORMAT_ID = (1 << 31) - 1
_HOLDER = "xid:"
_HEAD_BYTES = 5


class Xid(NamedTuple):
    """Identity of one branch of a distributed transaction.

    Attributes:
        format_id: How the coordinator made the other two, 0 to 2³¹ - 1.
        global_id: The transaction, 1 to 64 bytes.
        branch_id: The branch of it, up to 64 bytes.
    """

    format_id: int
    global_id: bytes
    branch_id: bytes


def check_xid(xid: object) -> Xid:
    """Check that this is a valid xid, and return it.

    Raises:
        InvalidRequest: It is none; a field has a wrong type, or is too long.
    """
    if type(xid) is not Xid:
        message = f"xid cannot be {type(xid).__name__}: give an Xid"
        raise InvalidRequest(message)
    if type(xid.format_id) is not int or not 0 <= xid.format_id <= MAX_FORMAT_ID:
        message = f"format id of an xid: give an integer from 0 to {MAX_FORMAT_ID}"
        raise InvalidRequest(message)
    for what, value, least in (("global", xid.global_id, 1), ("branch", xid.branch_id, 0)):
        if type(value) is not bytes:
            message = f"{what} id of an xid cannot be {type(value).__name__}: give bytes"
            raise InvalidRequest(message)
        if not least <= len(value) <= MAX_ID_BYTES:
            allowed = f"give {least} to {MAX_ID_BYTES}"
            message = f"{what} id of an xid has {len(value)} bytes: {allowed}"
            raise InvalidRequest(message)
    return xid


def xid_text(xid: Xid) -> str:
    """`format:global:branch`, the ids in hexadecimal: for records, for SQL and for people."""
    return f"{xid.format_id}:{xid.global_id.hex()}:{xid.branch_id.hex()}"


def xid_of(text: str) -> Xid:
    """The xid that `xid_text` wrote.

    Raises:
        InvalidRequest: It did not write this.
    """
    parts = text.split(":")
    try:
        number, global_id, branch_id = parts
        return check_xid(Xid(int(number), bytes.fromhex(global_id), bytes.fromhex(branch_id)))
    except ValueError as reason:
        message = f"{text[:40]!r} is no xid: write FORMAT:GLOBAL:BRANCH, the ids in hexadecimal"
        raise InvalidRequest(message) from reason


def xid_bytes(xid: Xid) -> bytes:
    """Encode an xid for its column: format id (4 bytes), length of the global id (1), both ids."""
    head = xid.format_id.to_bytes(4, "big") + len(xid.global_id).to_bytes(1, "big")
    return head + xid.global_id + xid.branch_id


def xid_from(packed: bytes) -> Xid:
    """The xid that `xid_bytes` wrote.

    Raises:
        InvalidRequest: It did not write this.
    """
    if len(packed) < _HEAD_BYTES or len(packed) < _HEAD_BYTES + packed[_HEAD_BYTES - 1]:
        message = f"an xid of {len(packed)} bytes is shorter than it says"
        raise InvalidRequest(message)
    global_end = _HEAD_BYTES + packed[_HEAD_BYTES - 1]
    format_id = int.from_bytes(packed[:4], "big")
    return check_xid(Xid(format_id, packed[_HEAD_BYTES:global_end], packed[global_end:]))


def branch_holder(key: str) -> str:
    """Return the holder's name of messages that a prepared branch (`xid_text`) has acquired."""
    return _HOLDER + key


def is_branch_holder(holder: str) -> bool:
    """Tell whether a prepared branch holds an entry: only a decision about the branch frees it."""
    return holder.startswith(_HOLDER)

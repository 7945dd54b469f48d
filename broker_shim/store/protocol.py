"""The store protocol, version 5: bytes in, frames out, and back. Pure: no socket, no clock.

    frame     u32  length of what follows, big-endian: 1 ..= max_frame_bytes
              u8   type
              body one MessagePack array that fills the rest: str is UTF-8 text, bin is bytes, nil
                   is absent; no map, no float, no ext type, no array of more than 65,536

    client → service                                  (request, read: ints; see below)
      1 HELLO    [version, member, incarnation, host, exclusive, token]
                 str, str, str or nil, bool, str or nil; the first frame, within 10 s, and at most
                 4,096 bytes, as every frame before WELCOME
                 [version, …, token, former host or nil, [root_id, generation, instance, position]]
                 to connect again: what WELCOME said last time, and the last position of DONE; who
                 has seen what this root does not have is `Fenced`, see `service.seen_root`
                 [version, …, former host or nil, seen or nil, lease]
                 lease: for how many seconds the member keeps what it holds when it is gone, kept
                 with it; without one, for as long as the service is set to
      2 DO       [request, [record, …]]               all or none; several are a transaction
      3 OPEN     [request, transaction]               number drawn by the client, rising
      4 ADD      [request, transaction, [record, …]]  entries and deliveries: true at commit
      5 END      [request, transaction, commit]       bool; what was claimed is free after an abort
                 [request, transaction, commit, [record, …]]   with configured, unconfigured
      6 FLUSH    [read]                               ANSWER [read, true] when SQL sees all before
      7 IDS      [read, count]                        ANSWER [read, true, first]
      8 LOAD     [read, message_id]                   ANSWERs [read, is_last, header or nil, bytes]
                 [read, message_id, true]             also of one that is on no queue (any more)
      9 RECOVER  [read]                               ANSWERs, see `recovery`
     10 SIZE     [read]                               ANSWER [read, true, bytes on disk]
     11 PIECE    [request, record]                    `content`, at most 1 MiB, durable on its own
     12 ENTRIES  [read] or [read, false]              ANSWERs, see `recovery`; without the entries
     13 HEADERS  [read, [message_id, …]]              ANSWERs [read, is_last, [header or nil, …]]
     14 PART     [read, message_id, offset, length]   ANSWERs [read, is_last, bytes]: of content
     15 WATCH    [run, position, [[queue, [message_id, …]], …]]
                                                      CHANGES from then on; see `members.stream`
     16 SEEN     []                                   one more CHANGES: another may come
     17 SUBSCRIBE [subscription, queue, holder, selector or nil, limit, [message_id, …]]
     18 CREDIT   [subscription, limit]                so many are GRANTED in all
     19 REFUSE   [subscription, message_id]           it is not to get that message again
     20 CANCEL   [subscription]                       ENDED after its last grant
     21 LINK     [read, link]                         ANSWER [read, true, detail or nil,
                                                      [[tag, state], …], [[queue, message_id,
                                                      entry], …]]: what is kept of it and what it
                                                      holds; it is this member's from now on
     22 PREPARE  [request, transaction, xid]          as END, but for the decision, which
                 [request, transaction, xid, [record, …]]   with configured, unconfigured
     23 DECIDE   [request, xid, commit]               ends it: bool; any member may say it
     24 BRANCHES [read]                               ANSWER [read, true, [[xid, since,
                                                      operations, member or operator or nil,
                                                      state], …]]: those in doubt, or decided by an
                                                      operator, the oldest first; since is UTC µs
                 [read, xid or nil]                   ANSWERs [read, is_last, [[xid, state,
                                                      [[queue, puts], …], [[queue, takes], …]], …]]:
                                                      of one, or all: how many messages each does
     25 LOOK     [number, queue, [index, …], count]   LOOKED: what waits after a place, in order
     26 FORGET   [request, xid]                       of one that an operator decided
     27 BATCH    [request, record, [message_id, …], contents]
                                                      the record once for each message: requests
                                                      `request`, `request` + 1, …, each for itself;
                                                      1 ..= 1,000 messages. contents: [[header,
                                                      body or nil], …] of `enqueued`, nil of
                                                      `acquired`, `dequeued` and `released`. In the
                                                      record message_id, message and body are nil
     28 ORDER    [read, act, queue, force, if_unused, if_empty, run, key]
                                                      "delete-queue", "purge", or "destroy-queue" by
                                                      its last user: ANSWER [read, true, told] when
                                                      that is done, durably; told: JSON. Sent again
                                                      it has the same key and is not done again; in
                                                      another run of the service (instance, as it
                                                      was) a queue that is gone is deleted, and a
                                                      purge takes nothing of what came since its
                                                      start. "usage": told is what the queue has.
                                                      "claim-xid", "release-xid": the queue is the
                                                      text of an xid that is begun at this member;
                                                      after WATCH say all of them again: the first
                                                      SEEN after it ends those that were not said.
                                                      "told-wiring": ANSWER after CHANGES that tell
                                                      all there is now
     29 TOLD     [number, text]                       the answer to ASKED, likewise
     30 PUBLISH  [request, name, batch, [xid, …]]     commit these branches together, and roll back
                                                      all others of this stream up to this batch;
                                                      of a batch that was published, all. -1: the
                                                      batch has no number, and is not remembered
                 [request, name, batch, [xid, …], writer]
                                                      a text, the same when a batch runs again: the
                                                      last batch of another writer is refused, as is
                                                      any below the last
     31 PUBLISHED [read, name]                        ANSWER [read, true, batch]: the last one of a
                                                      stream, -1 before the first
     32 RUN      [request, record, first_id, count, headers, bodies]
                                                      from version 5: a BATCH of messages whose ids
                                                      rise by one. headers: of `enqueued` one for
                                                      each, or one that all share; else nil, as
                                                      bodies
    service → client
    129 WELCOME  [version, last_request, instance, root_id, refusals, max_frame_bytes,
                  max_waiting_requests, generation, position]
                                                      position: the last record of the root
    130 DONE     [through, refusals, position]        refusals: [[request, error, message], …]
                                                      position: the last record that is durable
    131 ANSWER   [read, is_last, …]
    132 FAILED   [read, error, message]
    133 GOODBYE  [error, message]                     then the service closes
    134 CHANGES  [run, position, is_all, is_last, [row, …]]
                                                      wiring: all there is, or what came since
    136 ENDED    [subscription, error, message]       no more grants; error: "" after CANCEL
    137 CAUGHT_UP [subscription, limit]               nothing that waits is left for it

    138 LOOKED   [number, [[message_id, entry], …], [index, …]]
                                                      nothing is acquired; and the place after them
    139 ASKED    [number, text]                       an administrator asks a member that watches:
                                                      JSON, as on the control socket
    140 GRANTED  [[subscription, [message_id, …], [column, …], headers, contents], …]
                                                      acquired for the subscription's holder,
                                                      together. A column for each value of `entry`;
                                                      of these, of headers and of contents: one for
                                                      each message, or one that all of them share

    row       [kind, queue, exchange, binding_key, detail], as of a record; for `attached` the link
              is the binding key: it is another member's from now on
    entry     [position, at, priority, expires_at, message_bytes, delivery_count, detail]

    A broker that is a member (`broker_shim.members`) is told by WATCH of what it must know to route
    messages and to attach links, and by SUBSCRIBE has the service decide which messages its
    consumers get. The service acquires them in the holder's name and tells the member when that is
    durable. What is under way when a connection is lost is acquired and perhaps never told: so
    WATCH and SUBSCRIBE say what is held, and all else that is held under the member's name, or by
    the subscription's holder on that queue, waits again.

    record    array of 16, as `sparkstore.core.codec` packs it for the log: kind, at (0), queue,
              message_id, holder, delivery_count, transaction (nil), message (array of 20),
              body, body_offset, exchange, binding_key, detail, member (nil), request (nil), xid

              altered (20) came within version 2: who does not know it refuses that record alone,
              and no client is told of it: RECOVER has the definitions as they are now

    detail    of enqueued and released: what the entry adds to its message's annotations from now on
              (JSON, `sparkstore.core.annotations`); nil: nothing, or what it was

    xid       as the column of the tables has it: format id (4 bytes, big-endian), length of the
              global id (1), both ids. A branch outlives its member and its service

    link      the JSON array [container id, name, "sender" or "receiver"] without spaces, as text;
              in `holder` of the records about links, which no other field but these tells:
                attached   detail: JSON object (`LinkCalls.attach`) by DO alone
                detached   detail: nil, or {"closed": true}       by DO alone
                unsettled  binding_key: the tag in hexadecimal; detail: JSON object, nil: no state
                settled    detail: JSON array of tags, each as above; many, in one record
              A holder that is a link of tier 2 is one and the same for all members, and what it
              has acquired stays acquired when a member has a new incarnation.

Requests of a member are numbered, rising over all its incarnations. Every one ≤ `through` is
decided, and durable as its tier promises, but for those that a refusal names; `through` only
rises. After a lost connection the client says HELLO again: what is ≤ `last_request` was done, or
is in the refusals of WELCOME; all later ones it sends again, in order and unchanged. BATCH it sends
as a whole, if `last_request` is below its last: the service tells of those that it has decided
again, and decides the rest. Or it sends the rest in whatever frames say the same of the same
numbers. So what holds of a request holds of each message of a batch. Reads are
numbered by the client as it likes, for one connection. `error` is a class of `sparkstore.errors`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack

from broker_shim import errors
from broker_shim.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.core.xids import is_branch_holder

VERSION = 5
OLDEST_VERSION = 4
"""Of a member, as the Broker-J plugin: it is answered in the frames that it knows."""
MAX_FRAME_BYTES = 8 << 20
MAX_HELLO_BYTES = 4096
"""Of a frame before WELCOME: what a stranger says is neither kept nor read at any length."""
MAX_WAITING_REQUESTS = 16_384
MAX_WAITING_READS = 1_024
MAX_BATCH = 1_000
"""Messages in one BATCH."""
MAX_ARRAY_LENGTH = 65_536
MAX_IDS = 1_000_000
HELLO_TIMEOUT_S = 10.0
MOST_LEASE_S = 7 * 86_400
"""How long a member may keep what it holds when it is gone."""

HELLO, DO, OPEN, ADD, END, FLUSH, IDS, LOAD, RECOVER, SIZE, PIECE, ENTRIES, HEADERS, PART = range(
    1, 15
)
WATCH, SEEN, SUBSCRIBE, CREDIT, REFUSE, CANCEL, LINK = range(15, 22)
PREPARE, DECIDE, BRANCHES, LOOK, FORGET, BATCH, ORDER, TOLD, PUBLISH, PUBLISHED, RUN = range(22, 33)
WELCOME, DONE, ANSWER, FAILED, GOODBYE, CHANGES = range(129, 135)
ENDED, CAUGHT_UP, LOOKED, ASKED, GRANTED = range(136, 141)


Body = tuple[Any, ...]
Frame = tuple[int, Body]
Refusal = tuple[int, str, str]

_HEAD = struct.Struct(">IB")
_HEAD_BYTES = _HEAD.size


def frame_packer() -> Callable[[int, Sequence[Any]], bytes]:
    """A frame(type, body) → bytes of one's own: it reuses a buffer, so it is for one thread.

    It raises OverflowError for an integer over 64 bits, UnicodeEncodeError for a text with half a
    surrogate pair, InvalidRequest for a frame that is too large.
    """
    pack, head = msgpack.Packer(use_bin_type=True).pack, _HEAD.pack

    def frame(kind: int, body: Sequence[Any]) -> bytes:
        packed: bytes = pack(body)
        if len(packed) >= MAX_FRAME_BYTES:
            message = f"a frame of {len(packed)} bytes: the limit is {MAX_FRAME_BYTES}"
            raise InvalidRequest(message)
        return head(len(packed) + 1, kind) + packed

    return frame


class Decoder:
    """Takes bytes as they come, cut anywhere; gives the frames that are whole, once.

    Attributes:
        max_frame_bytes: A longer frame is an error; may be lowered until a peer is known.
    """

    def __init__(
        self, max_array_length: int = MAX_ARRAY_LENGTH, max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._unpacker = msgpack.Unpacker(
            use_list=False,
            raw=False,
            max_buffer_size=2 * (max_frame_bytes + _HEAD_BYTES),
            max_array_len=max_array_length,
            max_map_len=0,
            max_ext_len=0,
        )
        self._fed_bytes = self._read_bytes = self._wanted_bytes = 0
        self._kind = 0

    def feed(self, received: bytes | bytearray | memoryview) -> list[Frame]:
        """The frames that these bytes complete, in order.

        After an error the decoder is of no use: close the connection.

        Raises:
            InvalidRequest: What came is no frame of this protocol, or is too large.
        """
        frames: list[Frame] = []
        step = self.max_frame_bytes
        for start in range(0, len(received), step):
            part = received if len(received) <= step else received[start : start + step]
            try:
                self._unpacker.feed(part)
                self._fed_bytes += len(part)
                self._take(frames)
            except (ValueError, msgpack.UnpackException, msgpack.BufferFull) as reason:
                why = "text that is not UTF-8" if isinstance(reason, UnicodeError) else repr(reason)
                message = f"unreadable frame of type {self._kind}: {why}"
                raise InvalidRequest(message) from reason
        return frames

    def _take(self, frames: list[Frame]) -> None:
        unpacker, fed = self._unpacker, self._fed_bytes
        read, unpack, tell, unpack_head = (
            unpacker.read_bytes,
            unpacker.unpack,
            unpacker.tell,
            _HEAD.unpack,
        )
        at, wanted = self._read_bytes, self._wanted_bytes
        while True:
            if not wanted:
                if fed - at < _HEAD_BYTES:
                    break
                length, self._kind = unpack_head(read(_HEAD_BYTES))
                at += _HEAD_BYTES
                wanted = self._body_bytes(length)
            if fed - at < wanted:
                break
            body, at, wanted = unpack(), at + wanted, 0
            if tell() != at or type(body) is not tuple:
                raise ValueError("a body is one array that fills its frame")
            frames.append((self._kind, body))
        self._read_bytes, self._wanted_bytes = at, wanted

    def _body_bytes(self, length: int) -> int:
        if not 2 <= length <= self.max_frame_bytes:
            message = f"frame of {length} bytes: from 2 to {self.max_frame_bytes} are allowed"
            raise InvalidRequest(message)
        return length - 1


def request_count(frame: Frame) -> int:
    """Count the requests in a frame, well formed or not: each message of BATCH or RUN is one."""
    kind, body = frame
    if kind == BATCH and len(body) == 4 and type(body[2]) is tuple:
        return len(body[2])
    is_run = kind == RUN and len(body) == 6 and type(body[3]) is int
    return min(max(body[3], 1), MAX_BATCH) if is_run else 1


def error_of(name: str, message: str) -> StoreError:
    """The error that the service named, of the same class if this side knows it."""
    kind: object = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, StoreError):
        return kind(message)
    return Unavailable(f"{name}: {message}")


def fenced_by(frame: Frame) -> Fenced | None:
    """Find the error by which a service says that its root serves no more, in whatever frame."""
    kind, body = frame
    if kind == DONE:
        named: Sequence[Body] = [refusal[1:] for refusal in body[1]]
    elif kind == FAILED:
        named = [body[1:]]
    elif kind == GOODBYE:
        named = [body]
    else:
        return None
    errors = (error_of(*name_and_text) for name_and_text in named)
    return next((error for error in errors if isinstance(error, Fenced)), None)


class SeenRoot(NamedTuple):
    """How far a root had come when it last answered a member.

    Attributes:
        root_id: Identity of the root.
        generation: Of the root; each promotion of a replica raises it.
        instance: Drawn by the service at its start: which run of it answered.
        position: Of the newest record that is durable.
    """

    root_id: str
    generation: int
    instance: str
    position: int


class Hello(NamedTuple):
    """The first frame of a member, by which it says who it is.

    Attributes:
        member: Name of the broker instance, the same after its restarts.
        incarnation: Drawn at each start of the member's process.
        host: Identity of the virtual host that the root belongs to, if it has one.
        exclusive: True if no other member may be connected meanwhile.
        token: What the token file holds; only TCP asks for it.
        former_host: Identity that the root may have been left with, which `host` takes over.
        seen: What an earlier connection of this incarnation has seen of its root.
        lease_s: How long it keeps what it holds when it is gone; None: as the service is set.
        version: Of the protocol, which it speaks.
    """

    member: str
    incarnation: str
    host: str | None
    exclusive: bool
    token: str | None
    former_host: str | None = None
    seen: SeenRoot | None = None
    lease_s: int | None = None
    version: int = VERSION


def check_member_name(name: str) -> None:
    """Check the name of a member. Raises InvalidRequest if none may be called so."""
    if not 1 <= len(name) <= 200 or "/" in name:
        raise InvalidRequest("a member's name is 1 to 200 characters without a slash")
    if is_branch_holder(name):
        raise InvalidRequest("a member's name cannot begin as the holder of a branch does: xid:")


def check_lease(lease_s: int) -> None:
    """Check a member's lease. Raises InvalidRequest if none may be as long, or as short."""
    if not 1 <= lease_s <= MOST_LEASE_S:
        raise InvalidRequest(f"a lease is 1 to {MOST_LEASE_S} seconds, not {lease_s}")


def _is_spoken(version: object) -> bool:
    return type(version) is int and OLDEST_VERSION <= version <= VERSION


def hello_of(frame: Frame) -> Hello:
    """The first frame of a connection.

    Raises:
        InvalidRequest: It is another frame, of another version, or not well formed.
    """
    kind, body = frame
    if kind != HELLO:
        message = f"the first frame must be HELLO (type {HELLO}), not type {kind}"
        raise InvalidRequest(message)
    if not body or not _is_spoken(body[0]):
        spoken = body[0] if body and type(body[0]) is int else "none"  # nothing else is repeated
        message = (
            f"the client speaks version {spoken} of the store protocol, this service version"
            f" {VERSION}: install the same release on both sides"
        )
        raise InvalidRequest(message)
    said_types = _HELLO_TYPES[: len(body) - 1]
    is_short = len(body) in {8, 9} and body[-1] is None
    if is_short or len(body) not in {6, 7, 8, 9} or not _fits(body[1:], said_types):
        message = "HELLO is [version, member, incarnation, host, exclusive, token,"
        raise InvalidRequest(f"{message} (former host, (seen, (lease)))]")
    hello = Hello(*body[1:])._replace(version=body[0])
    if hello.seen is not None:
        hello = hello._replace(seen=_seen_of(hello.seen))
    if hello.lease_s is not None:
        check_lease(hello.lease_s)
    check_member_name(hello.member)
    if not 1 <= len(hello.incarnation) <= 200:
        raise InvalidRequest("an incarnation is 1 to 200 characters")
    return hello


_TEXT_OR_NONE = (str, type(None))
_SEEN_OR_NONE = (tuple, type(None))
_HELLO_TYPES = (
    *(str, str, _TEXT_OR_NONE, bool, _TEXT_OR_NONE, _TEXT_OR_NONE),
    *(_SEEN_OR_NONE, int),
)


def _seen_of(seen: Body) -> SeenRoot:
    if len(seen) != 4 or not _fits(seen, (str, int, str, int)):
        raise InvalidRequest("what HELLO has seen is [root_id, generation, instance, position]")
    return SeenRoot(*seen)


class Welcome(NamedTuple):
    """The service's answer to a HELLO that it accepts.

    Attributes:
        last_request: The highest request of the member that was ever decided.
        instance: Drawn by the service at its start.
        root_id: Identity of the root.
        refusals: Of the last `max_waiting_requests` requests, those that were refused.
        max_frame_bytes: Of a frame to the service.
        max_waiting_requests: How many may be unanswered.
        generation: Of the root; each promotion of a replica raises it.
        position: Of the newest record that was decided before this.
        version: Of the protocol, in which both speak.
    """

    last_request: int
    instance: str
    root_id: str
    refusals: Sequence[Refusal]
    max_frame_bytes: int
    max_waiting_requests: int
    generation: int
    position: int
    version: int = VERSION


def welcome_of(body: Body) -> Welcome:
    """The service's first frame, as its body.

    Raises:
        InvalidRequest: It is of another version, or not well formed.
    """
    if not body or not _is_spoken(body[0]):
        message = (
            f"the service speaks version {body[0] if body else None!r} of the store protocol, this"
            f" client version {VERSION}: install the same release on both sides"
        )
        raise InvalidRequest(message)
    if len(body) != 9 or not _fits(body[1:], (int, str, str, tuple, int, int, int, int)):
        raise InvalidRequest("the service's WELCOME is not well formed")
    return Welcome(*body[1:])._replace(version=body[0])


def _fits(values: Body, types: Sequence[Any]) -> bool:
    return all(isinstance(value, kind) for value, kind in zip(values, types, strict=True))

"""Check what callers give a `BrokerStore`: once for every store and the service. Pure.

Python takes any value anywhere. A wrong one would be noticed only where a record becomes a row of a
table, long after it was acknowledged. So it is refused at the call, before anything has changed.

Decision: types are exact. `True` is no number, a `bytearray` changes after it was given, and a
subclass of text may compare and hash as it likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkstore.core.durability import TerminusDurability
from sparkstore.core.link_records import LinkKey, Role
from sparkstore.core.records import ExchangeBindingKey, MessageHeader, each_header
from sparkstore.core.state_machine.call_values import (
    Exchange,
    NewMessageRun,
    Queue,
    StoredMessage,
    StoredRun,
)
from sparkstore.errors import InvalidRequest

MAX_NAME_CHARACTERS = 10_000
MAX_HOLDER_CHARACTERS = 12 * MAX_NAME_CHARACTERS + 100
"""A link's text is a holder: two names as JSON, which writes a control character as six."""
PIECE_BYTES = 1 << 20
"""Largest piece of staged content in one record."""
MAX_NUMBER = (1 << 63) - 1
LEAST_AT_US, MOST_AT_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Years 1 to 9999: what a timestamp column can show."""
MAX_PRIORITY = 9

_MAX_SHAPES = 4096
_TEXT, _BYTES, _WHOLE, _NIL = str, bytes, int, type(None)
_HEADER_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(MessageHeader._fields, (_TEXT, _NIL)),
    "header": (_BYTES, _NIL),
    "durable": (bool,),
    "priority": (_WHOLE,),
    "created_at": (_WHOLE, _NIL),
    "expires_at": (_WHOLE, _NIL),
    "header_bytes": (_WHOLE,),
    "body_bytes": (_WHOLE,),
    "properties": (tuple,),
}
_SHOWN_TYPES = {_TEXT: "text", _WHOLE: "an integer", _NIL: "None"}
_TEXTS = slice(
    MessageHeader._fields.index("content_type"), MessageHeader._fields.index("group_id") + 1
)
_ROLES = tuple(Role)
_header_shapes: set[tuple[type, ...]] = set()


class _LastHeader:
    """The header that passed the checks last: the `enqueue` after `message` has the same."""

    header: MessageHeader | None = None


def check_name(name: object, what: str = "name") -> None:
    """Refuse a name that UTF-8 cannot spell; any other will do: it never becomes a path or SQL.

    Raises:
        InvalidRequest: It is no text, holds half a surrogate pair, or is longer than 10,000
            characters.
    """
    _check_text(name, what, MAX_NAME_CHARACTERS)


def check_entry(message_id: object, queue: object, holder: object) -> None:
    """Refuse a queue, message id or holder of the wrong type; the entry need not exist.

    Raises:
        InvalidRequest: A value of a wrong type, or that no record can hold.
    """
    check_message_id(message_id)
    check_queue(queue)
    _check_text(holder, "holder", MAX_HOLDER_CHARACTERS)


def check_taken(message_id: object, queue: object, holder: object) -> None:
    """Check an entry as `check_entry` does, where None means that the broker itself asks."""
    check_entry(message_id, queue, "" if holder is None else holder)


def check_queue(queue: object) -> None:
    """Raises InvalidRequest if the name of a queue is no text; one that is not there may be any."""
    if type(queue) is not str:
        raise _wrong("queue", queue, "text")


def check_message_id(message_id: object) -> None:
    """Raises InvalidRequest if a number fits in no record; one from 0 down is of no message."""
    if type(message_id) is not int:
        raise _wrong("message id", message_id, "an integer")
    if not -MAX_NUMBER <= message_id <= MAX_NUMBER:
        message = f"message id {_shown(message_id)}: from 1 to {MAX_NUMBER}"
        raise InvalidRequest(message)


def check_message_ids(message_ids: object) -> None:
    """Raises InvalidRequest if they are not a sequence of numbers of messages."""
    for message_id in _sequence("message ids", message_ids, "a sequence of integers"):
        if type(message_id) is not int or not 0 <= message_id <= MAX_NUMBER:  # a call less for each
            check_message_id(message_id)


def check_range(offset: object, length: object) -> None:
    """Raises InvalidRequest if a part of content is not two integers from 0."""
    if type(offset) is not int or type(length) is not int:
        raise _wrong("offset or length", (offset, length), "an integer")
    if offset < 0 or length < 0:
        message = f"offset {_shown(offset)}, length {_shown(length)}: neither may be negative"
        raise InvalidRequest(message)
    if offset > MAX_NUMBER or length > MAX_NUMBER:
        message = f"offset or length is over {MAX_NUMBER}"
        raise InvalidRequest(message)


def check_message(message: object) -> None:
    """Refuse a message to enqueue that has another type, or a field that cannot be.

    Raises:
        InvalidRequest: A value of a wrong type, or that no record can hold.
    """
    if type(message) is not StoredMessage:
        raise _wrong("message", message, "what `message` returned")
    check_message_id(message.message_id)
    check_header(message.header)
    check_body(message.body)
    check_switch("is_staged of a message", message.is_staged)


def check_new(message: StoredMessage) -> None:
    """Refuse a new message that brings something else than its header says.

    Raises:
        InvalidRequest: Its content is longer or shorter, or its header names no protocol.
    """
    header, body = message.header, message.body
    body_bytes = header.body_bytes if message.is_staged else len(body)
    if header.protocol is None or header.body_bytes != body_bytes:
        refusal = f"message {message.message_id} is not as `message` made it: make a new one"
        raise InvalidRequest(refusal)


def check_header(header: object) -> None:
    """Refuse a header that is not of the store's type, or has a field that cannot be.

    Raises:
        InvalidRequest: A value of a wrong type, or that no record can hold.
    """
    if header is _LastHeader.header and header is not None:
        return
    if type(header) is not MessageHeader:
        raise _wrong("header", header, "a MessageHeader")
    check_header_fields(header)


def check_header_fields(header: MessageHeader) -> None:
    """Refuse a header's fields that cannot be, also of one that only names its message.

    What is checked first is its *shape*, the tuple of the types of its fields: there are a few in
    all that anybody ever gives, and each is looked at closely once. Nothing in a header that was
    found right can change, so the same object is not looked at again.
    """
    if header is _LastHeader.header:
        return
    shape = tuple(map(type, header))
    if shape not in _header_shapes:
        _look_at(header)
        if len(_header_shapes) >= _MAX_SHAPES:
            _header_shapes.clear()
        _header_shapes.add(shape)
    if not (
        0 <= header.priority <= MAX_PRIORITY
        and LEAST_AT_US <= (header.created_at or 0) <= MOST_AT_US
        and LEAST_AT_US <= (header.expires_at or 0) <= MOST_AT_US
        and 0 <= header.header_bytes <= MAX_NUMBER
        and 0 <= header.body_bytes <= MAX_NUMBER
    ):
        raise InvalidRequest(
            f"a header's priority is 0 to {MAX_PRIORITY}, its times are in the years 1 to 9999,"
            f" its lengths 0 to {MAX_NUMBER}"
        )
    texts: tuple[str | None, ...] = header[_TEXTS]  # type: ignore[assignment]  # `_look_at`
    for text in (header.protocol, *texts):
        if text is not None and not text.isascii():
            _check_unicode(text, "text of a header")
    if header.properties:
        _check_properties(header.properties)
    _LastHeader.header = header


def check_body(body: object) -> None:
    """Raises InvalidRequest if content is not bytes."""
    if type(body) is not bytes:
        raise _wrong("content of a message", body, "bytes")


def check_new_run(asked: object) -> NewMessageRun:
    """Check that a value is a run of new messages, and return it; InvalidRequest if not."""
    if type(asked) is not NewMessageRun:
        message = f"new messages cannot be {type(asked).__name__}: give NewMessageRun"
        raise InvalidRequest(message)
    for what, values in zip(asked._fields, asked[:2], strict=False):
        check_sequence(what, values)
    if not asked.bodies or len(asked.headers) not in {1, len(asked.bodies)}:
        message = f"{len(asked.headers)} headers of {len(asked.bodies)} new messages: give one for"
        raise InvalidRequest(f"{message} each, or one for all; and one message at least")
    return asked


def check_stored_run(asked: object, most_bytes: int = MAX_NUMBER) -> StoredRun:
    """Check that a value is a run of stored messages, and return it.

    Raises:
        InvalidRequest: It is none; a new message is longer than `most_bytes`, or brings something
            else than its header says.
    """
    if type(asked) is not StoredRun:
        raise _wrong("stored messages", asked, "StoredRun")
    for what, values in zip(asked._fields, asked, strict=True):
        check_sequence(what, values)
    ids, headers, bodies = asked
    for message_id in ids if type(ids) is not range else ():
        check_message_id(message_id)
    if not ids or len(headers) not in {1, len(ids)} or len({*ids}) != len(ids):
        message = f"{len(headers)} headers of {len(ids)} messages: give one for each, or one for"
        raise InvalidRequest(f"{message} all; one message at least, and none twice")
    if bodies and len(bodies) != len(ids):
        raise InvalidRequest(f"{len(bodies)} bodies of {len(ids)} new messages: give one for each")
    check_contents(headers, bodies)
    for new in asked.singles() if bodies else ():
        check_new(new)
        check_size(len(new.body), most_bytes)
    return asked


def check_contents(headers: Sequence[MessageHeader], bodies: Sequence[bytes]) -> None:
    """Raises InvalidRequest if one of some headers or contents cannot be."""
    for header in headers:
        check_header(header)
    for body in bodies:
        if type(body) is not bytes:
            check_body(body)  # which says so


def with_lengths(
    headers: Sequence[MessageHeader], bodies: Sequence[bytes], most_bytes: int
) -> Sequence[MessageHeader]:
    """Return headers of new messages with the lengths of what they bring; one, if all share it.

    Raises:
        InvalidRequest: A content is longer than `most_bytes`, or a header names no protocol.
    """
    sizes = [*map(len, bodies)]
    check_size(max(sizes), most_bytes)
    if any(header.protocol is None for header in headers):
        raise InvalidRequest("a new message names the protocol of its header: this one has None")
    if sizes.count(sizes[0]) < len(sizes):
        headers = each_header(headers, len(sizes))
    return [_with_lengths(header, size) for header, size in zip(headers, sizes, strict=False)]


def _with_lengths(header: MessageHeader, body_bytes: int) -> MessageHeader:
    header_bytes = 0 if header.header is None else len(header.header)
    if header.body_bytes == body_bytes and header.header_bytes == header_bytes:
        return header
    return header._replace(header_bytes=header_bytes, body_bytes=body_bytes)


def check_pieces(pieces: object) -> None:
    """Raises InvalidRequest if content in pieces is nothing that gives them one by one."""
    if not isinstance(pieces, Iterable):
        raise _wrong("content in pieces", pieces, "an iterable of bytes")


def check_size(body_bytes: int, limit_bytes: int) -> None:
    """Raises InvalidRequest if content is longer than the limit."""
    if body_bytes > limit_bytes:
        message = f"message of {body_bytes} bytes: the limit is {limit_bytes}"
        raise InvalidRequest(message)


def check_definition(wiring: object) -> None:
    """Refuse what is no definition of a queue or an exchange.

    Raises:
        InvalidRequest: It is neither, or a field of it has a wrong type.
    """
    if type(wiring) not in (Queue, Exchange):
        raise _wrong("definition", wiring, "a Queue or an Exchange")
    assert isinstance(wiring, Queue | Exchange)
    check_name(wiring.name)
    if type(wiring.durability) is not TerminusDurability:
        raise _wrong("durability of a definition", wiring.durability, "a TerminusDurability")
    check_arguments(wiring.arguments)
    if isinstance(wiring, Exchange):
        check_name(wiring.type, "type of an exchange")


def check_queue_definition(queue: object) -> None:
    """Refuse what is no definition of a queue."""
    if type(queue) is not Queue:
        raise _wrong("definition", queue, "a Queue")
    check_definition(queue)


def check_arguments(arguments: object) -> None:
    """Raises InvalidRequest if arguments are no mapping; what JSON cannot hold is found later."""
    if not isinstance(arguments, Mapping):
        raise _wrong("arguments", arguments, "a mapping")


def check_binding_key(key: object) -> None:
    """Raises InvalidRequest if the key of a binding is none, or a name in it cannot be."""
    if type(key) is not ExchangeBindingKey:
        raise _wrong("key of a binding", key, "a BindingKey")
    for name in key:
        check_name(name)


def check_link_key(key: object) -> None:
    """Refuse what is no key of a link.

    Raises:
        InvalidRequest: It is none; a name is not valid Unicode, or too long; the role is none.
    """
    if type(key) is not LinkKey:
        raise _wrong("key of a link", key, "a LinkKey")
    check_name(key.remote_container_id)
    check_name(key.name)
    if type(key.role) is not Role:
        check_name(key.role)
    if key.role not in _ROLES:
        message = f"role {key.role[:40]!r} of a link: {' or '.join(_ROLES)}"
        raise InvalidRequest(message)


def check_tags(tags: object) -> None:
    """Raises InvalidRequest if they are not several delivery tags."""
    for tag in _sequence("delivery tags", tags, "a sequence of bytes"):
        check_tag(tag)


def check_tag(tag: object) -> None:
    """Raises InvalidRequest if a delivery tag is not bytes."""
    if type(tag) is not bytes:
        raise _wrong("delivery tag", tag, "bytes")


def check_switch(what: str, value: object) -> None:
    """Raises InvalidRequest if a value is neither true nor false."""
    if type(value) is not bool:
        raise _wrong(what, value, "True or False")


def check_completion(on_complete: object) -> None:
    """Raises InvalidRequest, which nobody could be told otherwise, if there is nobody to tell."""
    if not callable(on_complete):
        raise _wrong("completion", on_complete, "a function of one argument")


def check_batch(calls: object, on_complete: object) -> None:
    """Raises InvalidRequest if there is nobody to tell, or nothing to do for anybody."""
    check_completion(on_complete)
    check_sequence("a batch", calls)
    if not calls:
        raise InvalidRequest("a batch of nothing: give one call at least")


def check_sequence(what: str, values: object) -> None:
    """Raises InvalidRequest if values do not come one by one, or are text or bytes."""
    _sequence(what, values, "a sequence")


def _sequence(what: str, values: object, wanted: str) -> Sequence[object]:
    """Values that come one by one; text and bytes are sequences, too, but of nothing wanted."""
    if isinstance(values, list | tuple):  # as nearly all: to ask an abstract class costs a call
        return values
    if not isinstance(values, Sequence) or isinstance(values, str | bytes | bytearray):
        raise _wrong(what, values, wanted)
    return values


def _look_at(header: Sequence[object]) -> None:
    if len(header) != len(MessageHeader._fields):
        message = f"a header has {len(MessageHeader._fields)} fields, not {len(header)}"
        raise InvalidRequest(message)
    for name, value in zip(MessageHeader._fields, header, strict=True):
        allowed = _HEADER_TYPES[name]
        if type(value) not in allowed:
            wanted = " or ".join(_SHOWN_TYPES.get(kind, kind.__name__) for kind in allowed)
            raise _wrong(f"{name} of a header", value, wanted)


def _check_properties(properties: tuple[object, ...]) -> None:
    for pair in properties:
        if type(pair) is not tuple or len(pair) != 2:
            raise _wrong("property of a header", pair, "a (key, value) pair of text")
        for text in pair:
            if type(text) is not str:
                raise _wrong("property of a header", text, "text")
            _check_unicode(text, "property of a header")


def _check_text(text: object, what: str, most: int) -> None:
    if type(text) is not str:
        raise _wrong(what, text, "text")
    if len(text) > most:
        message = f"{what} {text[:40]!r}… is longer than {most} characters"
        raise InvalidRequest(message)
    _check_unicode(text, what)


def _check_unicode(text: str, what: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as reason:
        message = f"{what} {text[:40]!r} is not valid Unicode"
        raise InvalidRequest(message) from reason


def _wrong(what: str, value: object, wanted: str) -> InvalidRequest:
    return InvalidRequest(f"{what} cannot be {type(value).__name__}: give {wanted}")


def _shown(number: int) -> str:
    """A number for an error: one of ten thousand digits has no text at all."""
    return str(number) if number.bit_length() <= 128 else f"of {number.bit_length()} bits"

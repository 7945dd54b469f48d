"""The form that messages of one sender share: all bytes but some values, which are read by columns.

Most messages of a sender have the same sections, fields, keys and types. A shape is made of one of
them, which `message.located` took. Of those that follow, its bytes are compared, and only what
varies is read: message-id, correlation-id, creation-time and group-id, the values of application
properties, the lengths of sections, and the content. One step does so for all messages of a run.

Why that is the same as to parse each: reading goes from left to right, so where a value begins and
ends follows from what is before it, which is the shape's or was read. Each section ends where its
length says. The types of fields are those of the shape; a value of a property may be any scalar.
What does not fit is left to `located`, which says what is wrong, if anything is. A time to live
counts from now, so a message that expires has no shape; nor has one with more after its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import Properties
from broker_shim.amqp_1_0.definitions import APPLICATION_PROPERTIES_SECTION
from broker_shim.listener_1_0.messages.column_text import text_of
from broker_shim.listener_1_0.messages.message import header_sections, in_range
from broker_shim.protocol_1_0.codec.decoder import SCALARS, UNREADABLE
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.scanner import entries_start, places_of, scalar_at, skip
from sparkstore.core.records import MessageHeader

_ALIKE = frozenset({"data", "binary", "text"})
"""Types of messages whose content is one piece that the bytes before it tell the length of."""
_FIELDS = {0: "amqp_message_id", 5: "correlation_id", 9: "created_at", 10: "group_id"}
"""Fields of the properties section that may vary, and their columns (AMQP 1.0, 3.2.4)."""
_LENGTHS = {0xA0: 1, 0xA1: 1, 0xB0: 4, 0xB1: 4, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
_SHORT_TEXT, _TIME, _NULL = 0xA1, 0x83, 0x40
_NUMBERS = frozenset({int, float})
_MISFITS = (DecodeError, *UNREADABLE)

_new_header = partial(tuple.__new__, MessageHeader)


class MessageRun(NamedTuple):
    """Messages that were read together.

    Attributes:
        headers: One for each, or one that all of them share.
        contents: The content of each.
    """

    headers: Sequence[MessageHeader]
    contents: Sequence[bytes]


_NOTHING = MessageRun((), ())


class _RunPlaces:
    """A place in each message of a run, which go on together as far as the messages fit."""

    def __init__(self, encoded: bytes, starts: Sequence[int]) -> None:
        self._encoded, self.at = encoded, starts
        self._ends: Sequence[int] = ()
        self.columns: list[tuple[str, Sequence[Any]]] = []

    def pass_over(self, literal: bytes) -> None:
        """Pass over bytes that are the same in all messages."""
        if literal:
            self._keep([*map(self._encoded.startswith, repeat(literal), self.at)])
            byte_count = len(literal)
            self.at = [at + byte_count for at in self.at]

    def begin_section(self, width: int) -> None:
        """Read the length of a section, which is of so many bytes."""
        self.at, self._ends = self._lengths(width)

    def end_section(self, _nothing: None) -> None:
        """Keep the messages whose section ends here, as its length says."""
        self._keep([at == end for at, end in zip(self.at, self._ends, strict=False)])

    def read_text(self, column: str) -> None:
        """Read a text for a column: one of 255 bytes at most, whose constructor was passed over."""
        encoded = self._encoded
        starts, ends = self._lengths(1)
        spans = zip(starts, ends, strict=True)
        self.columns.append((column, [str(encoded[at:end], "utf-8") for at, end in spans]))
        self.at = ends

    def read_time(self, column: str) -> None:
        """Read a time for a column, whose constructor was passed over."""
        starts, self.at = self.at, [at + 8 for at in self.at]
        spans = zip(starts, self.at, strict=True)
        millis = [int.from_bytes(self._encoded[at:end], signed=True) for at, end in spans]
        self.columns.append((column, [in_range(value * 1000) for value in millis]))

    def read_scalar(self, about: tuple[str, int | None]) -> None:
        """Read a value for a column, as text; its constructor must be this, unless that is None."""
        encoded, (column, code) = self._encoded, about
        if code is not None:
            self._keep([encoded[at] == code for at in self.at])
        values = [SCALARS[encoded[at]](encoded, at + 1, 0) for at in self.at]
        self.at = [end for _value, end in values]
        texts = [str(value) if type(value) in _NUMBERS else text_of(value) for value, _ in values]
        self._keep([text is not None for text in texts])
        self.columns.append((column, texts))

    def end(self, code: int, ends: Sequence[int]) -> None:
        """Keep the messages that end with a content of this constructor."""
        self.at, self._ends = self._lengths(_LENGTHS[code])
        self._keep([end == its for end, its in zip(ends, self._ends, strict=False)])

    def _lengths(self, width: int) -> tuple[Sequence[int], Sequence[int]]:
        """Where that begins whose length is read, and where it ends."""
        encoded = self._encoded
        begins = [at + width for at in self.at]
        if width == 1:
            return begins, [at + encoded[at - 1] for at in begins]
        number = int.from_bytes
        return begins, [at + number(encoded[at - width : at], "big") for at in begins]

    def _keep(self, fits: Sequence[bool]) -> None:
        """Go on with the first messages, as far as they fit."""
        if not all(fits):
            self.at = self.at[: fits.index(False)]


_Step = tuple[bytes, Callable[[_RunPlaces, Any], None], Any]
"""Bytes that are the same in all messages, what is done behind them, and its argument."""


class MessageShape(NamedTuple):
    """The shape of one message.

    Attributes:
        header: Of that message.
        names: Keys of its application properties; those behind them are the same in all messages.
        steps: From its begin on, up to what comes behind the last value that may vary.
        last: The bytes from there to the constructor of its content.
    """

    header: MessageHeader
    names: Sequence[str]
    steps: Sequence[_Step]
    last: bytes

    def read(
        self, encoded: bytes, starts: Sequence[int], ends: Sequence[int], most_header_bytes: int
    ) -> MessageRun:
        """Read messages as far as they have this shape.

        Args:
            encoded: Bytes that hold them.
            starts: Where each begins.
            ends: Where each ends.
            most_header_bytes: Of what is before its content.
        """
        places = _RunPlaces(encoded, starts)
        try:
            for literal, step, about in self.steps:
                places.pass_over(literal)
                step(places, about)
            places.pass_over(self.last)
            places.end(self.last[-1], ends)
            contents = [encoded[at:end] for at, end in zip(places.at, ends, strict=False)]
            if self.header.message_type == "text":
                for content in contents:
                    content.decode()
        except _MISFITS:  # of one, which is found by halves
            half = len(starts) // 2
            return self.read(encoded, starts[:half], ends, most_header_bytes) if half else _NOTHING
        leads = [encoded[start:at] for start, at in zip(starts, places.at, strict=False)]
        if not leads or max(map(len, leads)) > most_header_bytes:
            return _NOTHING
        return MessageRun(self._headers(leads, contents, places.columns), contents)

    def _headers(
        self,
        leads: Sequence[bytes],
        contents: Sequence[bytes],
        columns: Sequence[tuple[str, Sequence[Any]]],
    ) -> Sequence[MessageHeader]:
        """The header of each message; one if all have the same."""
        if leads.count(leads[0]) == len(leads):
            if leads[0] == self.header.header:
                return (self.header,)
            leads, contents = leads[:1], contents[:1]
        fields: dict[str, Iterable[Any]] = {
            name: repeat(value)
            for name, value in zip(MessageHeader._fields, self.header, strict=True)
        }
        fields["header"], fields["header_bytes"] = leads, map(len, leads)
        fields["body_bytes"] = map(len, contents)
        texts = [*columns]
        if self.names:
            split = len(texts) - len(self.names)
            pairs: list[Iterable[tuple[str, str]]]
            pairs = [zip(repeat(name), column) for name, column in texts[split:]]
            pairs += [repeat(pair) for pair in self.header.properties[len(self.names) :]]
            fields["properties"] = zip(*pairs, strict=False)
            texts = texts[:split]
        fields.update(texts)
        return [*map(_new_header, zip(*fields.values(), strict=False))]


def shape_of(header: MessageHeader) -> MessageShape | None:
    """The shape that a message makes for those after it; None if it makes none.

    Args:
        header: Of the message, which ended with its content.
    """
    lead = header.header
    if lead is None or header.expires_at is not None or header.message_type not in _ALIKE:
        return None
    names, steps, at = list[str](), list[_Step](), 0
    for code, _start, value, end in header_sections(header):
        varying = _varying_in(code, lead, value)
        if varying:
            width = _LENGTHS[lead[value]]
            steps.append((lead[at : value + 1], _RunPlaces.begin_section, width))
            at = value + 1 + width
            for place, name, wanted in varying:
                steps.append(_step_to(lead, at, place, name, wanted))
                at = skip(lead, place)
            steps.append((lead[at:end], _RunPlaces.end_section, None))
            at = end
        if code == APPLICATION_PROPERTIES_SECTION:
            names = [name for _place, name, _wanted in varying]
    if [name for name, _text in header.properties[: len(names)]] != names:
        return None  # one is twice, or has no text
    return MessageShape(header, names, steps, lead[at : value + 1])


def _varying_in(code: int, lead: bytes, value: int) -> list[tuple[int, str, int | None]]:
    """What may vary in a section: places, columns or keys, and the constructors that they need."""
    if code == Properties.CODE:
        places = [(place, _FIELDS.get(n)) for n, place in enumerate(places_of(lead, value))]
        return [(at, name, lead[at]) for at, name in places if name and lead[at] != _NULL]
    if code == APPLICATION_PROPERTIES_SECTION:
        return [(place, name, None) for name, place in _entries_of(lead, value)]
    return []


def _step_to(lead: bytes, at: int, place: int, name: str, wanted: int | None) -> _Step:
    """The step from `at` on that reads the value at a place."""
    if lead[place] == _SHORT_TEXT:
        return lead[at : place + 1], _RunPlaces.read_text, name
    if wanted == _TIME:
        return lead[at : place + 1], _RunPlaces.read_time, name
    return lead[at:place], _RunPlaces.read_scalar, (name, wanted)


def _entries_of(lead: bytes, value: int) -> list[tuple[str, int]]:
    """The keys of the map at a place, and where the value of each begins."""
    _count, at, end = entries_start(lead, value)
    entries: list[tuple[str, int]] = []
    while at < end:
        key, place = scalar_at(lead, at)
        entries.append((str(key), place))
        at = skip(lead, place)
    return entries

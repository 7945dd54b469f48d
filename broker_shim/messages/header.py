"""The header of a message, in three views: for selectors, for the store, for a session's frames.

Pure: no store, no clock. The bytes of the header are the sender's, kept as they came; columns are
what `sparkstore.core.records.MessageHeader` shows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from broker_shim.errors import InvalidRequest
from sparkstore.core.records import MessageHeader


class CommonHeader(Protocol):
    """The properties that selectors and views ask of a message of any protocol."""

    @property
    def steps(self) -> int:
        """Return the work of looking through the header, in steps of some µs."""

    def get(self, name: str) -> bool | int | float | str | None:
        """The value of a header field or an application property by its name; None if absent."""


class StoreHeader(Protocol):
    """The header as a store plugin needs it, whatever the protocol is."""

    @property
    def is_persistent(self) -> bool:
        """True if its sender wants it to survive a restart."""

    @property
    def header_bytes(self) -> int:
        """Length of what `write` writes in all."""

    @property
    def body_bytes(self) -> int:
        """Length of the content."""

    def write(self, offset: int, buffer: memoryview) -> int:
        """Write the stored form from `offset` on into a buffer; how many bytes, 0 at the end."""


class FramingHeader(NamedTuple):
    """A header in the form that one session's protocol wants, worked out once.

    Attributes:
        lead: Everything before the content.
        tail: Everything after it (AMQP 1.0: the footer).
        body_bytes: Length of the content.
    """

    lead: bytes
    tail: bytes
    body_bytes: int

    @property
    def header_bytes(self) -> int:
        """Length of what `write` writes in all."""
        return len(self.lead)

    @property
    def message_bytes(self) -> int:
        """Length of the whole message on the wire."""
        return len(self.lead) + self.body_bytes + len(self.tail)

    def write(self, offset: int, buffer: memoryview) -> int:
        """Write the lead from `offset` on into a buffer; how many bytes, 0 at the end."""
        return written(self.lead, offset, buffer)


class FramingSession(Protocol):
    """The session that a message is to be framed for."""

    def framing(self, header: MessageHeader) -> FramingHeader:
        """The header in this session's form."""


C_co = TypeVar("C_co", bound=CommonHeader, covariant=True)


@dataclass(frozen=True, slots=True)
class Header(Generic[C_co]):
    """An immutable header with its columns and its common properties.

    Attributes:
        columns: What the store keeps of it: typed columns and the sender's bytes.
        common: The view that selectors see.
    """

    columns: MessageHeader
    common: C_co

    @property
    def is_persistent(self) -> bool:
        """Return whether the sender wants the message to survive a restart."""
        return self.columns.durable

    @property
    def header_bytes(self) -> int:
        """Return the length of the encoded header."""
        return len(self.columns.header or b"")

    @property
    def body_bytes(self) -> int:
        """Return the length of the message's body."""
        return self.columns.body_bytes

    def write(self, offset: int, buffer: memoryview) -> int:
        """Write a part of the encoded header into a buffer."""
        return written(self.columns.header or b"", offset, buffer)

    def for_session(self, session: FramingSession) -> FramingHeader:
        """The header in the form that a session's protocol wants."""
        return session.framing(self.columns)


class HeaderFactory(Generic[C_co]):
    """Makes headers from what senders and stores have. One for a broker."""

    def __init__(
        self,
        parsers: Mapping[str, Callable[[bytes], MessageHeader]],
        common: Callable[[MessageHeader], C_co],
    ) -> None:
        """Say how the headers of each protocol are read.

        Args:
            parsers: By protocol name (`amqp-1.0`, …): the columns of a header from its bytes.
            common: The view that selectors see.
        """
        self._parsers = dict(parsers)
        self._common = common

    def from_bytes(self, protocol: str, encoded: bytes) -> Header[C_co]:
        """The header that was in the bytes.

        Raises:
            InvalidRequest: No parser knows this protocol, or the bytes are no header of it.
        """
        parse = self._parsers.get(protocol)
        if parse is None:
            message = f"no reader for headers of {protocol!r}: known are {sorted(self._parsers)}"
            raise InvalidRequest(message)
        return self.of(parse(encoded))

    def of(self, columns: MessageHeader) -> Header[C_co]:
        """The header that a store gave back."""
        return Header(columns, self._common(columns))

    def common_of(self, columns: MessageHeader) -> C_co:
        """The view that selectors see, alone: of each of many messages."""
        return self._common(columns)


def written(source: bytes, offset: int, buffer: memoryview) -> int:
    """Copy a part of some bytes into a buffer; how many, 0 at the end."""
    part = memoryview(source)[offset : offset + len(buffer)]
    buffer[: len(part)] = part
    return len(part)

"""Messages that are framed together are framed as each by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.listener_1_0.messages.framed_runs import framed_together
from broker_shim.listener_1_0.messages.message import FramingHeader, framing, parse
from sparkstore.core.records import MessageHeader

HEADERS = [b"", b"\0Sp\x45", b"\0Sp\xc0\x02\x01\x41", b"\0Sp\xc0\x03\x02\x41\x40"]
DELIVERY_ANNOTATIONS = b"\0Sq\xc1\x01\x00"
NAMED = b"\0Ss\xc0\x0a\x01\x80"
PROPERTIES = b"\0St\xc1\x01\x00"
FOOTERS = [b"\0Sx\xc1\x01\x00", b"\0\x80\0\0\0\0\0\0\0\x78\xc1\x01\x00"]
FOOTER_BY_NAME = b"\0\xa3\x0famqp:footer:map\xc1\x01\x00"
BODIES = [b"\0Su\xa0\x02ab", b"\0Sw\xa1\x03abc", b"\0Sw\xa0\x01a", b"\0Sw\x41"]


def named(number: int) -> bytes:
    return NAMED + number.to_bytes(8, "big")


def headers_of(messages: Sequence[bytes]) -> list[MessageHeader]:
    return [parse(message, now_us=0)[0] for message in messages]


def one_by_one(headers: Sequence[MessageHeader], failures: int) -> list[FramingHeader]:
    return [
        framing(header, delivery_count=failures, now_us=0, is_first=not failures)
        for header in headers
    ]


MESSAGES = st.tuples(
    st.sampled_from([*HEADERS, HEADERS[2] + DELIVERY_ANNOTATIONS]),
    st.integers(0, 2**64 - 1).map(named) | st.just(PROPERTIES) | st.just(b""),
    st.sampled_from(BODIES),
    st.sampled_from([b"", b"", *FOOTERS, FOOTER_BY_NAME]),
).map(b"".join)


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.integers(0, 2))
def test_messages_are_framed_together_as_one_by_one_or_not_at_all(
    messages: list[bytes], failures: int
) -> None:
    headers = headers_of(messages)
    wanted = one_by_one(headers, failures)
    assert framed_together(wanted[0], headers) in (None, wanted)


@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("begin", [HEADERS[0], *HEADERS[2:]])
def test_what_begins_alike_is_framed_together(begin: bytes, failures: int) -> None:
    headers = headers_of([begin + named(number) + BODIES[0] for number in range(3)])
    wanted = one_by_one(headers, failures)
    assert framed_together(wanted[0], headers) == wanted


@pytest.mark.parametrize("end", [*FOOTERS, FOOTER_BY_NAME])
def test_one_with_a_footer_has_all_framed_one_by_one(end: bytes) -> None:
    alike = HEADERS[2] + named(1) + BODIES[0]
    headers = headers_of([alike, alike + end])
    assert framed_together(one_by_one(headers, 0)[0], headers) is None


def test_a_message_of_another_protocol_is_framed_by_itself() -> None:
    (ours,) = headers_of([named(1) + BODIES[0]])
    headers = [ours._replace(protocol="amqp-0.10")] * 2
    assert framed_together(FramingHeader(b"", b"", 2), headers) is None

"""Every field of every control that a client sends: absent, zero, and at its limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from broker_shim.amqp_0_10 import controls as k
from broker_shim.broker.settings import BrokerSettings
from broker_shim.framing.frames import ALONE, PROTOCOL_HEADER, Frame
from tests.support.amqp.amqp_0_10 import Bench010, Client010

CONNECTION = 1
LIMITS: dict[str, tuple[Any, Any]] = {
    "bit": (False, True),
    "uint8": (0, 0xFF),
    "uint16": (0, 0xFFFF),
    "uint32": (0, 0xFFFFFFFF),
    "uint64": (0, 0xFFFFFFFFFFFFFFFF),
    "sequence-no": (0, 0xFFFFFFFF),
    "sequence-set": ((), ((0, 0x7FFFFFFF),)),
    "str8": ("", "x" * 255),
    "vbin16": (b"", b"x" * 0xFFFF),
    "vbin32": (b"", b"x" * 0xFFFF),
    "map": ({}, {"k" * 255: "v" * 0xFFF}),
    "array": ((), ("x" * 100,)),
}
"""A field's type → zero, and the largest; of a type without a limit of its own, something large."""

FOR_THE_CLIENT = {
    *(k.ConnectionStart, k.ConnectionSecure, k.ConnectionTune, k.ConnectionOpenOk),
    k.ConnectionRedirect,
}
"""Controls that a broker says and never hears."""

TYPICAL = {
    (k.ConnectionStartOk, "mechanism"): "ANONYMOUS",
    (k.SessionDetach, "name"): b"session",
    (k.SessionDetached, "name"): b"session",
}
"""What a field says that another one is tried beside."""

SAID = ("absent", "zero", "limit")
NO_LOGIN = "authentication failed"
LATE = "connection.secure-ok where anything was expected"
LARGE = "too large: a segment of more than 4096 bytes"
CLOSES: dict[tuple[Any, str, str], str] = {
    **{(k.ConnectionStartOk, "mechanism", said): NO_LOGIN for said in SAID},
    **{(k.ConnectionSecureOk, "response", said): LATE for said in SAID},
    (k.ConnectionStartOk, "client-properties", "limit"): LARGE,
    (k.ConnectionStartOk, "response", "limit"): LARGE,
    (k.ConnectionTuneOk, "channel-max", "limit"): "tune-ok with channel 65535: 200 is the last",
}
"""What closes the connection, and by which words; nothing else does."""

NOT_ATTACHED, UNKNOWN_IDS = 3, 4
DETACHES: dict[tuple[Any, str, str], int] = {
    **{(k.SessionDetach, "name", said): NOT_ATTACHED for said in SAID},
    (k.SessionCommandPoint, "command-id", "limit"): UNKNOWN_IDS,
    (k.SessionCommandPoint, "command-offset", "limit"): UNKNOWN_IDS,
    (k.SessionConfirmed, "commands", "limit"): UNKNOWN_IDS,
    (k.SessionCompleted, "commands", "limit"): UNKNOWN_IDS,
}
"""What is answered by session.detached, and by which code."""


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010(settings=BrokerSettings(max_sessions=201))
    yield it
    it.close()


def opened(bench: Bench010, tune: bytes) -> Client010:
    """A client whose tune-ok has these flags and fields."""
    client = bench.client()
    client.write(PROTOCOL_HEADER)
    client.say(k.ConnectionStartOk({}, "ANONYMOUS", b"", "en_US"), 0)
    client.write(Frame(0, ALONE, 0, b"\x01\x06" + tune).encoded)
    client.say(k.ConnectionOpen(""), 0)
    bench.run()
    return client


@pytest.mark.parametrize(
    "tune",
    [
        pytest.param(b"\x00\x00", id="nothing"),
        pytest.param(b"\x01\x00\x00\x00", id="channel-max 0"),
        pytest.param(b"\x04\x00\x00\x00", id="heartbeat alone"),
        pytest.param(b"\x07\x00" + bytes(6), id="zeros"),
    ],
)
def test_a_client_that_names_no_channel_max_may_use_every_channel_of_the_broker(
    bench: Bench010, tune: bytes
) -> None:
    client = opened(bench, tune)
    for channel in (1, 200):
        client.say(k.SessionAttach(b"s%d" % channel), channel)
    bench.run()
    assert len(client.of(k.SessionAttached)) == 2
    client.say(k.SessionAttach(b"s201"), 201)
    bench.run()
    assert client.of(k.ConnectionClose)[0].reply_text == (
        "channel 201: 200 is the last that may be used"
    )


def test_a_client_that_names_its_last_channel_is_held_to_it(bench: Bench010) -> None:
    client = opened(bench, b"\x01\x00\x00\x07")
    client.say(k.SessionAttach(b"s7"), 7)
    client.say(k.SessionAttach(b"s8"), 8)
    bench.run()
    assert client.of(k.ConnectionClose)[0].reply_text == "channel 8: 7 is the last that may be used"


def each_field() -> Iterator[tuple[Any, str, str]]:
    for control in k.CONTROLS.values():
        if control not in FOR_THE_CLIENT:
            yield from (
                (control, name, said)
                for name, _kind, _mandatory, _default in control.FIELDS
                for said in SAID
            )


def with_field(control: Any, field: str, said: str) -> Any:
    """A control that says this in one field, and as little as it can in all others."""
    values = {}
    for attribute, (name, kind, is_mandatory, _default) in zip(
        fields(control), control.FIELDS, strict=True
    ):
        zero, limit = LIMITS[kind]
        if name == field and said != "absent":
            values[attribute.name] = zero if said == "zero" else limit
        elif is_mandatory and name != field:
            values[attribute.name] = TYPICAL.get((control, name), zero)
        elif name == field and kind != "bit":
            values[attribute.name] = None
    return control(**values)


def begun(bench: Bench010, said: Any) -> Client010:
    """A client that says a control where it belongs, and attaches a session if it does not."""
    client = bench.client()
    client.write(PROTOCOL_HEADER)
    opening = {
        k.ConnectionStartOk: k.ConnectionStartOk({}, "ANONYMOUS", b"", "en_US"),
        k.ConnectionTuneOk: k.ConnectionTuneOk(200, 65_535, 0),
        k.ConnectionOpen: k.ConnectionOpen(""),
    }
    for control, usual in opening.items():
        client.say(said if isinstance(said, control) else usual, 0)
    bench.run()
    if type(said) in opening:
        client.attach()
    elif said.CODE >> 8 == CONNECTION:
        client.say(said, 0)
        bench.run()
    else:
        if not isinstance(said, k.SessionAttach):
            client.attach()
        client.do(said)
    return client


@pytest.mark.parametrize(("control", "field", "said"), [*each_field()])
def test_a_field_that_is_absent_zero_or_at_its_limit_ends_no_more_than_it_must(
    bench: Bench010, control: Any, field: str, said: str
) -> None:
    other = bench.client()
    other.open()
    other.attach(b"other")
    client = begun(bench, with_field(control, field, said))
    closes = CLOSES.get((control, field, said))
    assert [each.reply_text for each in client.of(k.ConnectionClose)] == [closes][: bool(closes)]
    detaches = DETACHES.get((control, field, said))
    told = [int(each.code) for each in client.of(k.SessionDetached)]
    assert told == [detaches][: bool(detaches)]
    is_closing = closes is not None or control is k.ConnectionClose
    assert client.connection.is_over is is_closing
    if not is_closing:
        client.say(k.SessionAttach(b"next"), 2)
        bench.run()
        assert client.told[-1] == k.SessionAttached(b"next")
    assert other.sync()

"""A greeting comes from anybody: whatever it holds, it is a greeting or is refused in one line."""

from __future__ import annotations

import pytest

from sparkstore.errors import InvalidRequest
from sparkstore.shipping.frames import PROTOCOL, StandbyHello, as_json, hello_of
from sparkstore.standby.admission import check_token

HELLO = StandbyHello(PROTOCOL, 3, "a token of the pair", "a" * 32)


def test_a_greeting_is_read_as_it_was_sent() -> None:
    assert hello_of(as_json(HELLO._asdict())) == HELLO


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff" * 100,
        b"[" * 4_000,
        b"null",
        b"{}",
        as_json({**HELLO._asdict(), "more": 1}),
        as_json({**HELLO._asdict(), "end": "1"}),
        as_json({**HELLO._asdict(), "end": True}),
        as_json({**HELLO._asdict(), "end": -1}),
        as_json({**HELLO._asdict(), "log_end": 1 << 63}),
        as_json({**HELLO._asdict(), "root_id": None}),
    ],
)
def test_what_is_no_greeting_is_refused_in_one_line(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="this is no standby's greeting"):
        hello_of(body)


def test_a_token_of_half_a_pair_is_a_wrong_one() -> None:
    with pytest.raises(InvalidRequest, match="the token is wrong"):
        check_token(hello_of(as_json(HELLO._replace(token="\ud800")._asdict())), HELLO.token)

"""Protocol headers and SASL: who gets in, and how the others are told."""

from __future__ import annotations

import pytest
from scramp import ScramClient, ScramMechanism

from broker_shim.amqp_1_0.composites import (
    Composite,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    FrameDecoder,
    encoded_frame,
)
from broker_shim.protocol_1_0.connection import ServerConnection
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.sasl.exchange import MAX_STEPS, Challenge, Mechanisms, Passed, Refused
from broker_shim.protocol_1_0.sasl.mechanisms import Anonymous, External, Plain
from broker_shim.protocol_1_0.sasl.scram import MAX_CHALLENGE_BYTES, Scram, ScramSecret

SETTINGS = Settings("broker")
PASSWORDS = {"ann": "secret", "zoë": "pässword"}
PLAIN = {"PLAIN": lambda: Plain(lambda user, password: PASSWORDS.get(user) == password)}


class Peer:
    """A client's side of SASL, by hand."""

    def __init__(self, mechanisms: Mechanisms, settings: Settings = SETTINGS) -> None:
        self.machine = ServerConnection(settings, mechanisms, now_s=0.0)
        self._decoder = FrameDecoder(512)

    def write(self, encoded: bytes) -> None:
        self.machine.receive_data(encoded, now_s=0.0)

    def say(self, performative: Composite) -> None:
        self.write(encoded_frame(performative, kind=SASL_FRAME))

    def read(self) -> Composite:
        self._decoder.feed(b"".join(self.machine.data_to_send(now_s=0.0)))
        frame = self._decoder.next_frame()
        assert frame is not None
        assert frame.kind == SASL_FRAME
        return read_performative(frame.encoded, frame.start, frame.end)[0]

    def greeted(self) -> SaslMechanisms:
        self.write(SASL_HEADER.encoded())
        self._decoder.feed(b"".join(self.machine.data_to_send(now_s=0.0)))
        assert self._decoder.next_header() == SASL_HEADER
        frame = self._decoder.next_frame()
        assert frame is not None
        offered = read_performative(frame.encoded, frame.start, frame.end)[0]
        assert isinstance(offered, SaslMechanisms)
        return offered


def outcome(mechanisms: Mechanisms, mechanism: str, response: bytes | None) -> object:
    peer = Peer(mechanisms)
    peer.greeted()
    peer.say(SaslInit(mechanism, response))
    return peer.read()


def test_a_peer_is_offered_the_mechanisms_then_let_in_then_heard() -> None:
    peer = Peer({**PLAIN, "ANONYMOUS": Anonymous})
    assert peer.greeted().sasl_server_mechanisms == ("PLAIN", "ANONYMOUS")
    peer.say(SaslInit("PLAIN", b"\0ann\0secret"))
    assert peer.read() == SaslOutcome(0)
    peer.write(AMQP_HEADER.encoded() + encoded_frame(Open("c")))
    assert [type(each) for each in peer.machine.events()] == [
        events.Authenticated,
        events.ConnectionOpened,
    ]
    assert b"".join(peer.machine.data_to_send(now_s=0.0)) == AMQP_HEADER.encoded()


def test_everything_may_come_in_one_piece_before_any_answer() -> None:
    peer = Peer({"ANONYMOUS": Anonymous})
    peer.write(
        SASL_HEADER.encoded()
        + encoded_frame(SaslInit("ANONYMOUS"), kind=SASL_FRAME)
        + AMQP_HEADER.encoded()
        + encoded_frame(Open("c"))
    )
    assert peer.machine.events() == [
        events.Authenticated("ANONYMOUS", "anonymous"),
        events.ConnectionOpened(Open("c")),
    ]


@pytest.mark.parametrize(
    ("response", "is_in"),
    [
        (b"\0ann\0secret", True),
        (b"ann\0ann\0secret", True),
        ("\0zoë\0pässword".encode(), True),
        (b"\0ann\0wrong", False),
        (b"\0bob\0secret", False),
        (b"bob\0ann\0secret", False),
        (b"\0ann\0", False),
        (b"\0\0secret", False),
        (b"ann\0secret", False),
        (b"\0ann\0secret\0", False),
        (b"\0\xff\0secret", False),
        (b"\0ann\0" + b"x" * 200, False),
        (b"", False),
    ],
)
def test_plain_lets_in_by_name_and_password(response: bytes, is_in: bool) -> None:
    assert outcome(PLAIN, "PLAIN", response) == SaslOutcome(0 if is_in else 1)


def test_plain_longer_than_anybody_needs_is_not_even_hashed() -> None:
    asked: list[str] = []

    def is_password_of(user: str, _password: str) -> bool:
        asked.append(user)
        return True

    answer = Plain(is_password_of).step(b"\0ann\0" + b"x" * 1_024)
    assert isinstance(answer, Refused)
    assert asked == []


def test_plain_without_an_initial_response_is_asked_for_one() -> None:
    peer = Peer(PLAIN)
    peer.greeted()
    peer.say(SaslInit("PLAIN"))
    assert peer.read() == SaslChallenge(b"")
    peer.say(SaslResponse(b"\0ann\0secret"))
    assert peer.read() == SaslOutcome(0)


@pytest.mark.parametrize(
    ("vouched", "response", "code"),
    [("CN=ann", b"", 0), ("CN=ann", b"CN=ann", 0), ("CN=ann", b"CN=bob", 1), (None, b"", 1)],
)
def test_external_lets_in_whom_somebody_vouches_for(
    vouched: str | None, response: bytes, code: int
) -> None:
    found = outcome({"EXTERNAL": lambda: External(vouched)}, "EXTERNAL", response)
    assert found == SaslOutcome(code)


def secret(name: str, password: str) -> ScramSecret:
    return ScramSecret(*ScramMechanism(name).make_auth_info(password))


SECRETS = {name: secret(name, "secret") for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")}


def scram(name: str) -> Mechanisms:
    return {name: lambda: Scram(name, {"ann": SECRETS[name]}.get, b"decoy key")}


def scram_exchange(name: str, user: str, password: str) -> tuple[Peer, ScramClient]:
    client = ScramClient([name], user, password)
    peer = Peer(scram(name))
    peer.greeted()
    peer.say(SaslInit(name, client.get_client_first().encode()))
    challenge = peer.read()
    assert isinstance(challenge, SaslChallenge)
    client.set_server_first(challenge.challenge.decode())
    peer.say(SaslResponse(client.get_client_final().encode()))
    return peer, client


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_both_sides_to_each_other(name: str) -> None:
    peer, client = scram_exchange(name, "ann", "secret")
    found = peer.read()
    assert isinstance(found, SaslOutcome)
    assert found.code == 0
    assert found.additional_data is not None
    client.set_server_final(found.additional_data.decode())
    assert peer.machine.events() == [events.Authenticated(name, "ann")]


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret")])
def test_scram_refuses_a_wrong_password_and_an_unknown_user_alike(
    name: str, user: str, password: str
) -> None:
    peer, _ = scram_exchange(name, user, password)
    assert peer.read() == SaslOutcome(1)
    assert peer.machine.is_over


def test_an_unknown_user_is_asked_with_the_same_salt_every_time() -> None:
    challenges = set()
    for _ in range(2):
        mechanism = Scram("SCRAM-SHA-256", lambda _user: None, b"key", nonce="fixed")
        challenges.add(mechanism.step(b"n,,n=nobody,r=abc"))
    assert len(challenges) == 1


def test_who_was_asked_and_is_gone_has_given_up() -> None:
    peer = Peer(scram("SCRAM-SHA-256"))
    assert peer.machine.given_up is None
    peer.greeted()
    assert peer.machine.given_up is None
    peer.say(SaslInit("SCRAM-SHA-256", b"n,,n=ann,r=abc"))
    given_up = events.AuthenticationFailed("SCRAM-SHA-256", "given up when it was asked, as 'ann'")
    assert peer.machine.given_up == given_up
    peer.write(b"")
    assert peer.machine.given_up == given_up
    for password in ("secret", "wrong"):
        decided, _ = scram_exchange("SCRAM-SHA-256", "ann", password)
        assert decided.machine.given_up is None


@pytest.mark.parametrize(
    "first",
    [b"", b"\xff", b"n,,", b"n,,n=,r=", b"x" * 2_000, b"p=tls-unique,,n=a,r=b", b"n,,n=a=,r=b"],
)
def test_scram_that_is_malformed_is_refused(first: bytes) -> None:
    mechanism = Scram("SCRAM-SHA-256", lambda _user: None, b"key")
    assert isinstance(mechanism.step(first), Refused)


def test_a_nonce_is_as_long_as_fits_the_frame_that_repeats_it() -> None:
    told = []
    for length in range(300, 440):
        peer = Peer(scram("SCRAM-SHA-256"))
        peer.greeted()
        peer.say(SaslInit("SCRAM-SHA-256", b"n,,n=ann,r=" + b"x" * length))
        told.append(peer.read())
    challenges = [each.challenge for each in told if isinstance(each, SaslChallenge)]
    assert max(map(len, challenges)) == MAX_CHALLENGE_BYTES
    assert told[len(challenges) :] == [SaslOutcome(1)] * (len(told) - len(challenges))
    assert [type(each) for each in peer.machine.events()] == [events.AuthenticationFailed]


@pytest.mark.parametrize(
    "final", [b"", b"c=biws,r=abcfixed,p=%%%", b"c=,r=,p=", b"c=biws,r=x,p=AA=="]
)
def test_a_second_word_of_scram_that_is_malformed_is_refused(final: bytes) -> None:
    mechanism = Scram("SCRAM-SHA-256", lambda _user: None, b"key", nonce="fixed")
    mechanism.step(b"n,,n=nobody,r=abc")
    assert isinstance(mechanism.step(final), Refused)


def test_who_is_refused_is_told_nothing_but_that_and_never_heard_again() -> None:
    peer = Peer(PLAIN)
    peer.greeted()
    peer.say(SaslInit("PLAIN", b"\0ann\0wrong"))
    peer.write(AMQP_HEADER.encoded() + encoded_frame(Open("c")))
    assert peer.read() == SaslOutcome(1)
    assert peer.machine.is_over
    assert peer.machine.events() == [
        events.AuthenticationFailed("PLAIN", "unknown user, or not the password of 'ann'")
    ]


def test_a_mechanism_that_was_not_offered_is_refused() -> None:
    assert outcome(PLAIN, "ANONYMOUS", b"") == SaslOutcome(1)


class Endless:
    """Asks and asks."""

    def step(self, _response: bytes | None) -> Challenge:
        return Challenge(b"and?")


def test_a_mechanism_that_never_decides_is_ended() -> None:
    peer = Peer({"ENDLESS": Endless})
    peer.greeted()
    peer.say(SaslInit("ENDLESS"))
    for _ in range(MAX_STEPS):
        assert peer.read() == SaslChallenge(b"and?")
        peer.say(SaslResponse(b""))
    assert peer.read() == SaslOutcome(1)
    assert peer.machine.is_over


@pytest.mark.parametrize(
    "frame",
    [
        encoded_frame(SaslResponse(b""), kind=SASL_FRAME),
        encoded_frame(SaslOutcome(0), kind=SASL_FRAME),
        encoded_frame(Open("c"), kind=SASL_FRAME),
        encoded_frame(SaslInit("PLAIN")),
        bytes((0, 0, 0, 8, 2, SASL_FRAME, 0, 0)),
        (513).to_bytes(4, "big") + bytes((2, SASL_FRAME, 0, 0)),
    ],
)
def test_what_cannot_come_within_sasl_ends_the_connection_without_a_word(frame: bytes) -> None:
    peer = Peer(PLAIN)
    peer.greeted()
    peer.write(frame)
    assert peer.machine.is_over
    assert isinstance(peer.machine.events()[0], events.ConnectionFailed)
    assert peer.machine.data_to_send(now_s=0.0) == []


@pytest.mark.parametrize(
    ("header", "requires_sasl", "answer"),
    [
        (b"AMQP\0\0\x09\x01", True, SASL_HEADER),
        (b"AMQP\x02\x01\0\0", True, SASL_HEADER),
        (b"AMQP\x03\x01\x01\0", False, AMQP_HEADER),
        (AMQP_HEADER.encoded(), True, SASL_HEADER),
        (b"GET / HTTP/1.1", False, AMQP_HEADER),
    ],
)
def test_another_protocol_is_answered_with_ours_and_the_end(
    header: bytes, requires_sasl: bool, answer: object
) -> None:
    peer = Peer(PLAIN, Settings("broker", requires_sasl=requires_sasl))
    peer.write(header)
    assert b"".join(peer.machine.data_to_send(now_s=0.0)) == answer.encoded()  # type: ignore[attr-defined]
    assert peer.machine.is_over


def test_sasl_is_not_begun_twice() -> None:
    peer = Peer({"ANONYMOUS": Anonymous})
    peer.greeted()
    peer.say(SaslInit("ANONYMOUS"))
    peer.write(SASL_HEADER.encoded())
    assert isinstance(peer.machine.events()[-1], events.ConnectionFailed)


def test_anonymous_tells_who_it_is_not() -> None:
    assert Anonymous().step(None) == Passed("anonymous")

"""A broker that keeps messages in memory does not accept durable ones (AMQP 1.0 section 3.2.1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Message

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Detach,
    Disposition,
    Rejected,
    Released,
    Source,
    Target,
)
from broker_shim.broker.settings import BrokerSettings, DurableMessages
from broker_shim.errors import InvalidRequest
from broker_shim.serve.options import parser, settings_of
from tests.support.amqp.link_clients import Client, House, Place

FAILED = "amqp:precondition-failed"


def sender(
    tmp_path: Path, durable: DurableMessages, source: Source | None = None
) -> tuple[Client, object]:
    """A client with a link to the queue `q`, and the properties with which that was answered."""
    house = House(Place("memory", tmp_path), BrokerSettings(durable_messages=durable))
    client = Client(house)
    answer = client.attach("out", source=source, target=Target("q"), is_receiver=False)
    return client, answer.properties


def outcome(client: Client) -> object:
    ((told, _payload),) = client.taken(Disposition)
    return told.state


def waiting(client: Client) -> int:
    queues = client.house.store.recover().entries
    return len(queues["q"]) if "q" in queues else 0


def test_what_is_durable_is_rejected_and_what_is_not_is_taken(tmp_path: Path) -> None:
    client, announced = sender(tmp_path, DurableMessages.REJECTED)
    assert announced == {"durable-messages": "rejected"}
    client.deliver(b"0", "durable")
    told = outcome(client)
    assert isinstance(told, Rejected)
    assert told.error.condition == FAILED
    assert "in memory only" in told.error.description
    client.deliver_encoded(b"1", bytes(Message("not").encode()))
    assert isinstance(outcome(client), Accepted)
    assert waiting(client) == 1


def test_where_a_rejection_cannot_be_told_the_link_ends(tmp_path: Path) -> None:
    client, _ = sender(tmp_path, DurableMessages.REJECTED)
    client.deliver(b"0", "durable", settled=True)
    assert client.take(Detach).error.condition == FAILED
    outcomes = (Accepted.DESCRIPTOR, Released.DESCRIPTOR)
    client, _ = sender(tmp_path, DurableMessages.REJECTED, Source(outcomes=outcomes))
    client.deliver(b"0", "durable")
    assert client.take(Detach).error.condition == FAILED
    assert waiting(client) == 0


@pytest.mark.parametrize(
    ("durable", "announced"),
    [
        (DurableMessages.IN_MEMORY, {"durable-messages": "in-memory"}),
        (DurableMessages.KEPT, None),
    ],
)
def test_else_it_is_taken(
    tmp_path: Path, durable: DurableMessages, announced: dict[str, str] | None
) -> None:
    client, told = sender(tmp_path, durable)
    assert told == announced
    client.deliver(b"0", "durable")
    assert isinstance(outcome(client), Accepted)
    assert waiting(client) == 1


@pytest.mark.parametrize(
    ("arguments", "durable"),
    [
        (["root"], DurableMessages.KEPT),
        (["--memory"], DurableMessages.REJECTED),
        (["--configuration", "folder"], DurableMessages.REJECTED),
        (["--memory", "--accept-durable"], DurableMessages.IN_MEMORY),
        (["--configuration", "folder", "--accept-durable"], DurableMessages.IN_MEMORY),
    ],
)
def test_the_command_line_decides(arguments: list[str], durable: DurableMessages) -> None:
    settings, _config = settings_of(parser().parse_args(arguments))
    assert settings.durable_messages is durable


def test_a_root_needs_no_leave_to_take_what_is_durable() -> None:
    with pytest.raises(InvalidRequest, match="a root keeps what is durable"):
        settings_of(parser().parse_args(["root", "--accept-durable"]))

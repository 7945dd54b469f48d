"""Selectors and queue arguments over real sockets, with proton, on a root that outlives brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.reactor import Copy, Selector
from proton.utils import LinkDetached

from sparkstore.cli.command_line import main
from tests.support.system.clients import Holder, connected, is_empty, send, take
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

SETTINGS = """[broker]
queues = [
  {name = "values", arguments = {last_value_key = "key"}},
  {name = "alone", arguments = {exclusive = true}},
  {name = "groups", arguments = {message_groups = true}},
]
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("selecting") / "sparkstore.toml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture(scope="module")
def broker(settings: Path) -> Iterator[BrokerProcess]:
    """A broker that keeps nothing, for all of these."""
    started = BrokerProcess("--listen", "127.0.0.1:0", "--memory", "--config", str(settings))
    yield started
    started.terminate()


def valued(number: int, key: object) -> Message:
    return Message(id=number, durable=True, properties={"key": key})


def ids(messages: list[Message]) -> list[object]:
    return [message.id for message in messages]


def selected(url: str, address: str, selector: str, count: int, *more: Any) -> list[object]:
    """Ids of what a selector fits, accepted."""
    with connected(url) as connection:
        receiver = connection.create_receiver(address, options=[Selector(selector), *more])
        found = []
        for _ in range(count):
            found.append(receiver.receive(timeout=20).id)
            receiver.accept()
        return found


def test_what_was_selected_or_replaced_is_gone_after_a_kill_and_the_rest_is_there(
    start_broker: StartBroker, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "root")
    broker = start_broker("--config", str(settings), root)
    send(broker.url, "q", *(valued(n, "odd" if n % 2 else "even") for n in range(1, 7)))
    assert selected(broker.url, "q", "key = 'even'", 3) == [2, 4, 6]
    send(broker.url, "values", *(valued(n, n % 3) for n in range(30)))
    Holder(broker.url, "values", 1, lambda: send(broker.url, "values", valued(30, 0))).run()

    def killed_while_one_is_held() -> None:
        send(broker.url, "values", valued(31, 1))
        broker.kill()

    assert Holder(broker.url, "values", 1, killed_while_one_is_held).run() == [28]
    broker = start_broker("--config", str(settings), root)
    assert selected(broker.url, "q", "key LIKE 'o%'", 3, Copy()) == [1, 3, 5]
    assert ids(take(broker.url, "values", 3)) == [29, 30, 31]
    assert is_empty(broker.url, "values")
    send(broker.url, "values", valued(40, 0), valued(41, 0))
    broker.terminate()
    capsys.readouterr()
    assert main(["queues", root]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "values" in each]
    assert line.split()[:2] == ["values", "1"]
    assert line.endswith('{"last_value_key": "key"}')


def test_a_group_moves_to_another_consumer_when_its_own_is_gone(broker: BrokerProcess) -> None:
    send(broker.url, "groups", *(Message(id=n, group_id="g") for n in range(6)))
    assert Holder(broker.url, "groups", 2).run() == [0, 1]
    assert ids(take(broker.url, "groups", 6)) == list(range(6))


def test_an_exclusive_queue_refuses_a_second_consumer_until_the_first_is_gone(
    broker: BrokerProcess,
) -> None:
    with connected(broker.url) as connection:
        connection.create_receiver("alone")
        with pytest.raises(LinkDetached, match="amqp:resource-locked"):
            connection.create_receiver("alone", name="second")
        connection.create_receiver("alone", options=Copy(), name="browser")
    send(broker.url, "alone", Message(id=1))
    assert ids(take(broker.url, "alone", 1)) == [1]


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        ("n = = 1", "unexpected '=' at character 5"),
        ("(" * 1_000 + "TRUE" + ")" * 1_000, "nested more than 100 deep"),
        ("n = 1 OR " * 500, "ends too early, after character 4500"),
        ("n = 1 OR " * 2_000, "8192 at most"),
        ("n > 'x'", "a number was expected, not a text, at character 3"),
    ],
    ids=["syntax", "depth", "end", "length", "type"],
)
def test_a_bad_selector_refuses_the_link_and_the_connection_goes_on(
    broker: BrokerProcess, selector: str, reason: str
) -> None:
    with connected(broker.url) as connection:
        with pytest.raises(LinkDetached) as refused:
            connection.create_receiver("q", options=Selector(selector))
        assert "amqp:invalid-field" in str(refused.value)
        assert reason in str(refused.value)
        connection.create_sender("q").send(Message(id=1))
    assert ids(take(broker.url, "q", 1)) == [1]


def test_a_selector_of_a_megabyte_ends_its_connection_and_no_other(broker: BrokerProcess) -> None:
    """An attach is one frame, and a frame that large was never allowed."""
    with connected(broker.url) as other:
        sender = other.create_sender("q")
        with pytest.raises(Exception, match=r".") as failed, connected(broker.url) as connection:
            connection.create_receiver("q", options=Selector("n = 1 OR " * (1 << 17) + "n = 2"))
        assert not isinstance(failed.value, AssertionError)
        sender.send(Message(id=1))
    assert ids(take(broker.url, "q", 1)) == [1]


def test_a_selector_of_many_terms_is_taken(broker: BrokerProcess) -> None:
    send(broker.url, "q", *(Message(id=n, properties={"n": n}) for n in range(5)))
    text = " OR ".join(f"n = {number}" for number in range(3, 500))
    assert selected(broker.url, "q", text, 2) == [3, 4]

"""Five clients, each of them reading what each of them wrote, value for value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.system.client_cases import CASES, Told, text
from tests.support.system.client_programs import CLIENTS, Programs, programs
from tests.support.system.client_sights import as_read, as_seen, as_written, can_read, can_write
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that keeps what it is given, with a queue for each pair."""
    root = tmp_path_factory.mktemp("clients") / "root"
    started = BrokerProcess(str(root), "--listen", "127.0.0.1:0")
    yield started
    started.terminate()


@pytest.fixture(scope="module")
def connected(broker: BrokerProcess) -> Iterator[Programs]:
    """The clients, each with a connection."""
    with programs(broker) as started:
        yield started


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_a_client_reads_what_another_wrote(connected: Programs, writer: str, reader: str) -> None:
    told = {
        name: case
        for name, case in CASES.items()
        if can_write(writer, case) and can_read(reader, case)
    }
    queue = f"{writer}-{reader}"
    sent = connected[writer].send(queue, *(as_written(writer, case) for case in told.values()))
    assert sent == ["accepted"] * len(told)
    received = connected[reader].take(queue, len(told))
    in_turn = sorted(told.items(), key=lambda item: -priority_of(item[1]))
    wrong = {}
    for (name, case), message in zip(in_turn, received, strict=True):
        found, expected = as_read(writer, reader, case, message), as_seen(writer, reader, case)
        if differences := {part: found[part] for part in expected if found[part] != expected[part]}:
            wrong[name] = {part: (found[part], expected[part]) for part in differences}
    assert wrong == {}


@pytest.mark.parametrize("reader", CLIENTS)
def test_an_object_that_java_serialized_is_data_to_the_others(
    connected: Programs, reader: str
) -> None:
    queue = f"object-{reader}"
    assert connected["jms"].send(queue, {"body": {"object": "a text"}}) == ["accepted"]
    (received,) = connected[reader].take(queue)
    if reader == "jms":
        assert received["body"] == {"value": text("a text")}
    else:
        assert received["properties"]["content_type"] == "application/x-java-serialized-object"
        assert bytes.fromhex(*received["body"]["data"]).endswith(b"a text")


def priority_of(case: Told) -> int:
    """By which messages that wait are handed out."""
    priority: int = case.get("header", {}).get("priority", 4)
    return priority

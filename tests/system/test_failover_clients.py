"""Every client library goes on at the other machine, as docs/failover.md shows it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sparkstore import query
from tests.support.documents import blocks, section, text_of
from tests.support.system.client_programs import SOURCES
from tests.support.system.failover_clients import DUPLICATES_DROPPED, PROGRAMS, FailoverClient
from tests.support.system.pair_machines import Pair

SHOWN_IN = {
    "python": SOURCES / "proton_failover.py",
    "javascript": SOURCES / "node" / "failover.js",
    "go": SOURCES / "go" / "failover.go",
    "rust": SOURCES / "rust" / "src" / "failover.rs",
}
BEFORE, AFTER = 50, 20
"""So many messages of each client, before the kill and after it."""


@pytest.mark.parametrize("language", SHOWN_IN)
def test_the_code_that_is_shown_is_that_of_the_program_that_runs(language: str) -> None:
    (shown,) = blocks(section(text_of("docs/failover.md"), "Clients"), language)
    program = [line.strip() for line in SHOWN_IN[language].read_text().splitlines()]
    lines = [line.strip() for line in shown.splitlines()]
    assert "\n".join(lines) in "\n".join(program)


@pytest.mark.system
@pytest.mark.slow
def test_each_client_goes_on_at_the_standby_when_the_primary_is_killed(tmp_path: Path) -> None:
    pair = Pair(tmp_path, settings=DUPLICATES_DROPPED, options=("--amqp-0-10", "same"))
    clients = []
    try:
        primary = pair.start_both()
        clients = [
            FailoverClient(name, pair.ports, tmp_path / f"{name}.errors") for name in PROGRAMS
        ]
        pair.wait(lambda: all(len(c.numbers("received")) > BEFORE for c in clients))
        pair.kill(primary)
        killed_at_s = time.monotonic()
        pair.wait(lambda: all(len(c.numbers("accepted", killed_at_s)) > AFTER for c in clients))
        pair.wait(lambda: all(len(c.numbers("received", killed_at_s)) > AFTER for c in clients))
        for client in clients:
            client.stop()
        for client in clients:
            assert client.lost() == set(), client.name
            assert client.undone() == set(), client.name
        # The root that was killed is behind: its standby had all that was confirmed.
        pair.wait(lambda: is_each_once(pair.root(1 - primary), clients))
    finally:
        for client in clients:
            client.kill()
        pair.end()


def is_each_once(root: Path, clients: list[FailoverClient]) -> bool:
    """Say whether a root has each message that was accepted once, and a consumer took it.

    Not that of the old client: it gives a message that it sends again another id.
    """
    taken = """SELECT queue, count(*) AS times, count(DISTINCT message_id) AS messages
        FROM message_history WHERE kind = 'dequeued' AND detail IS NULL GROUP BY queue"""
    rows = {row["queue"]: (row["times"], row["messages"]) for row in query(root, taken).to_pylist()}
    counts = {c.name: len({*c.numbers("accepted")}) for c in clients if c.name != "jms-0-10"}
    return all(rows.get(name) == (count, count) for name, count in counts.items())

"""The drill: load, replicate on a schedule, lose the primary, promote, serve, count."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from proton import Message
from pyspark.sql import SparkSession

from sparkstore.cli.command_line import main
from sparkstore.compaction import compact
from sparkstore.errors import Fenced
from sparkstore.replication import replicate
from sparkstore.tables.root import open_root
from tests.support.roots.logs import until
from tests.support.system.clients import Pipelined, connected, send, take
from tests.support.system.processes import START_S, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]
BATCH, LAST = 25, 1 << 40


def durable(number: int) -> Message:
    return Message(id=number, durable=True, body=b"%d" % number, inferred=True, subject=f"{number}")


class Load:
    """Sends until the broker is gone."""

    def __init__(self, url: str) -> None:
        self.accepted: list[int] = []
        self.sent = 0
        self._url = url
        self._pace = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        error = ""
        while not error:
            messages = [durable(self.sent + index) for index in range(BATCH)]
            self.sent += BATCH
            error = Pipelined(self._url, "q", messages, self._note).run().error
            self._pace.wait(0.02)  # leave the jobs some of the machine

    def _note(self, sender: Pipelined) -> None:
        assert not sender.refused
        self.accepted.append(sender.accepted[-1])

    def wait(self) -> None:
        """Until it has seen that the broker is gone."""
        self._thread.join(START_S)
        assert not self._thread.is_alive()


def in_delta(where: Path) -> tuple[set[int], set[int]]:
    """Messages that the root's tables have the enqueuing of, and those they have a dequeuing of."""
    root = open_root(where)
    columns = ["kind", "message_id", "subject"]
    tables = [
        DeltaTable(str(t)).to_pyarrow_table(columns=columns) for t in (root.journal, root.history)
    ]
    rows = pa.concat_tables(tables).to_pylist()
    numbers = {row["message_id"]: int(row["subject"]) for row in rows if row["subject"]}
    gone = {numbers[row["message_id"]] for row in rows if row["kind"] == "dequeued"}
    return {*numbers.values()}, gone


def drain(url: str) -> list[int]:
    """Accept all there is; the ids in order."""
    ids: list[int] = []
    with connected(url) as connection:
        receiver = connection.create_receiver("q", credit=500)
        send(url, "q", durable(LAST))
        while (message := receiver.receive(timeout=START_S)).id != LAST:
            ids.append(message.id)
            receiver.accept()
        receiver.accept()
    return ids


def test_after_the_loss_of_a_primary_nothing_older_than_the_last_run_is_lost(
    spark: SparkSession,
    start_broker: StartBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    primary, replica = tmp_path / "primary", tmp_path / "replica"
    broker = start_broker(str(primary))
    load, taken, accepted = Load(broker.url), set[int](), set[int]()

    def is_known() -> bool:
        enqueued, dequeued = in_delta(primary)
        return accepted <= enqueued and taken <= dequeued

    until(lambda: len(load.accepted) > BATCH)
    for turn in range(2):
        taken |= {message.id for message in take(broker.url, "q", 10)}
        accepted = {*load.accepted}
        until(is_known)
        report = replicate.run(spark, primary, replica)
        assert report.records_copied
        if turn == 0:
            compact.run(spark, primary)
    assert load.sent > len(accepted), "there was no load during the last run"
    taken_late = {message.id for message in take(broker.url, "q", 10)}
    broker.kill()
    load.wait()
    shutil.rmtree(primary)

    assert main(["promote", "--json", str(replica)]) == 0
    promoted = json.loads(capsys.readouterr().out)
    assert (promoted["generation"], promoted["old_fenced"]) == (2, False)
    assert promoted["last_position"] == report.position_after
    received = drain(start_broker(str(replica)).url)
    counts = Counter(received)
    assert accepted - taken - taken_late <= {*counts}, "what the last run copied is lost"
    assert not taken & {*counts}, "what was taken before the last run comes again"
    assert max(counts.values()) == 1
    assert received == sorted(received)
    assert {*counts} <= {*range(load.sent)}


def test_an_old_primary_stops_serving_and_does_not_start_again(
    spark: SparkSession,
    start_broker: StartBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    primary, replica, config = tmp_path / "primary", tmp_path / "replica", tmp_path / "c.toml"
    config.write_text("[store]\nfence_check_s = 0.1\n")
    broker = start_broker(str(primary), "--config", str(config))
    send(broker.url, "q", *map(durable, range(50)))
    until(lambda: in_delta(primary)[0] == {*range(50)})
    replicate.run(spark, primary, replica)
    with pytest.raises(AssertionError, match=r"is a replica of .*promote it"):
        start_broker(str(replica))

    # Nobody sends now: it must end all the same.
    assert main(["promote", "--json", str(replica)]) == 0
    assert json.loads(capsys.readouterr().out)["old_fenced"] is True
    assert broker.wait() == 3
    (said,) = [line for line in broker.log.splitlines() if "sparkstore serve:" in line]
    assert "stopped: Fenced" in said
    assert f"{replica} took over" in said

    with pytest.raises(AssertionError, match=f"sparkstore serve: {primary} is fenced"):
        start_broker(str(primary))
    for job in (
        lambda: compact.run(spark, primary),
        lambda: replicate.run(spark, primary, replica),
    ):
        with pytest.raises(Fenced):
            job()
    assert sorted(drain(start_broker(str(replica)).url)) == [*range(50)]


@pytest.mark.thorough
def test_a_root_whose_replica_was_promoted_behind_its_back_is_fenced_too(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    """The old root could not be reached when its replica was promoted."""
    primary, replica, away = tmp_path / "primary", tmp_path / "replica", tmp_path / "away"
    broker = start_broker(str(primary))
    send(broker.url, "q", durable(1))
    assert broker.terminate() == 0
    replicate.run(spark, primary, replica)
    primary.rename(away)
    assert main(["promote", str(replica)]) == 0
    away.rename(primary)
    assert open_root(primary).identity.role == "primary"
    with pytest.raises(AssertionError, match="was promoted to 2"):
        start_broker(str(primary))
    with pytest.raises(Fenced, match="was promoted to 2"):
        compact.run(spark, primary)

    # And the new primary is one like any: it takes messages, is compacted, and gets a replica.
    broker = start_broker(str(replica))
    send(broker.url, "q", durable(2))
    assert broker.terminate() == 0
    compact.run(spark, replica)
    second = tmp_path / "second"
    replicate.run(spark, replica, second)
    assert in_delta(second) == ({1, 2}, set())
    found = open_root(second).identity
    assert (found.role, found.generation, found.primary) == ("replica", 2, str(replica))

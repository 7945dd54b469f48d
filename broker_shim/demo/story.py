"""The story of the demo: what happens in which order, and the proof."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from broker_shim.demo import answers
from broker_shim.demo.departures import departures, message_name
from broker_shim.demo.processes import (
    BrokerProcess,
    ClientProcess,
    DemoFailed,
    Progress,
    kill_what_runs,
)
from broker_shim.demo.verdict import ConfirmedDeliveries, disagreements, landed_in_doubt
from sparkstore.cli.output import table
from sparkstore.compaction import compact
from sparkstore.session import local_session
from sparkstore.session_effort import effort_for
from sparkstore.tables.root import open_root

AIRPORTS = ("EWR", "JFK", "LGA")
PUBLISHERS = 2
STEP_TIMEOUT_S = 120.0
_FOREVER = 1_000_000


class Demo:
    """The story, and what clients were told so far."""

    def __init__(self, folder: Path, message_count: int) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.message_count = message_count
        self.confirmed = ConfirmedDeliveries()
        self.progress = Progress()
        self._ledgers = 0
        self._departure_of: dict[int, int] = {}

    def publish_and_be_killed(self) -> list[int]:
        """Publish and consume until the broker is killed in mid-flight.

        Returns:
            For each publisher, the departure to go on with.
        """
        self.progress.say("a broker starts")
        broker = BrokerProcess(self.root, self.folder / "broker.log")
        self.progress.say(f"the broker listens on {broker.url}; {PUBLISHERS} publishers start")
        publishers = self._publishers(broker, list(range(PUBLISHERS)))
        self._wait(lambda: confirmed_by(publishers) > self.message_count // 6, publishers, [])
        careful = self._client("consumer", broker, 300, 200, 100, *AIRPORTS)
        self._wait(lambda: careful.is_holding, publishers, [careful])
        self.progress.say(
            "a consumer accepted 900, gave back 600 and holds 300; another one starts"
        )
        greedy = self._client("consumer", broker, _FOREVER, 0, 0, *AIRPORTS)
        half = self.message_count // 2
        busy = self.message_count // 20
        self._wait(
            lambda: confirmed_by(publishers) > half and greedy.told_count > busy,
            publishers,
            [careful, greedy],
        )
        broker.kill()
        self.progress.say("KILL -9, while publishing and settling")
        ledgers = [publisher.ledger() for publisher in publishers]
        for ledger in ledgers:
            self._publisher_told(ledger)
        for consumer in (careful, greedy):
            self.confirmed.add_consumer(consumer.ledger())
        self._report_told()
        return [ledger["next"] for ledger in ledgers]

    def restart(self, go_on: list[int]) -> tuple[BrokerProcess, ClientProcess]:
        """Start again, publish the rest, and leave a consumer that holds some."""
        at = time.monotonic()
        broker = BrokerProcess(self.root, self.folder / "broker.log")
        self.progress.say(f"the broker is back after {time.monotonic() - at:.1f} s")
        publishers = self._publishers(broker, go_on)
        self._wait(lambda: not any(p.is_running for p in publishers), publishers, [])
        for publisher in publishers:
            self._publisher_told(publisher.ledger())
        holder = self._client("consumer", broker, 200, 100, self.message_count // 40, *AIRPORTS)
        self._wait(lambda: holder.is_holding, [], [holder])
        self.confirmed.add_consumer(holder.written())
        self._report_told()
        return broker, holder

    def prove(self, when: str) -> None:
        """Compare the store with what clients were told.

        Raises:
            DemoFailed: What a client was told is not what the store has.
        """
        # Message ids are never used twice, so what was found once stays true.
        self._departure_of = self._departure_of or answers.numbers(self.root)
        stored = answers.stored(self.root, self._departure_of)
        queues = {d.number: d.queues for d in departures(0, self.message_count)}
        lines = disagreements(self.confirmed, stored, queues.__getitem__)
        for line in lines[:20]:
            self.progress.say(f"WRONG: {line}")
        if lines:
            message = f"{when}: {len(lines)} departures are not what clients were told"
            raise DemoFailed(message)
        landed, settled = landed_in_doubt(self.confirmed, stored)
        facts = self.confirmed
        self.progress.say(
            f"PROVED, {when}: {len(facts.published):,} acknowledged messages and"
            f" {len(facts.settled):,} acknowledged settlements are there exactly once;"
            f" in doubt: {landed} of {len(facts.publish_in_doubt)} messages are there,"
            f" {settled} of {len(facts.settle_in_doubt - facts.settled)} settlements"
        )

    def answer(self) -> None:
        """Prove what clients were told, compact, prove it again, and ask the questions.

        The broker goes on serving meanwhile. DuckDB proves, since its answers take a second. What
        clients were told has been in Delta for seconds when Spark is up: a commit follows within
        200 ms.
        """
        spark = self._spark()
        self.prove("after kill -9 and restart")
        report = compact.run(spark, self.root)
        self.progress.say(
            f"compacted beside the running broker in {report.seconds:.1f} s:"
            f" {report.records_moved:,} records moved to history,"
            f" {report.entries_changed:,} entries of state changed"
        )
        self.prove("after the compaction")
        depth = self._ask("What is on the queues?", answers.DEPTH)
        self._ask_what_happened()
        delay = self._ask_both(spark, "How late are the messages still waiting?", answers.DELAY)
        chart = self.folder / "departures.png"
        answers.draw(depth, delay, chart)
        self.progress.say(f"chart: {chart}")
        spark.stop()

    def _spark(self) -> SparkSession:
        effort, at = effort_for(open_root(self.root)), time.monotonic()
        spark = local_session(
            "sparkstore demo",
            java_options=effort.java_options,
            settings={"spark.sql.shuffle.partitions": "2", **effort.settings},
        )
        self.progress.say(f"Spark is up after {time.monotonic() - at:.1f} s")
        return spark

    def _ask_what_happened(self) -> None:
        """The history of one message, of the kind with the longest story."""
        twice = self.confirmed.released & self.confirmed.settled
        number = min(key.number for key in twice or self.confirmed.settled)
        ids = {departure: message_id for message_id, departure in self._departure_of.items()}
        title = f"What happened to {message_name(number)}?"
        self._ask(title, answers.HISTORY.format(message_id=ids[number]))

    def _ask(self, title: str, query: str) -> answers.Rows:
        """Ask DuckDB, and show the question with its answer."""
        at = time.monotonic()
        rows = answers.by_duckdb(self.root, query)
        self.progress.say(f"{title} (DuckDB answers in {time.monotonic() - at:.1f} s)")
        print("", *query.splitlines(), "", *table(rows), "", sep="\n  ")
        return rows

    def _ask_both(self, spark: SparkSession, title: str, query: str) -> answers.Rows:
        """Ask DuckDB, then Spark the same.

        Raises:
            DemoFailed: The two engines do not give the same rows.
        """
        rows, at = self._ask(title, query), time.monotonic()
        if answers.by_spark(spark, self.root, query) != rows:
            raise DemoFailed(f"Spark and DuckDB do not give the same answer: {title}")
        self.progress.say(f"Spark answers the same in {time.monotonic() - at:.1f} s")
        return rows

    def _publishers(self, broker: BrokerProcess, first: list[int]) -> list[ClientProcess]:
        ends = (self.message_count, PUBLISHERS)
        return [self._client("publisher", broker, number, *ends) for number in first]

    def _client(self, module: str, broker: BrokerProcess, *arguments: object) -> ClientProcess:
        self._ledgers += 1
        ledger = self.folder / f"ledger-{self._ledgers}-{module}.json"
        return ClientProcess(module, broker.url, ledger, *arguments)

    def _publisher_told(self, ledger: dict[str, Any]) -> None:
        if ledger["refused"]:
            message = f"the broker refused {len(ledger['refused'])} messages"
            raise DemoFailed(message)
        self.confirmed.add_publisher(ledger)

    def _report_told(self) -> None:
        facts = self.confirmed
        self.progress.say(
            f"clients were told: {len(facts.published):,} published,"
            f" {len(facts.settled):,} settled, {len(facts.released):,} released;"
            f" in doubt: {len(facts.publish_in_doubt)} and"
            f" {len(facts.settle_in_doubt - facts.settled)}"
        )

    def _wait(
        self,
        condition: Callable[[], bool],
        publishers: list[ClientProcess],
        consumers: list[ClientProcess],
    ) -> None:
        deadline = time.monotonic() + STEP_TIMEOUT_S
        before = len(self.confirmed.published)
        while not condition():
            if time.monotonic() > deadline:
                message = f"nothing came of it in {STEP_TIMEOUT_S:.0f} s: see {self.folder}"
                raise DemoFailed(message)
            published, settled = before + confirmed_by(publishers), confirmed_by(consumers)
            self.progress.now_and_then(
                f"{published:,} of {self.message_count:,} messages acknowledged,"
                f" {settled:,} settlements"
            )
            time.sleep(0.02)


def confirmed_by(clients: list[ClientProcess]) -> int:
    """Count what several clients had confirmed."""
    return sum(client.told_count for client in clients)


def run(folder: Path, message_count: int) -> None:
    """Run the whole demo in a folder that is wiped first.

    Raises:
        DemoFailed: The proof failed, or a process did.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    demo = Demo(folder, message_count)
    try:
        broker, holder = demo.restart(demo.publish_and_be_killed())
        demo.answer()
        holder.end()
        broker.stop()
    finally:
        kill_what_runs()
    demo.progress.say(f"done; tables, ledgers and the broker's log are in {folder}")

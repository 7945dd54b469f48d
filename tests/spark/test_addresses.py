"""Queues of one name on two addresses, in SQL and for the commands that change many messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_shim.store.interface import Exchange, ExchangeBindingKey
from sparkstore.cli.command_line import main
from sparkstore.compaction import compact
from sparkstore.recovery.recovery import recover
from sparkstore.tables.root import open_root
from sparkstore.views import views
from tests.support.stores.controls import Place
from tests.support.stores.stores import done


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Two queues of one name, and a third: 2, 3 and 1 messages; what fails goes to dead."""
    it = Place(tmp_path / "root", is_served=False)
    it.create("address1::q1", max_delivery_count=0, dead_letter_queue="address2::dead")
    it.create("address1::q2")
    it.create("address2::q1")
    assert it._store is not None
    done(it._store.create, Exchange("x", "topic"))
    done(it._store.bind, ExchangeBindingKey("x", "address2::q1", "k"), {})
    it.put("address1::q1", count=2)
    it.put("address1::q2", count=3)
    it.put("address2::q1")
    it.fail("address1::q1", 2, 1)
    it.close()
    return it


def depths(spark: SparkSession) -> dict[str, int]:
    return {row.queue: row.depth for row in spark.sql("SELECT queue, depth FROM queues").collect()}


@pytest.mark.slow
def test_two_queues_of_one_name_have_separate_depth_in_sql_before_and_after_a_compaction(
    spark: SparkSession, place: Place
) -> None:
    root = open_root(place.path)
    expected = {"address1::q1": 2, "address1::q2": 3, "address2::q1": 1}
    views.register(spark, root, ("queues", "queue_messages", "bindings"))
    assert depths(spark) == expected
    compact.run(spark, root)
    assert depths(spark) == expected
    on_one = "SELECT message_id FROM queue_messages WHERE queue = 'address2::q1'"
    assert [row.message_id for row in spark.sql(on_one).collect()] == [6]
    (bound,) = spark.sql("SELECT exchange, queue FROM bindings").collect()
    assert tuple(bound) == ("x", "address2::q1")


@pytest.mark.slow
@pytest.mark.thorough
def test_commands_take_full_and_unique_short_names_and_refuse_ambiguous_ones(
    spark: SparkSession, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> dict[str, object]:
        command, *rest = arguments
        assert main([command, "--json", str(place.path), *rest]) == 0
        told: dict[str, object] = json.loads(capsys.readouterr().out)
        return told

    told = run("move", "--from", "q2", "--to", "address2::q1", "--where", "true")
    assert (told["from"], told["to"], told["done"]) == ("address1::q2", "address2::q1", 3)
    told = run("requeue", "--from", "address2::q1", "--where", "message_id = 6")
    assert (told["from"], told["done"]) == ("address2::q1", 1)
    for where in ("q1", "a::b::c"):
        assert main(["purge", str(place.path), "--from", where, "--where", "true"]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    queues = recover(open_root(place.path)).state.queues
    assert {name: [*queue.entries] for name, queue in queues.items()} == {
        "address1::q1": [1, 2],
        "address1::q2": [],
        "address2::q1": [3, 4, 5, 6],
    }


@pytest.mark.slow
def test_what_failed_too_often_goes_to_a_dead_letter_queue_on_its_address(
    spark: SparkSession, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compact", "--nice", "0", "--json", str(place.path)]) == 0
    queues = recover(open_root(place.path)).state.queues
    assert [*queues["address2::dead"].entries] == [2]

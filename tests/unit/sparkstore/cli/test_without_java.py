"""What an administrator sees and does without Java: wiring, dead letters, simple choices."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Exchange, ExchangeBindingKey, MessageHeader, Queue
from sparkstore.cli.command_line import main
from sparkstore.core.annotations import Death, with_death
from tests.support.stores.stores import DELTA_CONFIG, done


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that starts would be a child process."""

    def refuse(*arguments: Any, **_: Any) -> None:
        message = f"a process was started: {arguments}"
        raise AssertionError(message)

    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Queue `orders` with five messages, `dead` with one that was rejected, and an exchange."""
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Queue("orders", arguments={"dead_letter_queue": "dead"}))
    done(store.create, Queue("dead"))
    done(store.create, Exchange("news", "topic"))
    done(store.bind, ExchangeBindingKey("news", "orders", "land.#"), {})
    for number in range(5):
        properties = (("land", "eu" if number % 2 else "us"),)
        header = MessageHeader(subject=f"s{number}", properties=properties)
        done(store.enqueue, store.message(header, b"body"), "orders")
    told = with_death(None, Death("orders", "rejected", 3, 0, "app:bad", "no price"))
    lost = store.message(MessageHeader(subject="lost"), b"body")
    done(store.enqueue, lost, "dead", annotations=told)
    store.close()
    return str(tmp_path / "root")


def rows(captured: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert main([*argv, "--json"]) == 0
    return [json.loads(line) for line in captured.readouterr().out.splitlines()]


def test_browse_tells_why_a_message_is_dead(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["browse", root, "dead"]) == 0
    assert "rejected on orders: app:bad, no price" in capsys.readouterr().out
    (row,) = rows(capsys, "browse", root, "dead")
    assert row["subject"] == "lost"
    assert row["annotations"]["x-opt-death-queue"] == "orders"
    assert row["annotations"]["x-opt-death-attempts"] == "3"
    assert main(["browse", root, "dead", "--body"]) == 0
    assert "x-opt-death-reason: rejected" in capsys.readouterr().out


def test_browse_shows_subject_and_properties(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "browse", root, "orders")
    assert [row["subject"] for row in found] == [f"s{number}" for number in range(5)]
    assert found[1]["properties"] == {"land": "eu"}
    assert main(["browse", root, "orders"]) == 0
    assert "land=eu" in capsys.readouterr().out


def test_wiring_is_listed(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["queue"]: row for row in rows(capsys, "queue", "list", root)}
    assert found["orders"]["arguments"] == {"dead_letter_queue": "dead"}
    assert found["dead"] == {
        "queue": "dead",
        "depth": 1,
        "durability": "unsettled-state",
        "arguments": None,
    }
    assert [row["exchange"] for row in rows(capsys, "exchange", "list", root)] == ["news"]
    (binding,) = rows(capsys, "binding", "list", root, "--queue", "orders")
    assert (binding["exchange"], binding["binding_key"]) == ("news", "land.#")
    assert rows(capsys, "binding", "list", root, "--queue", "dead") == []
    for command in (("queue", "list"), ("exchange", "list"), ("binding", "list")):
        assert main([*command, root]) == 0
    assert "land.#" in capsys.readouterr().out


def test_a_queue_is_shown_with_its_bindings(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "queue", "show", root, "orders")
    assert (row["depth"], row["bindings"]) == (5, [{"exchange": "news", "binding_key": "land.#"}])
    assert main(["queue", "show", root, "orders"]) == 0
    assert "news land.#" in capsys.readouterr().out
    assert main(["queue", "show", root, "ordres"]) == 2
    assert "unknown queue 'ordres'" in capsys.readouterr().err


def test_messages_are_moved_by_simple_conditions(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (dry,) = rows(
        capsys, "move", root, "orders", "--to", "dead", "--property", "land=eu", "--dry-run"
    )
    assert dry["count"] == 2
    assert [each["subject"] for each in dry["sample"]] == ["s1", "s3"]
    (told,) = rows(capsys, "move", root, "orders", "--to", "dead", "--property", "land=eu")
    assert (told["done"], told["left"]) == (2, 0)
    left = rows(capsys, "browse", root, "orders")
    assert [row["subject"] for row in left] == ["s0", "s2", "s4"]
    (told,) = rows(capsys, "purge", root, "orders", "--id", str(left[1]["message_id"]))
    assert told["done"] == 1
    (told,) = rows(capsys, "requeue", root, "orders", "--subject", "s0", "--older-than", "0s")
    assert told["done"] == 1
    left = rows(capsys, "browse", root, "orders")
    assert [row["subject"] for row in left] == ["s4", "s0"]
    assert rows(capsys, "purge", root, "orders", "--older-than", "1h")[0]["done"] == 0


def test_a_dry_run_counts_what_somebody_holds_as_left_whatever_is_asked(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DeltaMessageStore(Path(root), DELTA_CONFIG)
    held = [*store.recover().entries["orders"]][:2]
    for message_id in held:
        done(store.acquire, message_id, "orders", "somebody")
    store.close()
    everything = ("orders", "--older-than", "0s")
    for words in (
        ("move", root, *everything, "--to", "dead"),
        ("requeue", root, *everything),
        ("purge", root, *everything),
        ("queue", "purge", root, "orders"),
    ):
        (dry,) = rows(capsys, *words, "--dry-run")
        assert (dry["count"], dry["left"]) == (3, 2), words
    (dry,) = rows(capsys, "purge", root, "orders", "--id", str(held[0]), "--check")
    assert (dry["count"], dry["left"]) == (0, 1)


@pytest.mark.parametrize("words", [("purge", "--id", "-4"), ("redrive", "--limit", "0")], ids=str)
def test_a_number_below_1_is_refused(
    root: str, capsys: pytest.CaptureFixture[str], words: tuple[str, str, str]
) -> None:
    command, option, number = words
    with pytest.raises(SystemExit) as ended:
        main([command, root, "orders", option, number])
    assert ended.value.code == 2
    assert f"argument {option}: {number} is below 1" in capsys.readouterr().err


def test_messages_that_left_are_replayed_by_simple_conditions(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that live on elsewhere are not, and none comes twice."""
    rows(capsys, "move", root, "orders", "--to", "dead", "--subject", "s4")
    rows(capsys, "purge", root, "orders", "--older-than", "0s")
    (dry,) = rows(capsys, "replay", root, "orders", "--older-than", "0s", "--dry-run")
    assert dry["count"] == 4
    assert [each["subject"] for each in dry["sample"]] == ["s0", "s1", "s2", "s3"]
    (told,) = rows(capsys, "replay", root, "orders", "--property", "land=eu")
    assert told["done"] == 2
    assert [row["subject"] for row in rows(capsys, "browse", root, "orders")] == ["s1", "s3"]
    (told,) = rows(capsys, "replay", root, "orders", "--older-than", "0s")
    assert told["done"] == 2
    assert [row["subject"] for row in rows(capsys, "browse", root, "orders")[2:]] == ["s0", "s2"]
    (told,) = rows(capsys, "replay", root, "orders", "--older-than", "0s", "--to", "dead")
    assert told["done"] == 4
    assert main(["replay", root, "orders"]) == 2
    assert "say which messages" in capsys.readouterr().err


@pytest.fixture
def dead(tmp_path: Path) -> str:
    """Queue `dead` with letters of `orders` (room for two), of one that is gone, and of none."""
    store = DeltaMessageStore(tmp_path / "dead", DELTA_CONFIG)
    done(store.create, Queue("orders", arguments={"max_depth": 2}))
    done(store.create, Queue("dead"))
    for number, origin in enumerate(["orders", "gone", "orders", "", "orders"]):
        told = with_death(None, Death(origin, "rejected", 3, 0)) if origin else None
        letter = store.message(MessageHeader(subject=f"d{number}"), b"body")
        done(store.enqueue, letter, "dead", annotations=told)
    store.close()
    return str(tmp_path / "dead")


def test_dead_letters_go_back_to_where_they_came_from(
    dead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def subjects(queue: str) -> list[str]:
        return [row["subject"] for row in rows(capsys, "browse", dead, queue)]

    (dry,) = rows(capsys, "redrive", dead, "dead", "--dry-run")
    assert (dry["to"], dry["full"], dry["no_origin"]) == ({"orders": 2}, {"orders": 1}, 1)
    [gone] = dry["origin_gone"]
    assert (gone["queue"], gone["messages"], len(gone["ids"])) == ("gone", 1, 1)
    (told,) = rows(capsys, "redrive", dead, "dead", "--limit", "1")
    assert (told["to"], told["done"]) == ({"orders": 1}, 1)
    (told,) = rows(capsys, "redrive", dead, "dead")
    assert (told["done"], told["full"], told["no_origin"]) == (1, 1, 1)
    assert len(told["operation"]) == 8
    assert (subjects("orders"), subjects("dead")) == (["d0", "d2"], ["d1", "d3", "d4"])
    assert rows(capsys, "redrive", dead, "dead")[0]["done"] == 0
    assert main(["redrive", dead, "dead"]) == 0
    assert "gone: 1 stay" in capsys.readouterr().out
    (told,) = rows(capsys, "redrive", dead, "orders", "--to", "dead", "--subject", "d2")
    assert told["done"] == 1
    assert subjects("dead") == ["d1", "d3", "d4", "d2"]


def test_a_dead_letter_is_repaired_and_goes_back(
    dead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = rows(capsys, "browse", dead, "dead")[0]["message_id"]
    edit = ("resubmit", dead, str(old), "--body", "mended", "--property", "land=eu")
    (dry,) = rows(capsys, *edit, "--dry-run")
    assert (dry["to"], dry["body"], dry["properties"]) == ("orders", "mended", {"land": "eu"})
    assert len(rows(capsys, "browse", dead, "orders")) == 0
    (told,) = rows(capsys, *edit)
    assert (told["from"], told["to"], told["done"]) == ("dead", "orders", 1)
    (new,) = rows(capsys, "browse", dead, "orders", "--body")
    assert (new["body"], new["properties"], new["subject"]) == ("mended", {"land": "eu"}, "d0")
    assert new["annotations"] == {"x-opt-resubmitted-from": str(old)}
    statement = f"SELECT detail FROM message_history WHERE message_id = {old} AND kind = 'dequeued'"
    (left,) = rows(capsys, "sql", dead, "--engine", "duckdb", statement)
    outcome = json.loads(left["detail"])
    assert (outcome["outcome"], outcome["as"]) == ("resubmitted", str(new["message_id"]))
    assert outcome["operation"] == told["operation"]
    file = Path(dead) / "body"
    file.write_bytes(b"from a file")
    again = ("resubmit", dead, str(new["message_id"]), "--body-file", str(file), "--to", "dead")
    assert rows(capsys, *again)[0]["to"] == "dead"
    assert rows(capsys, "browse", dead, "dead", "--body")[-1]["body"] == "from a file"
    assert main(["resubmit", dead, str(old)]) == 2
    assert "is not on any queue" in capsys.readouterr().err


def test_a_bulk_command_is_undone_and_the_undo_too(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def subjects(queue: str) -> list[str]:
        return [row["subject"] for row in rows(capsys, "browse", root, queue)]

    every = subjects("orders")
    (told,) = rows(capsys, "purge", root, "orders", "--property", "land=eu")
    purge = told["operation"]
    (dry,) = rows(capsys, "undo", root, purge, "--dry-run")
    assert (dry["restored"], dry["lost"], dry["shifted"]) == ({"orders": 2}, [], {"orders": 2})
    assert main(["undo", root, purge, "--check"]) == 10
    capsys.readouterr()
    (undone,) = rows(capsys, "undo", root, purge)
    assert (undone["undoes"], undone["done"]) == (purge, 4)
    assert subjects("orders") == every
    assert (
        rows(capsys, "replay", root, "orders", "--older-than", "0s", "--dry-run")[0]["count"] == 0
    )
    assert main(["undo", root, purge]) == 2
    assert "is undone already" in capsys.readouterr().err
    assert rows(capsys, "undo", root, undone["operation"])[0]["removed"] == {"orders": 2}
    assert subjects("orders") == ["s0", "s2", "s4"]
    listed = {row["operation"]: row for row in rows(capsys, "operations", root)}
    assert (listed[purge]["action"], listed[purge]["messages"]) == ("purged", 2)
    assert not listed[purge]["can_be_undone"]
    assert listed[undone["operation"]]["undoes"] == purge
    assert main(["operations", root, "--limit", "1"]) == 0
    said = capsys.readouterr()
    assert "undone" in said.out
    assert "the newest 1 of 3 are shown" in said.err
    assert main(["undo", root, "nope"]) == 2
    assert "no operation 'nope'" in capsys.readouterr().err


def test_a_deleted_queue_comes_back_with_its_bindings_and_arguments(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> dict[str, Any]:
        return rows(capsys, "queue", "show", root, "orders")[0] | {"oldest_age_s": None}

    messages = rows(capsys, "browse", root, "orders", "--body")
    away = ("move", root, "orders", "--to", "dead", "--subject", "s0")
    rows(capsys, "undo", root, rows(capsys, *away)[0]["operation"])
    before = shown()
    (told,) = rows(capsys, "queue", "delete", root, "orders", "--force")
    assert rows(capsys, "operations", root)[-1]["operation"] == told["operation"]
    rows(capsys, "queue", "create", root, "orders")
    assert main(["undo", root, told["operation"]]) == 2
    assert "queue 'orders' is there again as" in capsys.readouterr().err
    rows(capsys, "queue", "delete", root, "orders")
    (undone,) = rows(capsys, "undo", root, told["operation"])
    assert (undone["restored"], undone["lost"]) == ({"orders": 5}, [])
    assert shown() == before
    after = rows(capsys, "browse", root, "orders", "--body")
    assert [row["body"] for row in after] == [row["body"] for row in messages]
    assert [row["subject"] for row in after] == [row["subject"] for row in messages]
    assert [row["subject"] for row in after] == [f"s{number}" for number in range(5)]
    assert after[0]["annotations"]["x-opt-restored-from"] == str(messages[0]["message_id"])


def test_what_cannot_be_undone_is_told_with_the_reason(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (told,) = rows(capsys, "move", root, "orders", "--to", "dead", "--older-than", "0s")
    rows(capsys, "purge", root, "dead", "--subject", "s1")
    (undone,) = rows(capsys, "undo", root, told["operation"])
    (lost,) = undone["lost"]
    assert (lost["reason"], lost["messages"], undone["done"]) == ("purged since", 1, 4)
    assert main(["undo", root, told["operation"]]) == 2


@pytest.mark.parametrize(
    ("limits", "code", "said"),
    [
        ([], 0, "OK - 6 messages on 2 queues"),
        (["--depth", "4:9"], 1, "WARNING - depth of orders is 5, over 4"),
        (["--dead", "0:0"], 2, "CRITICAL - dead of dead is 1, over 0"),
        (["--depth", "1:2", "--depth", "orders=9"], 0, "OK"),
        (["--compaction", "1d:2d"], 2, "CRITICAL - compaction is not known"),
        (["--depth", "many"], 3, "UNKNOWN - --depth 'many'"),
        (["--age", "nope=1h"], 3, "UNKNOWN - --age nope=…: no queue has this name"),
    ],
)
def test_a_monitoring_system_is_told_how_a_root_is(
    root: str, capsys: pytest.CaptureFixture[str], limits: list[str], code: int, said: str
) -> None:
    assert main(["check", root, *limits]) == code
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"SPARKSTORE {said}")
    assert main(["check", root, *limits, "--format", "prometheus"]) == code
    text = capsys.readouterr().out
    values = {
        (each.name, *each.labels.values()): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }
    assert values["sparkstore_check_status",] == code
    if code < 3:
        assert values["sparkstore_check_queue_messages", "orders"] == 5
        assert values["sparkstore_check_dead_letters", "dead"] == 1


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["purge", "orders", "--property", "land=eu"], 10),
        (["purge", "orders", "--property", "land=no"], 0),
        (["move", "orders", "--to", "dead", "--older-than", "1h"], 0),
        (["requeue", "dead", "--older-than", "0s"], 10),
        (["redrive", "dead"], 10),
        (["redrive", "dead", "--subject", "none"], 0),
        (["replay", "orders", "--older-than", "0s"], 0),
    ],
)
def test_a_script_is_told_whether_something_would_change(
    root: str, capsys: pytest.CaptureFixture[str], argv: list[str], code: int
) -> None:
    before = [rows(capsys, "browse", root, each) for each in ("orders", "dead")]
    assert main([argv[0], root, *argv[1:], "--check"]) == code
    capsys.readouterr()
    assert [rows(capsys, "browse", root, each) for each in ("orders", "dead")] == before


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["queue", "create", "new"], 10),
        (["queue", "create", "orders", "--set", "dead_letter_queue=dead"], 0),
        (["queue", "create", "orders"], 2),
        (["queue", "alter", "orders", "--set", "max_depth=9"], 10),
        (["queue", "alter", "orders", "--set", "dead_letter_queue=dead"], 0),
        (["queue", "delete", "orders"], 2),
        (["queue", "delete", "orders", "--force"], 10),
        (["queue", "purge", "orders"], 10),
        (["exchange", "create", "news", "--type", "topic"], 0),
        (["binding", "add", "news", "orders", "--key", "sea.#"], 10),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_script_is_told_whether_an_order_would_change_something(
    root: str, capsys: pytest.CaptureFixture[str], argv: list[str], code: int
) -> None:
    before = rows(capsys, "queue", "list", root), rows(capsys, "binding", "list", root)
    assert main([*argv[:2], root, *argv[2:], "--check", "--json"]) == code
    if code != 2:
        assert json.loads(capsys.readouterr().out)["dry_run"]
    capsys.readouterr()
    assert main([*argv[:2], root, *argv[2:], "--dry-run"]) == (code if code == 2 else 0)
    capsys.readouterr()
    assert (rows(capsys, "queue", "list", root), rows(capsys, "binding", "list", root)) == before


def test_a_monitoring_system_is_told_how_far_a_replica_is_behind(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = tmp_path / "replica"
    shutil.copytree(root, replica)
    identity = Path(root) / "root.json"
    identity.write_text(
        json.dumps({**json.loads(identity.read_text()), "replicas": [str(replica)]})
    )
    assert main(["check", root, "--lag", "0"]) == 0
    capsys.readouterr()
    rows(capsys, "purge", root, "orders", "--subject", "s0")
    assert main(["check", root, "--lag", "0"]) == 1
    assert f"lag of {replica} is " in capsys.readouterr().out
    shutil.rmtree(replica)
    assert main(["check", root, "--lag", "0:9"]) == 2
    assert f"CRITICAL - lag of {replica} is not known" in capsys.readouterr().out


def test_a_root_that_cannot_be_read_is_unknown_to_a_monitoring_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "nowhere")]) == 3
    assert capsys.readouterr().out.startswith("SPARKSTORE UNKNOWN - ")


def test_all_messages_are_exported(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(rows(capsys, "export", root, "orders")) == 5
    assert len(rows(capsys, "export", root, "orders", "--subject", "s2")) == 1


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["move", "orders", "--to", "dead"], "say which messages"),
        (["purge", "orders", "--where", "true", "--id", "1"], "--where says all"),
        (["purge", "orders", "--older-than", "soon"], "such as 90s or 7d"),
        (["purge", "orders", "--property", "land"], "NAME=VALUE"),
        (["purge", "ordres", "--where", "true"], "unknown queue 'ordres'"),
        (["move", "orders", "--to", "daed", "--where", "true"], "'daed'"),
        (["redrive", "daed"], "unknown queue 'daed'"),
        (["redrive", "dead", "--to", "nope"], "unknown queue 'nope': create it first"),
        (["redrive", "dead", "--to", "dead"], "name another queue"),
        (["resubmit", "1", "--unset", "nope"], "the message's properties are land"),
        (["resubmit", "1", "--unset", "land", "--property", "land=x"], "say one of them"),
        (["resubmit", "1", "--property", "land"], "NAME=VALUE"),
        (["resubmit", "1", "--queue", "dead"], "not on 'dead'"),
        (["resubmit", "1", "--to", "nope"], "unknown queue 'nope': create it first"),
        (["replay", "orders", "--older-than", "soon"], "such as 90s or 7d"),
        (["export", "ordres", "--where", "true"], "unknown queue 'ordres'"),
    ],
)
def test_a_slip_is_told_at_once(
    root: str, capsys: pytest.CaptureFixture[str], argv: list[str], hint: str
) -> None:
    assert main([argv[0], root, *argv[1:]]) == 2
    assert hint in capsys.readouterr().err

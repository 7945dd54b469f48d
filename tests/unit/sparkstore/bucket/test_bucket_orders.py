"""Orders to a root in a bucket: to the broker of this machine, at rest, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.bucket.working_copy import copy_here
from sparkstore.cli.command_line import main
from sparkstore.config import StoreConfig
from sparkstore.control.client import connect_to, open_control
from sparkstore.errors import InvalidRequest, Locked
from sparkstore.operations.bulk import Action, Answer, Request
from tests.support.objects.s3_server import S3Server, served
from tests.support.stores.controls import ServedRoot
from tests.support.stores.stores import done

URI = "s3://lake/queues"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(monkeypatch) as server:
        yield server


def fill(count: int) -> list[int]:
    store = DeltaMessageStore(URI, StoreConfig(commit_interval_ms=0))
    done(store.create, Queue("q"))
    messages = [store.message(MessageHeader(), b"%d" % number) for number in range(count)]
    for message in messages:
        done(store.enqueue, message, "q")
    store.close()
    return [message.message_id for message in messages]


def ids() -> list[int]:
    store = DeltaMessageStore(URI, StoreConfig(commit_interval_ms=0))
    found = [*store.recover().entries["q"]]
    store.close()
    return found


def test_a_root_at_rest_is_changed_from_any_machine(server: S3Server, tmp_path: Path) -> None:
    first, second = fill(2)
    elsewhere = StoreConfig(copy_dir=str(tmp_path / "elsewhere"))
    with closing(open_control(URI, elsewhere)) as control:
        assert control.run(Request(Action.PURGE, "q", (first,))) == Answer(done=1)
    assert (tmp_path / "elsewhere" / "audit.log").read_text()
    assert ids() == [second]


def test_what_may_be_served_elsewhere_is_refused_and_not_taken_over(
    server: S3Server, tmp_path: Path
) -> None:
    store = DeltaMessageStore(URI, StoreConfig(commit_interval_ms=0))
    elsewhere = StoreConfig(copy_dir=str(tmp_path / "elsewhere"))
    with pytest.raises(Locked, match=r"serve it once and stop that$"):
        open_control(URI, elsewhere)
    done(store.create, Queue("q"))  # it was not fenced
    store.close()
    open_control(URI, elsewhere).close()


def test_a_broker_of_this_machine_is_asked(
    server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = fill(2)
    copy = copy_here(URI)
    assert copy is not None
    assert connect_to(URI) is None
    assert main(["connections", URI]) == 75
    broker = ServedRoot(copy.path, uri=URI)
    try:
        with closing(open_control(URI)) as control:
            assert control.run(Request(Action.PURGE, "q", (first,))) == Answer(done=1)
        assert main(["queues", "--holders", "--json", URI]) == 0
        assert main(["connections", "--json", URI]) == 0
    finally:
        broker.stop()
    assert "no broker serves" in capsys.readouterr().err
    assert ids() == [second]


def test_no_root_is_made_by_an_order(server: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidRequest, match="is not a sparkstore root"):
        open_control(URI)
    assert main(["queue", "create", URI, "q"]) == 2
    assert "is not a sparkstore root" in capsys.readouterr().err
    assert not server.objects


def test_orders_take_the_uri(server: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    fill(1)
    assert main(["queue", "create", "--json", URI, "orders"]) == 0
    assert main(["transactions", "--json", URI]) == 0
    capsys.readouterr()
    assert main(["queues", "--json", URI]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["queue"] for row in told} == {"q", "orders"}


@pytest.mark.slow
def test_bulk_commands_are_undone_in_a_bucket(
    server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> dict[str, Any]:
        assert main([*words, "--json"]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[0])
        return told

    first, second, third = fill(3)
    purged = run("purge", URI, "q", "--id", str(first))["operation"]
    assert run("undo", URI, purged, "--dry-run")["restored"] == {"q": 1}
    run("undo", URI, purged)
    restored, *rest = ids()
    assert (restored > third, rest) == (True, [second, third])
    assert run("resubmit", URI, str(second), "--body", "new")["done"] == 1
    assert run("redrive", URI, "q")["no_origin"] == 3
    assert run("check", URI)["figure"] == "depth"
    run("queue", "delete", URI, "q", "--force")
    [*_, deletion] = (json.loads(line) for line in lines(capsys, "operations", URI, "--json"))
    assert run("undo", URI, deletion["operation"])["restored"] == {"q": 3}


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main([*words]) == 0
    return capsys.readouterr().out.splitlines()

"""What an operator's decision of a branch does: through a running broker, and to a root at rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_shim.store.branch_store import Xid
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from sparkstore.cli.command_line import main
from sparkstore.control.audit import AUDIT_FILE
from tests.support.roots.logs import until
from tests.support.stores.controls import HEADER, Place
from tests.support.stores.stores import DELTA_CONFIG, done

XID = Xid(1, b"order 17", b"q")
TEXT = "1:6f72646572203137:71"


@pytest.fixture(params=["served", "at rest"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A root whose queue `q` has a message that a branch in doubt takes; another it brings."""
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Queue("q"))
    old = store.message(HEADER, b"old")
    done(store.enqueue, old, "q")
    transaction = store.begin()
    done(store.dequeue, old.message_id, "q", "c", transaction=transaction)
    done(store.enqueue, store.message(HEADER, b"new"), "q", transaction=transaction)
    done(store.prepare, transaction, XID)
    store.close()
    it = Place(tmp_path / "root", is_served=request.param == "served")
    if it.is_served:
        assert it.control
    else:
        it.close()
    yield it
    it.close()


def told(captured: pytest.CaptureFixture[str], place: Place, *words: str) -> list[dict[str, Any]]:
    """What the command prints for machines, if it ends well."""
    assert main(["transactions", str(place.path), "--json", *words]) == 0
    return [json.loads(line) for line in captured.readouterr().out.splitlines()]


def refused(captured: pytest.CaptureFixture[str], place: Place, *words: str) -> str:
    """The one line of a command that is refused."""
    assert main(["transactions", str(place.path), *words]) == 2
    [line] = captured.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("decision", ["--commit", "--rollback"])
def test_an_operator_decides_a_branch_once_by_name_and_its_messages_are_there(
    place: Place, decision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = told(capsys, place)
    assert (row["xid"], row["state"], row["operations"]) == (TEXT, "prepared", 2)
    assert told(capsys, place, decision, TEXT)[0]["xid"] == TEXT
    other = "--rollback" if decision == "--commit" else "--commit"
    for again in (decision, other):
        assert "heuristically" in refused(capsys, place, again, TEXT)
    if place.served is not None:
        queue = place.served.broker.queues["q"]
        assert [queue.waits(each) for each in place.served.store.recover().entries["q"]] == [True]
        assert len(queue) == 1
        acts = [details for _, details in place.served.audited]
    else:
        lines = (place.path / AUDIT_FILE).read_text().splitlines()
        acts = [json.loads(line) for line in lines]
    assert [act.get("error") is None for act in acts] == [True, False, False]
    assert all(act["xid"] == TEXT and act["by"] for act in acts)

    def rows() -> list[dict[str, Any]]:
        return told(capsys, place)

    until(lambda: rows()[0]["state"] != "prepared")  # Delta has it in a moment
    assert told(capsys, place, "--forget", TEXT)[0]["act"] == "forget-branch"
    until(lambda: rows() == [])
    assert "no operator decided it" in refused(capsys, place, "--forget", TEXT)
    after = place.after()
    (left,) = after.ids("q")
    assert after.reader.read(left)[1] == (b"new" if decision == "--commit" else b"old")


def test_what_is_no_branch_is_refused_in_one_line(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong, match in (
        ("1:aa:bb", "no branch 1:aa:bb"),
        ("nonsense", "is no xid: write FORMAT:GLOBAL:BRANCH"),
        ("1:zz:bb", "is no xid"),
        ("1:" + "aa" * 200 + ":bb", "global id of an xid has 200 bytes"),
        ("9999999999:aa:bb", "format id"),
        ("", "is no xid"),
    ):
        for word in ("--commit", "--rollback"):
            assert match in refused(capsys, place, word, wrong)
    assert "in doubt still" in refused(capsys, place, "--forget", TEXT)
    assert [row["state"] for row in told(capsys, place)] == ["prepared"]

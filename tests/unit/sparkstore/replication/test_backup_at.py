"""A backup as of a time: what is restored is what the root was then, or there is no backup."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from sparkstore.cli.command_line import main
from sparkstore.config import StoreConfig
from sparkstore.content.reader import ContentReader
from sparkstore.errors import InvalidRequest
from sparkstore.reconcile.invariants import check
from sparkstore.recovery.recovery import recover
from sparkstore.replication.backup import back_up, restore
from sparkstore.storage.local import LocalStorage
from sparkstore.tables.delta_contents import contents
from sparkstore.tables.root import Root, open_root
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.histories import History, Layers, fold_rows
from tests.support.histories.seeds import seed
from tests.support.histories.timed_records import (
    HEADER,
    beginning,
    fold_again,
    put,
    rows_of,
    told,
    took,
)
from tests.support.objects.s3_server import served
from tests.support.roots.roots import build_root, rows_table, state_table
from tests.support.stores.stores import DELTA_CONFIG, done

SEEDS = [1, 2, None]
"""None: one of chance, drawn when the test runs."""
START = beginning('{"arguments": {}, "durability": 2}')


RECORDS = [*START, put(1, 10), put(2, 20), took(1, 30), put(3, 40)]


def root_of(path: Path, *, state: int = 0, history: int = 0) -> Root:
    return told(path / "root", RECORDS, state=state, history=history)


def shortened(root: Root, path: Path) -> None:
    """Fold all of a root, and drop from its tables what nobody needs of what is before 6."""
    kept = History(rows_of(RECORDS)[4:])
    other = build_root(path / "other", Layers(kept, 0, 3, 100, 1000))
    for name in ("history", "journal"):
        (root.path / name).rename(path / f"old-{name}")
        (other.path / name).rename(root.path / name)
    state = state_table(fold_rows(rows_of(RECORDS)), history_start=6)
    write_deltalake(str(root.state), state, mode="overwrite")


def back_at(root: Root, to: Path, at: str) -> Root:
    back_up(root.path, to, at=at)
    restore(to, to.with_name(f"{to.name}-restored"))
    return open_root(to.with_name(f"{to.name}-restored"))


@pytest.mark.slow
@pytest.mark.parametrize("fixed", SEEDS)
def test_what_is_restored_is_the_fold_of_all_records_up_to_then(
    tmp_path: Path, fixed: int | None
) -> None:
    number = seed() if fixed is None else fixed
    print(f"seed {number}")
    chance = random.Random(number)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(5)])
    layers = drawn_layers(chance, history)
    root = build_root(tmp_path / "root", layers)
    folds = range(1, layers.state_position + 1)
    earlier = sorted(chance.sample(folds, min(2, len(folds))))
    fold_again(root, history.rows, [*earlier, *folds[-1:]])
    for position in chance.sample(range(1, history.last_position + 1), 4):
        print(f"position {position} of {history.last_position}, folded at {earlier}")
        again = back_at(root, tmp_path / f"at-{position}", f"position={position}")
        expected = fold_rows(history.rows[:position])
        found = recover(again)
        assert (found.state, found.last_position) == (expected, position)
        assert [each for each in check(again) if not each.holds] == []
        reader = ContentReader(again)
        assert len(reader.headers([*expected.messages])) == len([*expected.messages])


@pytest.mark.parametrize("moved", [(0, 0), (0, 7), (7, 7), (4, 6)])
def test_a_time_is_backed_up_from_whatever_layer_has_it(
    tmp_path: Path, moved: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    root = root_of(tmp_path, state=moved[0], history=moved[1])
    argv = ["backup", str(root.path), str(tmp_path / "b"), "--json", "--at"]
    assert main([*argv, "1970-01-01T00:00:25Z"]) == 0
    assert json.loads(capsys.readouterr().out)["position_after"] == 5
    assert open_root(root.path).identity.replicas == [], "it is no replica that lags"
    restore(tmp_path / "b", tmp_path / "then")
    then = open_root(tmp_path / "then")
    assert [*recover(then).state.queues["q"].entries] == [1, 2]
    assert ContentReader(then).read(1)[1] == b"abc"
    store = DeltaMessageStore(then.path, DELTA_CONFIG)
    store.recover()
    done(store.enqueue, store.message(HEADER, b"new"), "q")
    store.close()
    back_up(root.path, tmp_path / "b")  # as if it had been made then: the next is incremental
    assert restore(tmp_path / "b", tmp_path / "now").messages == 2
    assert [*recover(open_root(tmp_path / "now")).state.queues["q"].entries] == [2, 3]


def test_jobs_go_on_from_the_position_of_then(tmp_path: Path) -> None:
    """Spark skips an append to history whose number, its last position, is there already."""
    root = root_of(tmp_path, state=4, history=4)
    later = CommitProperties(app_transactions=[Transaction("append", 7)])
    rows = rows_table(rows_of(RECORDS)[4:], 0)
    write_deltalake(str(root.history), rows, mode="append", commit_properties=later)
    again = back_at(root, tmp_path / "b", "position=6")
    assert contents(LocalStorage(again.path), "history").transactions == {"append": 6}
    assert recover(again).history_position == 6


def test_a_time_before_what_is_kept_whole_is_refused(tmp_path: Path) -> None:
    root = root_of(tmp_path, state=6, history=7)
    shortened(root, tmp_path)
    with pytest.raises(InvalidRequest, match="answers go back to position 6"):
        back_up(root.path, tmp_path / "b", at="position=4")
    assert not (tmp_path / "b").exists()


def test_messages_whose_content_history_lost_are_named_and_nothing_is_made(tmp_path: Path) -> None:
    """At position 5 message 1 is on its queue; since 6 nobody needed its content any more."""
    root = root_of(tmp_path, state=5, history=5)
    shortened(root, tmp_path)
    with pytest.raises(InvalidRequest, match=r"1 messages .* no content any more \(1\)"):
        back_up(root.path, tmp_path / "b", at="position=5")
    assert not (tmp_path / "b").exists()
    again = back_at(root, tmp_path / "c", "position=6")
    assert recover(again).history_start == 6
    assert [*recover(again).state.queues["q"].entries] == [2]


def test_what_cannot_be_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = root_of(tmp_path)
    back_up(root.path, tmp_path / "full")
    for to, at, said in (
        ("b", "position=8", "position 8 is in the future: the last record is 7"),
        ("b", "3000-01-01", "is in the future"),
        ("b", "yesterday", "is no time: give a time as"),
        ("b", "position=x", "is no position"),
        ("b", "position=0", "is before the first record"),
        ("full", "position=5", "has a backup: name a place for this one alone"),
    ):
        assert main(["backup", str(root.path), str(tmp_path / to), "--at", at]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "b").exists()
    assert restore(tmp_path / "full", tmp_path / "again").messages == 2


def test_a_root_in_a_bucket_is_backed_up_to_another_as_it_stood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(monkeypatch):
        store = DeltaMessageStore("s3://lake/root", StoreConfig(commit_interval_ms=0))
        done(store.create, Queue("q"))
        done(store.enqueue, store.message(HEADER, b"one"), "q")
        then = datetime.now(UTC)
        done(store.enqueue, store.message(HEADER, b"two"), "q")
        store.close()
        back_up("s3://lake/root", "s3://lake/then", at=then)
        assert restore("s3://lake/then", tmp_path / "then").messages == 1
        back_up("s3://lake/root", tmp_path / "now")
        assert restore(tmp_path / "now", tmp_path / "again").messages == 2
    assert [*recover(open_root(tmp_path / "then")).state.messages] == [1]

"""Who reads the tables of a store that was killed is told what they do not show yet."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sparkstore
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.cli.command_line import main
from sparkstore.errors import InvalidRequest, UnreplayedWarning
from sparkstore.log.unreplayed_records import unreplayed
from sparkstore.log.wal_format import WalFileReader, WalGroup
from sparkstore.replication.promote import promote
from sparkstore.tables.root import open_root
from tests.support.roots.logs import BY_HAND, image_of, opened, write
from tests.support.roots.replicas import replica_of
from tests.support.roots.wals import flip
from tests.support.stores.stores import done

ADVICE = "start the store"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was killed: Delta has its opening and a queue, the log two messages more."""
    folder = tmp_path_factory.mktemp("killed")
    store = DeltaMessageStore(folder / "root", BY_HAND)
    done(store.create, Queue("q"))
    done(store.flush)
    for _ in range(2):
        done(store.enqueue, store.message(MessageHeader(), b"body"), "q")
    image = image_of(folder / "root", folder / "image")
    store.close()
    return image


def test_a_program_that_asks_is_warned_where_it_asks(killed: Path) -> None:
    with pytest.warns(UnreplayedWarning, match="3 acknowledged records .*: start the st") as warned:
        table = sparkstore.query(killed, "SELECT depth FROM queues")
    assert table.to_pylist() == [{"depth": 0}]
    assert [each.filename for each in warned] == [__file__]


def told(captured: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], str]:
    """What a machine is told, and a person."""
    said = captured.readouterr()
    return [json.loads(line) for line in said.out.splitlines()], said.err


@pytest.mark.parametrize(
    "command", [["queues"], ["browse"], ["queues", "--holders"]], ids=lambda words: words[-1]
)
def test_what_the_tables_do_not_show_is_told_beside_the_answer(
    killed: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    words = [*command, "--json", str(killed), *(["q"] if command == ["browse"] else [])]
    assert main(words) == 0
    rows, said = told(capsys)
    found = rows[-1]["unreplayed"]
    assert found["records"] == 1 + found["last_position"] - found["first_position"] >= 2
    assert ADVICE in found["reason"]
    assert all("unreplayed" not in row for row in rows[:-1])
    assert said.count("\n") == 1
    assert said.startswith(f"sparkstore: {found['records']} acknowledged records")
    assert ADVICE in said


def test_verify_breaks_nothing_for_it_and_tells_it(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--json", str(killed)]) == 0
    findings, said = told(capsys)
    (found,) = (each for each in findings if each["name"] == "log_can_be_replayed")
    assert found["holds"]
    assert ADVICE in found["evidence"]
    assert ADVICE in said


@pytest.fixture
def image(killed: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return image_of(killed, tmp_path / "image")


def groups_in(image: Path) -> list[WalGroup]:
    reader_of = partial(WalFileReader, root_id=bytes.fromhex(open_root(image).identity.root_id))
    readers = [reader_of(path, epoch=1) for path in sorted((image / "wal").glob("*.wal"))]
    found = [group for reader in readers for group in reader.groups()]
    for reader in readers:
        reader.close()
    return found


def test_a_log_that_a_start_would_refuse_is_broken(
    image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, damaged, _last = groups_in(image)
    flip(damaged.path, damaged.offset + 40)
    assert main(["verify", "--json", str(image)]) == 1
    findings, _ = told(capsys)
    (broken,) = (each for each in findings if not each["holds"])
    assert broken["name"] == "log_can_be_replayed"
    assert "is damaged at byte" in broken["evidence"]
    assert main(["queues", "--json", str(image)]) == 0
    rows, said = told(capsys)
    assert rows[-1]["unreplayed"]["records"] is None
    assert "is damaged at byte" in said
    with pytest.warns(UnreplayedWarning, match="acknowledged is not known: .* is damaged at byte"):
        sparkstore.query(image, "SELECT depth FROM queues")


def test_a_torn_end_is_told_by_the_start_that_cuts_it_and_by_nobody_who_only_looks(
    image: Path, caplog: pytest.LogCaptureFixture
) -> None:
    *_, last = groups_in(image)
    before = unreplayed(open_root(image))
    flip(last.path, last.offset + 40)
    after = unreplayed(open_root(image))
    assert before is not None
    assert after is not None
    assert after.last_position < before.last_position
    assert caplog.text == ""
    with opened(image):
        assert f"cut a torn group at byte {last.offset}" in caplog.text


def test_nothing_is_told_of_a_store_that_runs_nor_of_one_that_was_started_again(
    image: Path,
) -> None:
    root = open_root(image)
    with opened(image, BY_HAND) as log:
        write(log, 1, 2)
        assert unreplayed(root) is None
    assert unreplayed(root) is None


def test_of_a_log_that_is_elsewhere_it_is_told_that_nobody_can_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    with opened(tmp_path / "root", replace(BY_HAND, wal_dir=str(elsewhere))) as log:
        write(log, 1, 2)
        image = image_of(tmp_path / "root", tmp_path / "image")
        aside = image_of(elsewhere, tmp_path / "aside")
    shutil.rmtree(elsewhere)
    assert main(["verify", str(image)]) == 0
    assert main(["queues", str(image)]) == 0
    assert f"{elsewhere}, which is not here" in capsys.readouterr().err
    aside.rename(elsewhere)
    found = unreplayed(open_root(image))
    assert found is not None
    assert found.records == 2


def test_a_replica_is_not_promoted_over_what_its_killed_primary_has_acknowledged(
    image: Path, tmp_path: Path
) -> None:
    replica_of(open_root(image), tmp_path / "replica")
    with pytest.raises(InvalidRequest, match=ADVICE):
        promote(tmp_path / "replica", primary=image)
    promote(tmp_path / "replica", primary=image, accept_loss=True)
    found = unreplayed(open_root(image))
    assert "took over without them" in str(found)


def test_what_is_not_shown_of_who_holds_what_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(DeltaMessageStore(tmp_path / "root", BY_HAND)) as store:
        done(store.create, Queue("q"))
        for number in range(1, 4):
            done(store.enqueue, store.message(MessageHeader(), b"body"), "q")
            done(store.acquire, number, "q", "me")
    for limit, count in (("2", 2), ("3", 3), ("0", 3)):
        assert main(["queues", "--holders", "--json", "--limit", limit, f"{tmp_path}/root"]) == 0
        rows, said = told(capsys)
        assert len(rows) == count
        assert ("1 more messages are held than are shown" in said) == (count < 3)
    assert main(["queues", "--limit", "2", f"{tmp_path}/root"]) == 2

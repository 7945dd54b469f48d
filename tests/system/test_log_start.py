"""A start, cut anywhere; who is let in, who is not (ARCHITECTURE: A start). Real files, Delta."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkstore.errors import CorruptData, Fenced, InvalidRequest, Locked, Unavailable
from sparkstore.log import start
from sparkstore.log.journal import Journal
from sparkstore.log.start import open_log
from sparkstore.log.wal import Wal
from sparkstore.tables import root as root_module
from sparkstore.tables.root import open_root
from sparkstore.tables.schema import SCHEMA_VERSION
from tests.support.checkout import CHECKOUT
from tests.support.roots.logs import (
    BY_DELTA,
    BY_HAND,
    CONFIG,
    append,
    epochs_in,
    error_of,
    facts_in,
    flush,
    image_of,
    opened,
    write,
)

pytestmark = pytest.mark.system


class Cut(Exception):
    """The process ends here."""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A root whose process was killed: facts 1 to 3 in Delta, 4 to 9 in the log alone."""
    with opened(tmp_path / "live", BY_HAND) as log:
        write(log, 1, 3)
        flush(log)
        write(log, 4, 9)
        return image_of(tmp_path / "live", tmp_path / "root")


def test_what_was_acknowledged_before_a_kill_is_there_once_after_the_next_start(
    killed: Path,
) -> None:
    assert facts_in(killed) == [1, 2, 3]
    with opened(killed) as log:
        write(log, 10, 12)
    assert facts_in(killed) == [*range(1, 13)]
    assert epochs_in(killed) == [1, 2]


def cut_before(step: str) -> Callable[..., Any]:
    def cut(*_args: Any, **_named: Any) -> Any:
        raise Cut(step)

    return cut


def cut_after(real: Callable[..., Any]) -> Callable[..., Any]:
    def then_cut(*args: Any, **named: Any) -> Any:
        real(*args, **named)
        raise Cut

    return then_cut


STEPS = [
    (start, "_heal"),
    (start, "journal_tail"),
    (start, "read_wal"),
    (start, "set_aside"),
    (start, "_replay"),
    (start, "mark_durable"),
    (Journal, "begin_epoch"),
    (Journal, "append"),
    (start, "Wal"),
    (Wal, "prepare_spare"),
    (start, "recover"),
    (start, "Log"),
]


CUTS = [(*step, when) for step in STEPS for when in ("before", "after")][:-1]
"""After the last step the log is open."""


@pytest.mark.parametrize(("where", "name", "when"), CUTS, ids=[f"{c[2]} {c[1]}" for c in CUTS])
def test_a_start_cut_at_any_step_loses_nothing_and_brings_nothing_twice(
    killed: Path, where: Any, name: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(where, name)
    for times in (1, 2, 3):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, cut_before(name) if when == "before" else cut_after(real))
            with pytest.raises(Cut):
                open_log(killed, CONFIG)
        if times == 2:
            with opened(killed) as log:
                write(log, 10, 11)
    with opened(killed):
        pass
    assert facts_in(killed) == [*range(1, 12)]
    assert epochs_in(killed) == sorted(set(epochs_in(killed)))


@pytest.mark.parametrize("call", range(1, 5))
def test_a_start_cut_between_any_two_commits_loses_nothing(
    killed: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay is made to take several commits; `opened` is the last."""
    monkeypatch.setattr(start, "_REPLAY_BYTES", 1)
    real, calls = Journal.append, 0

    def counted(journal: Journal, commit: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Cut
        real(journal, commit)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", counted)
        with pytest.raises(Cut):
            open_log(killed, CONFIG)
    with opened(killed) as log:
        write(log, 10, 10)
    assert facts_in(killed) == [*range(1, 11)]
    assert epochs_in(killed) == [1, 2]


def test_a_second_opener_of_a_folder_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path / "root") as log:
        write(log, 1, 1)
        with pytest.raises(Locked, match="in use by another process"):
            open_log(tmp_path / "root", CONFIG)
        write(log, 2, 2)
    assert facts_in(tmp_path / "root") == [1, 2]


def test_a_start_that_failed_lets_go_of_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(start, "recover", cut_before("recover"))
        with pytest.raises(Cut):
            open_log(tmp_path / "root", CONFIG)
    with opened(tmp_path / "root") as log:
        write(log, 1, 1)


def test_a_root_of_a_newer_schema_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path / "root") as log:
        write(log, 1, 1)
    identity = tmp_path / "root" / "root.json"
    content = json.loads(identity.read_text()) | {"schema_version": SCHEMA_VERSION + 1}
    identity.write_text(json.dumps(content))
    before = open_files(tmp_path / "root")
    with pytest.raises(CorruptData, match="install a newer sparkstore"):
        open_log(tmp_path / "root", CONFIG)
    assert open_files(tmp_path / "root") == before


def open_files(root: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    }


def test_a_folder_with_something_else_in_it_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidRequest, match=r"thesis\.tex"):
        open_log(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_the_log_of_another_root_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "one", BY_HAND) as log:
        write(log, 1, 5)
        image_of(tmp_path / "one" / "wal", tmp_path / "wal")
    with opened(tmp_path / "two"):
        pass
    for file in (tmp_path / "two" / "wal").glob("*.wal"):
        file.unlink()
    (tmp_path / "wal" / "000000.wal").rename(tmp_path / "two" / "wal" / "000000.wal")
    with pytest.raises(CorruptData, match=r"000000\.wal belongs to root"):
        open_log(tmp_path / "two", CONFIG)


def test_a_log_that_is_newer_than_its_journal_is_refused(tmp_path: Path) -> None:
    """As after a restore of the tables alone from a backup."""
    with opened(tmp_path / "root"):
        pass
    backup = image_of(tmp_path / "root", tmp_path / "backup")
    with opened(tmp_path / "root", BY_HAND) as log:
        write(log, 1, 5)
        (backup / "wal").rmdir()
        image_of(tmp_path / "root" / "wal", backup / "wal")
    with pytest.raises(CorruptData, match="is of epoch 2, the journal knows none after 1"):
        open_log(backup, CONFIG)


def test_a_log_of_an_older_epoch_is_set_aside_listed_and_not_replayed(
    killed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restore of the log alone from a backup."""
    old = image_of(killed / "wal", tmp_path / "old wal")
    for file in (killed / "wal").glob("*.wal"):
        file.unlink()
    with opened(killed) as log:
        write(log, 20, 22)
    for file in (killed / "wal").glob("*.wal"):
        file.unlink()
    for file in old.glob("*.wal"):
        file.rename(killed / "wal" / file.name)
    with caplog.at_level(logging.WARNING), opened(killed) as log:
        write(log, 23, 23)
    assert facts_in(killed) == [1, 2, 3, 20, 21, 22, 23]
    assert "set aside" in caplog.text
    assert [*(killed / "wal" / "set-aside").iterdir()]


def test_a_damaged_log_stops_the_start_with_file_and_byte(killed: Path) -> None:
    (path,) = [p for p in (killed / "wal").glob("*.wal") if p.read_bytes()[512:516] == b"GRP1"]
    content = bytearray(path.read_bytes())
    content[512 * 6 + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptData, match=rf"{path.name} is damaged at byte {512 * 6}"):
        open_log(killed, CONFIG)


@pytest.mark.parametrize("config", [replace(CONFIG, ack="delta")])
def test_ack_delta_is_refused_on_a_folder(tmp_path: Path, config: Any) -> None:
    with pytest.raises(InvalidRequest, match="adds nothing to a local root"):
        open_log(tmp_path / "root", config)


def test_ack_wal_on_a_shared_root_needs_a_local_folder_and_says_what_it_risks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"file://{tmp_path}/root"
    with pytest.raises(InvalidRequest, match="needs wal_dir"):
        open_log(uri, replace(CONFIG, ack="wal"))
    with opened(uri, replace(CONFIG, ack="wal", wal_dir=str(tmp_path / "wal"))) as log:
        write(log, 1, 1)
    assert "losing the disk" in caplog.text
    assert facts_in(tmp_path / "root") == [1]


def test_a_disk_that_is_full_at_the_start_is_said_as_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Wal, "prepare_spare", full)
        with pytest.raises(Unavailable, match="No space left"):
            open_log(tmp_path / "root", CONFIG)
    with opened(tmp_path / "root") as log:
        write(log, 1, 1)


# -- two writers of one shared root ----------------------------------------------------------------


def test_a_writer_whose_root_was_taken_over_never_acknowledges_again(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/root"
    old = open_log(uri, BY_DELTA).log
    write(old, 1, 5)
    with opened(uri, BY_DELTA) as new:
        write(new, 100, 101)
        assert isinstance(error_of(append(old, 6)), Fenced)
        for number in (7, 8):
            with pytest.raises(Fenced, match="is owned by writer"):
                append(old, number)
        write(new, 102, 102)
        old.close()
    assert facts_in(tmp_path / "root") == [1, 2, 3, 4, 5, 100, 101, 102]
    assert epochs_in(tmp_path / "root") == [1, 2]


def test_records_in_flight_at_a_takeover_fail_and_each_completion_fires_once(
    tmp_path: Path,
) -> None:
    uri = f"file://{tmp_path}/root"
    old = open_log(uri, replace(BY_DELTA, commit_interval_ms=3_600_000)).log
    waiting = [append(old, number) for number in range(1, 4)]
    with opened(uri, BY_DELTA) as new:
        write(new, 100, 100)
        old.close()
    assert [type(error_of(completion)) for completion in waiting] == [Fenced] * 3
    assert facts_in(tmp_path / "root") == [100]


def test_two_shared_roots_or_openers_cannot_write_to_one_log_folder(tmp_path: Path) -> None:
    config = replace(CONFIG, ack="wal", wal_dir=str(tmp_path / "wal"))
    with opened(f"file://{tmp_path}/one", config) as log:
        write(log, 1, 1)
        for other in ("one", "two"):
            with pytest.raises(Locked, match="wal is in use"):
                open_log(f"file://{tmp_path}/{other}", config)
        write(log, 2, 2)
    assert facts_in(tmp_path / "one") == [1, 2]


OPENER = """
import sys
from sparkstore.errors import Fenced
from tests.support.roots.logs import BY_DELTA, append, error_of, open_log

print("ready", flush=True)
for line in sys.stdin:
    told = []
    try:
        log = open_log(sys.argv[1], BY_DELTA).log
    except Fenced:
        print("fenced", flush=True)
        continue
    for number in range(int(line), int(line) + 5):
        try:
            error = error_of(append(log, number))
        except Fenced as fenced:
            error = fenced
        told.append(type(error).__name__.lower() if error else str(number))
    log.close()
    print(*told, flush=True)
"""
ROUNDS = 12


@pytest.mark.slow
def test_of_two_openers_started_together_one_serves_and_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    uri, told, losers = f"file://{tmp_path}/root", list[int](), 0
    openers = [start_opener(uri) for _ in range(2)]
    assert [answer(opener) for opener in openers] == ["ready", "ready"]
    for number in range(ROUNDS):
        for which, opener in enumerate(openers):
            tell(opener, 1000 * number + 100 * which)
        lines = [answer(opener).split() for opener in openers]
        told += [int(word) for words in lines for word in words if word.isdigit()]
        strange = {word for words in lines for word in words if not word.isdigit()} - {"fenced"}
        assert not strange
        # The last to open serves to the end: nobody is left to fence it.
        assert any(len(words) == 5 and "fenced" not in words for words in lines), lines
        losers += sum("fenced" in words for words in lines)
    for opener in openers:
        _, errors = opener.communicate(timeout=60)
        assert opener.returncode == 0, errors
    found = facts_in(tmp_path / "root")
    assert set(told) <= set(found)
    assert len(found) == len(set(found))
    epochs = epochs_in(tmp_path / "root")
    assert epochs == [*range(1, len(epochs) + 1)]
    assert losers > 0


def start_opener(uri: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPENER, uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )


def tell(opener: subprocess.Popen[str], number: int) -> None:
    assert opener.stdin is not None
    opener.stdin.write(f"{number}\n")
    opener.stdin.flush()


def answer(opener: subprocess.Popen[str]) -> str:
    assert opener.stdout is not None
    assert opener.stderr is not None
    line = opener.stdout.readline()
    assert line, opener.stderr.read()
    return line.strip()


def test_an_opener_that_races_a_serving_writer_never_takes_its_last_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"file://{tmp_path}/root"
    tail = start.journal_tail
    with opened(uri, BY_DELTA) as serving:
        write(serving, 1, 2)

        def slow_tail(root: Any) -> Any:
            found = tail(root)
            write(serving, 3, 4)
            return found

        monkeypatch.setattr(start, "journal_tail", slow_tail)
        with pytest.raises(Fenced):
            open_log(uri, BY_DELTA)
        write(serving, 5, 5)
    assert facts_in(open_root(uri).path) == [1, 2, 3, 4, 5]


def test_a_root_that_another_opener_created_while_this_one_looked_is_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = root_module._check_leftovers
    (tmp_path / "root").mkdir()

    def created_while_looking(path: Path) -> None:
        monkeypatch.setattr(root_module, "_check_leftovers", check)
        with opened(path) as log:
            write(log, 1, 1)
        check(path)

    monkeypatch.setattr(root_module, "_check_leftovers", created_while_looking)
    with opened(tmp_path / "root") as log:
        write(log, 2, 2)
    assert facts_in(tmp_path / "root") == [1, 2]

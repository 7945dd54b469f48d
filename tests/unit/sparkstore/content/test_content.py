"""Reading content back by message id."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkstore.content import files, index
from sparkstore.content import reader as reader_module
from sparkstore.content.cache import Content
from sparkstore.content.reader import ContentReader
from sparkstore.content.rows import Rows
from sparkstore.content.scratch import Scratch
from sparkstore.core.records import (
    MessageHeader,
    content_staged,
    message_dequeued,
    message_enqueued,
    opened,
)
from sparkstore.errors import CorruptData, InvalidRequest, Unavailable
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.histories.strategies import Layers, Row, build_history
from tests.support.roots.roots import append_journal, build_root, rows_table

HISTORY = build_history([(step % 20, step, 3 * step) for step in range(60)])
END = HISTORY.last_position


def expected_content() -> dict[int, tuple[MessageHeader, bytes]]:
    """Every message that was ever enqueued, assembled the slow way."""
    pieces: dict[int, bytes] = {}
    found: dict[int, tuple[MessageHeader, bytes]] = {}
    for _, _, record in HISTORY.rows:
        if record.message_id is not None and record.body_offset is not None:
            pieces[record.message_id] = pieces.get(record.message_id, b"") + (record.body or b"")
        if record.message is not None and record.message.protocol is not None:
            assert record.message_id is not None
            body = pieces.get(record.message_id, b"") if record.body is None else record.body
            found[record.message_id] = (record.message, body)
    return found


def body(message_id: int, size: int = 100) -> bytes:
    return message_id.to_bytes(4, "big") * (size // 4)


def bring(position: int, message_id: int, epoch: int = 1, size: int = 100) -> Row:
    header = MessageHeader("raw", b"h", header_bytes=1, body_bytes=size)
    return Row(
        position, epoch, message_enqueued(0, "q", message_id, header, body(message_id, size))
    )


def root_with(path: Path, *commits: list[Row]) -> Root:
    root = open_or_create_root(path)
    for number, rows in enumerate(commits):
        append_journal(root, rows, 0, number)
    return root


def rows_decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each batch that is decoded from now on."""
    batches: list[int] = []

    class Counting(Rows):
        def __init__(self, batch: pa.RecordBatch, *, is_part: bool = False) -> None:
            if not is_part:
                batches.append(batch.num_rows)
            super().__init__(batch, is_part=is_part)

    monkeypatch.setattr(files, "Rows", Counting)
    return batches


@pytest.fixture(params=[None, 0, 60_000, 1 << 24], ids=["none", "empty", "small", "ample"])
def scratch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scratch | None]:
    """What is kept on disk of decoded content: nothing, a part of it, or all."""
    if request.param is None:
        yield None
        return
    made = Scratch(tmp_path, request.param, lambda _byte_count: True)
    yield made
    made.close()


@pytest.mark.parametrize(("folded", "appended", "start"), [(0, 0, 1), (0, 20, 1), (30, 40, 29)])
def test_a_message_is_found_in_whichever_layer_it_is(
    tmp_path: Path, folded: int, appended: int, start: int
) -> None:
    root = build_root(tmp_path / "root", Layers(HISTORY, folded, appended, start, 7))
    reader = ContentReader(root)
    assert {id_: reader.read(id_) for id_ in expected_content()} == expected_content()


def test_the_smallest_cache_still_gives_every_message(tmp_path: Path) -> None:
    root = build_root(tmp_path / "root", Layers(HISTORY, 0, END, END + 1, 1_000))
    reader = ContentReader(root, cache_bytes=1)
    for message_id, content in reversed(expected_content().items()):
        assert reader.read(message_id) == content


def test_messages_consumed_in_order_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [bring(id_, id_, size=4_000) for id_ in range(1, 201)]
    batches = rows_decoded(monkeypatch)
    reader = ContentReader(root_with(tmp_path / "root", rows), cache_bytes=400_000)
    for row in rows:
        message_id = row.position
        assert reader.read(message_id)[1] == body(message_id, 4_000)
    assert sum(batches) == len(rows)
    assert max(batches) < len(rows)


def test_consumers_at_several_places_of_a_file_decode_it_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read in turn; whose place was moved on begins anew, and has it to itself then."""
    places, each = (1, 401, 801), 200
    rows = [bring(id_, id_) for id_ in range(1, 1_001)]
    root = root_with(tmp_path / "root", rows)
    monkeypatch.setattr(reader_module, "_BATCH_ROWS", 10)
    batches = rows_decoded(monkeypatch)
    reader = ContentReader(root, cache_bytes=8_000)
    for n in range(each):
        for place in places:
            assert reader.read(place + n)[1] == body(place + n)
    assert sum(batches) <= sum(places) + each * len(places)


def test_one_queue_after_the_other_decodes_what_lies_mixed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of forty queues came in turn, and lie so; no batch has two of one queue."""
    rows, queues = [bring(id_, id_) for id_ in range(1, 2_001)], 40
    root = root_with(tmp_path / "root", *(rows[at : at + 250] for at in range(0, 2_000, 250)))
    monkeypatch.setattr(reader_module, "_BATCH_ROWS", 32)
    batches = rows_decoded(monkeypatch)
    reader = ContentReader(root, 8_000, Scratch(tmp_path, 1 << 24, lambda _byte_count: True))
    for first in range(1, queues + 1):
        for message_id in range(first, 2_001, queues):
            assert reader.read(message_id)[1] == body(message_id)
    assert sum(batches) <= 3 * len(rows)  # without it 35 times as many
    reader.close()


def test_what_a_disk_lost_of_decoded_content_is_decoded_again(tmp_path: Path) -> None:
    """Nobody syncs it, so a disk may give back nothing, or something else, without an error."""
    rows = [bring(id_, id_) for id_ in range(1, 501)]
    scratch = Scratch(tmp_path, 1 << 24, lambda _byte_count: True)
    reader = ContentReader(root_with(tmp_path / "root", rows), 4_000, scratch)
    for message_id in (500, 1, 250):
        assert reader.read(message_id)[1] == body(message_id)
    (file,) = scratch._halves
    kept = os.fstat(file.fileno()).st_size
    assert kept > 50_000
    os.pwrite(file.fileno(), bytes(kept), 0)
    for message_id in range(499, 0, -25):
        assert reader.read(message_id)[1] == body(message_id)
    reader.close()


def test_messages_that_are_read_ahead_are_at_hand_as_far_as_there_is_room(tmp_path: Path) -> None:
    rows = [bring(id_, id_) for id_ in range(1, 101)]
    rows.append(Row(101, 1, message_enqueued(0, "q", 101, MessageHeader("raw", body_bytes=9), b"")))
    reader = ContentReader(root_with(tmp_path / "root", rows), 100_000)
    wanted = [90, 101, 3, 1_000, 50]  # one is damaged, and one is nowhere
    reader.read_ahead(wanted)
    assert reader.at_hand(wanted) == {id_: reader.read(id_) for id_ in (3, 50, 90)}
    small = ContentReader(reader._versions._root, 4_000)
    small.read_ahead([*range(100, 0, -1)])
    assert 1 <= len(small.at_hand(range(1, 101))) <= 4


def test_rows_in_any_order_are_those_that_were_asked_for(
    tmp_path: Path, scratch: Scratch | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MOST_BYTES", 10_000)  # the rows of one file
    dice, rows = random.Random(5), [bring(id_, id_) for id_ in range(1, 501)]
    root = root_with(tmp_path / "root", rows[:250], rows[250:])
    reader = ContentReader(root, 4_000, scratch)
    for _ in range(1_000):
        message_id = dice.randint(1, 500)
        assert reader.read(message_id)[1] == body(message_id)


def test_neighbours_that_queue_after_queue_asks_for_bring_nothing_ahead(tmp_path: Path) -> None:
    """Their consumers come one after the other, and each goes on to another file."""
    first, second = ([bring(id_, id_) for id_ in ids] for ids in (range(1, 51), range(51, 101)))
    reader = ContentReader(root_with(tmp_path / "root", first, second))
    for message_id in (6, 56, 7, 57, 8, 58):
        reader.read(message_id)
    assert reader.at_hand([10, 60]) == {}
    reader.read(59)
    assert [*reader.at_hand([10, 60])] == [60], "what is asked for in its turn is"


def test_what_was_read_ahead_is_at_hand_also_while_somebody_reads(tmp_path: Path) -> None:
    root = root_with(tmp_path / "r", [bring(position, position) for position in range(1, 20)])
    reader = ContentReader(root)
    assert reader.at_hand([2]) == {}
    reader.read(1)
    found: list[dict[int, Content]] = []
    with reader._guard:  # as while a file is read, which may take long
        asker = Thread(target=lambda: found.append(reader.at_hand([2, 99])), daemon=True)
        asker.start()
        asker.join(60)
    assert found == [{2: reader.read(2)}]


def test_a_message_nobody_has_is_refused(tmp_path: Path) -> None:
    root = root_with(tmp_path / "root", [bring(1, 5), Row(2, 1, message_dequeued(0, "q", 9, None))])
    reader = ContentReader(root)
    for message_id in (1, 6, 9):
        with pytest.raises(InvalidRequest, match=f"message {message_id} is not in the store"):
            reader.read(message_id)


def test_a_message_that_came_after_the_reader_is_found(tmp_path: Path) -> None:
    root = root_with(tmp_path / "root", [bring(1, 1)])
    reader = ContentReader(root)
    assert reader.read(1)[1] == body(1)
    append_journal(root, [bring(2, 2)], 0, 2)
    assert reader.read(2)[1] == body(2)


def test_a_file_that_a_merge_and_a_vacuum_took_away_is_looked_up_again(
    tmp_path: Path, scratch: Scratch | None
) -> None:
    commits = [[bring(id_, id_)] for id_ in range(1, 6)]
    root = root_with(tmp_path / "root", *commits)
    reader = ContentReader(root, 1, scratch)
    assert reader.read(1)[1] == body(1)
    journal = DeltaTable(str(root.journal))
    journal.optimize.compact()
    journal.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert [reader.read(id_)[1] for id_ in range(1, 6)] == [body(id_) for id_ in range(1, 6)]


def test_a_trim_moves_messages_to_history_under_the_reader(
    tmp_path: Path, scratch: Scratch | None
) -> None:
    rows = [bring(id_, id_) for id_ in range(1, 6)]
    root = root_with(tmp_path / "root", rows)
    reader = ContentReader(root, 1, scratch)
    assert reader.read(1)[1] == body(1)
    write_deltalake(str(root.history), rows_table(rows, 0), mode="append")
    journal = DeltaTable(str(root.journal))
    journal.delete("segment = 0")
    journal.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert [reader.read(id_)[1] for id_ in range(1, 6)] == [body(id_) for id_ in range(1, 6)]


def test_a_fenced_writers_message_is_never_taken_for_the_one_that_has_its_id(
    tmp_path: Path,
) -> None:
    ghost = message_enqueued(0, "q", 7, MessageHeader("raw", body_bytes=5), b"ghost")
    root = root_with(
        tmp_path / "root",
        [Row(1, 1, opened(0, "a"))],
        [Row(2, 1, ghost)],
        [Row(2, 2, opened(0, "b")), bring(3, 7, epoch=2)],
    )
    assert ContentReader(root).read(7)[1] == body(7)


def test_what_is_read_ahead_holds_nothing_of_a_fenced_writer(tmp_path: Path) -> None:
    """A merge brings rows that count and rows that do not into one file, and one batch."""
    ghost = message_enqueued(0, "q", 7, MessageHeader("raw", body_bytes=5), b"ghost")
    root = root_with(
        tmp_path / "root",
        [Row(1, 1, opened(0, "a"))],
        [bring(2, 6), Row(3, 1, ghost)],
        [Row(3, 2, opened(0, "b")), bring(4, 7, epoch=2)],
    )
    reader = ContentReader(root)
    assert reader.read(6)[1] == body(6)
    assert reader.at_hand([7]) == {}
    assert reader.read(7)[1] == body(7)
    headers = ContentReader(root).headers([6, 7])
    assert headers[7].body_bytes == 100


def staged(sizes: list[int], body_bytes: int) -> list[Row]:
    """A message in pieces of these sizes that says it has `body_bytes`; other rows in between."""
    rows, offset = [bring(1, 1)], 0
    for size in sizes:
        piece = content_staged(0, 2, offset, bytes([offset % 251]) * size)
        rows.append(Row(len(rows) + 1, 1, piece))
        offset += size
    header = MessageHeader("raw", body_bytes=body_bytes)
    return [*rows, Row(len(rows) + 1, 1, message_enqueued(0, "q", 2, header, None))]


def test_pieces_in_several_commits_make_one_message(tmp_path: Path) -> None:
    rows = staged([300, 300, 1], 601)
    root = root_with(tmp_path / "root", *([row] for row in rows))
    header, content = ContentReader(root, cache_bytes=1).read(2)
    assert header.body_bytes == 601
    assert content == bytes([0]) * 300 + bytes([300 % 251]) * 300 + bytes([600 % 251])


@pytest.mark.parametrize("again", [[1], [1, 2, 3], [3, 1]])
def test_pieces_that_were_sent_twice_count_once(tmp_path: Path, again: list[int]) -> None:
    rows = staged([300, 300, 1], 601)
    end = rows.pop()
    rows += [Row(len(rows) + 1 + place, 1, rows[at].record) for place, at in enumerate(again)]
    rows.append(end._replace(position=len(rows) + 1))
    root = root_with(tmp_path / "root", rows[:3], rows[3:])
    _, content = ContentReader(root, cache_bytes=1).read(2)
    assert content == bytes([0]) * 300 + bytes([300 % 251]) * 300 + bytes([600 % 251])


@pytest.mark.parametrize("sizes", [[601], [300, 300, 1]])
def test_a_message_whose_first_piece_has_its_header_is_there_before_it_is_enqueued(
    tmp_path: Path, sizes: list[int]
) -> None:
    rows = staged(sizes, 601)
    header = MessageHeader("raw", b"h", header_bytes=1, body_bytes=601)
    end = rows.pop()
    rows[1] = rows[1]._replace(record=rows[1].record._replace(message=header))
    root = root_with(tmp_path / "root", rows[:2])
    reader = ContentReader(root)
    if len(sizes) > 1:
        with pytest.raises(InvalidRequest, match="of 601 bytes came 300 so far"):
            reader.read(2)
        append_journal(root, rows[2:], 0, 7)
    assert reader.read(2) == (header, b"".join(row.record.body or b"" for row in rows[1:]))
    append_journal(root, [end], 0, 8)
    enqueued = end.record.message
    assert ContentReader(root).read(2)[0] == enqueued, "the header that it was enqueued with"


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_message_that_lacks_a_piece_is_corrupt(tmp_path: Path, lost: int) -> None:
    rows = staged([300, 300, 1], 601)
    del rows[lost]
    with pytest.raises(CorruptData, match="message 2: its content has 601 bytes, but what follows"):
        ContentReader(root_with(tmp_path / "root", rows)).read(2)


def test_staged_content_that_was_never_enqueued_is_no_message(tmp_path: Path) -> None:
    rows = staged([300], 300)[:-1]
    with pytest.raises(InvalidRequest):
        ContentReader(root_with(tmp_path / "root", rows)).read(2)


def test_content_of_another_length_than_its_header_says_is_corrupt(tmp_path: Path) -> None:
    header = MessageHeader("raw", body_bytes=9)
    rows = [Row(1, 1, message_enqueued(0, "q", 2, header, b"short")), bring(2, 3)]
    reader = ContentReader(root_with(tmp_path / "root", rows))
    with pytest.raises(CorruptData, match="message 2"):
        reader.read(2)
    assert reader.read(3)[1] == body(3)


def test_a_file_that_is_gone_for_good_is_corrupt_not_a_stack_trace(tmp_path: Path) -> None:
    root = root_with(tmp_path / "root", [bring(1, 1)])
    reader = ContentReader(root, cache_bytes=1)
    for path in root.journal.glob("segment=*/*.parquet"):
        path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(CorruptData, match="message 1 cannot be read"):
        reader.read(1)


def test_of_a_damaged_file_a_message_is_right_or_refused_and_never_another_one(
    tmp_path: Path, scratch: Scratch | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be decoded has no place: the batch before it is not taken for it."""
    monkeypatch.setattr(reader_module, "_BATCH_ROWS", 10)
    ids, dice = range(1, 1_201), random.Random(3)
    bodies = {id_: dice.randbytes(4_000) for id_ in ids}
    rows = [bring(id_, id_, size=4_000) for id_ in ids]
    rows = [row._replace(record=row.record._replace(body=bodies[row.position])) for row in rows]
    root = root_with(tmp_path / "root", rows)
    file = max((root.journal).rglob("*.parquet"), key=lambda path: path.stat().st_size)
    with file.open("r+b") as opened_file:
        opened_file.seek(file.stat().st_size * 3 // 4)
        opened_file.write(b"\xff" * 100_000)
    reader, refused = ContentReader(root, 100_000, scratch), 0
    for id_ in ids[::25]:
        try:
            assert reader.read(id_)[1] == bodies[id_]
        except (CorruptData, Unavailable):
            refused += 1
    assert 0 < refused < len(ids[::25])


def test_storage_that_does_not_answer_is_unavailable_until_it_does(tmp_path: Path) -> None:
    root = root_with(tmp_path / "root", [bring(1, 1)])
    reader = ContentReader(root, cache_bytes=1)
    (path,) = root.journal.glob("segment=*/*.parquet")
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    with pytest.raises(Unavailable, match="message 1 cannot be read"):
        reader.read(1)
    path.rmdir()
    path.write_bytes(content)
    assert reader.read(1)[1] == body(1)


def test_a_file_that_the_log_lists_and_that_is_not_there_is_corrupt(tmp_path: Path) -> None:
    root = root_with(tmp_path / "root", [bring(1, 1)])
    for path in root.journal.glob("segment=*/*.parquet"):
        path.unlink()
    with pytest.raises(CorruptData, match="message 1 cannot be read"):
        ContentReader(root).read(1)


def test_a_table_whose_log_cannot_be_read_is_unavailable_until_it_can(tmp_path: Path) -> None:
    root = root_with(tmp_path / "root", [bring(1, 1)])
    log, hidden = root.journal / "_delta_log", root.journal / "_hidden"
    log.rename(hidden)
    reader = ContentReader(root)
    with pytest.raises(Unavailable, match="message 1 cannot be read"):
        reader.read(1)
    hidden.rename(log)
    assert reader.read(1)[1] == body(1)


def test_many_threads_read_the_right_messages(tmp_path: Path, scratch: Scratch | None) -> None:
    commits = [[bring(id_, id_) for id_ in range(1 + 50 * n, 51 + 50 * n)] for n in range(4)]
    reader = ContentReader(root_with(tmp_path / "root", *commits), 20_000, scratch)
    wrong: list[int] = []

    def read_all(step: int) -> None:
        for n in range(200):
            message_id = 1 + (n * step) % 200
            if reader.read(message_id)[1] != body(message_id):
                wrong.append(message_id)

    threads = [Thread(target=read_all, args=(step,)) for step in (1, 7, 199)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

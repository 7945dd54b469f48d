"""A root whose log has records that no table can take, as older versions acknowledged them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker_shim.completion import Completion
from sparkstore.core import codec
from sparkstore.core.fold import State
from sparkstore.core.records import (
    Kind,
    MessageHeader,
    Record,
    ids_reserved,
    message_acquired,
    message_enqueued,
    queue_created,
)
from sparkstore.errors import CorruptData
from sparkstore.log.start import open_log
from sparkstore.log.wal_replay import UnfitRecords
from sparkstore.tables import rows
from sparkstore.tables.root import open_root
from tests.support.roots.logs import BY_HAND, TIMEOUT_S, opened

HEADER = MessageHeader(header=b"", body_bytes=4)
WRONG: Any = 5
START = [ids_reserved(1, 100), queue_created(1, "q", "{}"), queue_created(1, "other", "{}")]


def put(message_id: int, queue: str = "q", header: MessageHeader = HEADER) -> Record:
    body = None if header.protocol is None else b"body"
    return message_enqueued(1, queue, message_id, header, body)


def acknowledged(path: Path, records: list[Record]) -> None:
    """A root that took these records, `opened` before them, and ended when it committed them."""
    with opened(path, BY_HAND) as log:
        completion = Completion()
        log.append(records, completion.finish)
        completion.complete(TIMEOUT_S)


def reopened(path: Path) -> State:
    it = open_log(path, BY_HAND)
    it.log.close()
    return it.state


def ids(state: State, queue: str) -> list[int]:
    return list(state.queues[queue].entries)


UNFIT = [
    put(2, header=HEADER._replace(subject=WRONG)),
    put(2, header=HEADER._replace(priority="high")),  # type: ignore[arg-type]
    put(2, header=HEADER._replace(durable="yes")),  # type: ignore[arg-type]
    put(2, header=HEADER._replace(properties=(("a", WRONG),))),
    put(2, queue=WRONG),
    message_acquired(1, "q", 1, WRONG),
]


@pytest.mark.parametrize("unfit", UNFIT, ids=str)
def test_what_no_table_can_take_is_set_aside_with_a_line_and_all_else_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, unfit: Record
) -> None:
    acknowledged(tmp_path / "root", [*START, put(1), unfit, put(3)])
    caplog.clear()
    state = reopened(tmp_path / "root")
    assert ids(state, "q") == [1, 3]
    assert state.queues["q"].entries[1].acquired_by is None
    (kept,) = (tmp_path / "root" / "set-aside" / "records").iterdir()
    assert [*codec.unpack_all(kept.read_bytes())] == [unfit]
    (line,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    said = f"position 6 ({unfit.kind.column}) is set aside in {kept}: "
    assert line.getMessage().startswith(said)
    assert len(line.getMessage()) > len(said)
    caplog.clear()
    assert ids(reopened(tmp_path / "root"), "q") == [1, 3]
    assert "set aside" not in caplog.text


def test_entries_of_a_message_whose_content_was_set_aside_go_with_it(tmp_path: Path) -> None:
    bad = HEADER._replace(subject=WRONG)
    again = put(2, "other", bad.known())
    acknowledged(tmp_path / "root", [*START, put(2, header=bad), again, put(3, "other")])
    state = reopened(tmp_path / "root")
    assert (ids(state, "q"), ids(state, "other")) == ([], [3])
    assert len([*(tmp_path / "root" / "set-aside" / "records").iterdir()]) == 2


def test_an_entry_that_is_set_aside_leaves_those_of_its_message_elsewhere(tmp_path: Path) -> None:
    again = put(2, WRONG, HEADER.known())
    acknowledged(tmp_path / "root", [*START, put(2), again, put(2, "other", HEADER.known())])
    state = reopened(tmp_path / "root")
    assert (ids(state, "q"), ids(state, "other")) == ([2], [2])


def test_the_request_of_what_is_set_aside_is_decided_if_it_can_be_told(tmp_path: Path) -> None:
    asked = put(2, header=HEADER._replace(subject=WRONG))._replace(member="m", request=7)
    nobody = asked._replace(member=WRONG)
    acknowledged(tmp_path / "root", [*START, asked, nobody])
    state = reopened(tmp_path / "root")
    assert {name: member.last_request for name, member in state.members.items()} == {"m": 7}


def test_messages_that_were_lost_are_known_in_what_is_replayed_later(tmp_path: Path) -> None:
    unfit, bad = UnfitRecords(tmp_path), HEADER._replace(subject=WRONG)
    unfit.table([put(2, header=bad)], 1, epoch=1, segment=0)
    table = unfit.table([put(2, "other", bad.known()), put(3)], 2, epoch=1, segment=0)
    (nothing, kept) = [record for _, _, record in rows.to_records(table)]
    assert (nothing.kind, nothing.queue) == (Kind.CONTENT, None)
    assert kept == put(3)


def test_a_kind_that_is_not_known_still_refuses_the_root(tmp_path: Path) -> None:
    unknown: Any = 99
    acknowledged(tmp_path / "root", [*START, put(1)._replace(kind=unknown)])
    with pytest.raises(CorruptData, match="unreadable record"):
        open_log(tmp_path / "root", BY_HAND)
    assert not (open_root(tmp_path / "root").path / "set-aside").exists()

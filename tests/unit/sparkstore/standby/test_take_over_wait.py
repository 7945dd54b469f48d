"""A standby whose primary is gone waits for the witness's lease, and for nothing else."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sparkstore.shipping.peer import Peer
from sparkstore.standby.stand_by import PeerAddress, StandBy
from sparkstore.tables.fencing import PRIMARY
from sparkstore.tables.root import open_root
from sparkstore.witness.folder import FolderPlace
from sparkstore.witness.holder import Holder, packed
from tests.support.roots.logs import TIMEOUT_S, until, write
from tests.support.roots.pairs import PAIR, TOKEN, port_of, serving, standing_by

pytestmark = pytest.mark.slow


class _Silent(PeerAddress):
    """A name server, or a machine, that is silent for as long as the test says."""

    asked, answers = threading.Event(), threading.Event()

    def connect(self) -> Peer:
        self.asked.set()
        self.answers.wait()
        return super().connect()


def in_step_with_nobody(folder: Path) -> Holder:
    """Leave a standby at `folder/b` whose primary is gone; what the witness says of the two."""
    with (
        serving(folder / "a") as (log, port),
        standing_by(folder / "b", port_of(port)) as standby,
    ):
        until(lambda: standby.is_live)
        write(log, 1, 3)
        root_id = open_root(folder / "b").identity.root_id
    return Holder("the primary", 0, "w", 0.1, in_step=root_id)


def test_a_primary_that_does_not_answer_holds_up_no_take_over(tmp_path: Path) -> None:
    holder = in_step_with_nobody(tmp_path)
    (tmp_path / "primary.json").write_text(json.dumps(asdict(holder)))
    address = _Silent("127.0.0.1", 1, "a token")
    cut_off = StandBy(tmp_path / "b", replace(PAIR, witness=str(tmp_path)), address)
    thread = threading.Thread(target=cut_off.run, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    assert open_root(tmp_path / "b").identity.role == PRIMARY
    _Silent.answers.set()


class _AnswerLost(FolderPlace):
    """A witness that takes an object, and whose answer is lost."""

    replaced = 0

    def replace_if_unchanged(self, content: bytes, tag: str) -> bool:
        assert super().replace_if_unchanged(content, tag)
        self.replaced += 1
        raise OSError("the answer was lost")


def test_a_take_over_whose_answer_is_lost_is_finished(tmp_path: Path) -> None:
    holder = in_step_with_nobody(tmp_path)
    place = _AnswerLost(tmp_path)
    assert place.put_if_absent(packed(holder))
    cut_off = StandBy(
        tmp_path / "b", replace(PAIR, witness=str(tmp_path)), PeerAddress("127.0.0.1", 1, TOKEN)
    )
    cut_off._witness = place
    thread = threading.Thread(target=cut_off.run, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    identity = open_root(tmp_path / "b").identity
    assert (identity.role, identity.generation, place.replaced) == (PRIMARY, 2, 1)
    cut_off.stop()


def test_a_standby_that_waits_for_an_answer_is_stopped_at_once(tmp_path: Path) -> None:
    address = _Silent("127.0.0.1", 1, "a token")
    _Silent.asked.clear()
    _Silent.answers.clear()
    waiting = StandBy(tmp_path / "b", PAIR, address)
    thread = threading.Thread(target=waiting.run, daemon=True)
    thread.start()
    assert _Silent.asked.wait(TIMEOUT_S)
    waiting.stop()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    _Silent.answers.set()

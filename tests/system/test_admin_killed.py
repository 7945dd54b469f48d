"""An administrator's command is killed by SIGKILL: its order is done whole, or not at all."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Exchange, ExchangeBindingKey
from sparkstore.config import StoreConfig
from sparkstore.control.offline import OfflineControl
from sparkstore.core.fold import State
from sparkstore.tables.root import open_root
from tests.support.stores.controls import Place
from tests.support.stores.stores import done

pytestmark = pytest.mark.system

KILLED = """
import os, signal, sys
from sparkstore.cli.administration import orders, queue_orders
from sparkstore.cli.command_line import main
from sparkstore.log import start

moment, *words = sys.argv[1:]
sync_write = start.sync_write

def die(*_what):
    os.kill(os.getpid(), signal.SIGKILL)

def write(descriptor, buffers, offset):
    if len(buffers) == 1:  # the header of a file; a group has three
        return sync_write(descriptor, buffers, offset)
    if moment == "half written":
        group = bytes(buffers[0]) + bytes(buffers[1])  # without the padding
        sync_write(descriptor, [group[: len(group) // 2]], offset)
    if moment == "written":
        sync_write(descriptor, buffers, offset)
    die()

if moment == "acknowledged":
    orders.show_row = queue_orders.show_row = die
else:
    start.sync_write = write
main(words)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with three messages and a binding, and another one."""
    place = Place(tmp_path_factory.mktemp("made") / "root", is_served=False)
    place.create("q")
    place.create("other")
    place.put("q", "other", count=3)
    place.close()
    with closing(DeltaMessageStore(place.path)) as store:
        done(store.create, Exchange("news", "topic"))
        done(store.bind, ExchangeBindingKey("news", "q", "sport.#"), {})
    return place.path


def state_of(root: Path) -> State:
    """What the next process finds, by a start as a store's: its log is replayed."""
    with closing(OfflineControl(open_root(root), StoreConfig())) as control:
        return control._machine.state


@pytest.mark.parametrize(
    ("moment", "is_done"),
    [("not written", False), ("half written", False), ("written", True), ("acknowledged", True)],
)
def test_an_order_is_there_whole_or_not_at_all_and_always_once_it_was_acknowledged(
    made: Path, tmp_path: Path, moment: str, *, is_done: bool
) -> None:
    root = Path(shutil.copytree(made, tmp_path / "root"))
    before = state_of(root)
    words = ["queue", "delete", str(root), "q", "--force"]
    ended = subprocess.run([sys.executable, "-c", KILLED, moment, *words], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    after = state_of(root)
    assert [*after.queues["other"].entries] == [*before.queues["other"].entries]
    assert ("q" in after.queues, bool(after.bindings)) == (not is_done, not is_done)
    if not is_done:
        assert [*after.queues["q"].entries.items()] == [*before.queues["q"].entries.items()]
    audit = root / "audit.log"
    acts = [json.loads(line)["act"] for line in audit.read_text().splitlines()]
    assert acts == (["delete-queue"] if moment == "acknowledged" else [])

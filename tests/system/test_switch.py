"""A planned switch leaves no message in doubt, and a machine that dies amid it loses none.

One pair for all tests; each leaves it in step. The books are the client's own.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from sparkstore.exit_codes import ExitCode
from tests.support.system.chromium import CHROMIUM, browser
from tests.support.system.ledger_sender import LedgerReceiver, LedgerSender
from tests.support.system.pair_machines import Pair

pytestmark = [pytest.mark.system, pytest.mark.slow]
_LONG_S = 60.0


class Drill:
    """A pair, a client that sends all the time, and what a receiver got at the end."""

    def __init__(self, folder: Path) -> None:
        self.pair = Pair(folder, options=("--http", "127.0.0.1:0"))
        self.pair.start_both()
        self.received = Counter[str]()

    def root(self, number: int) -> str:
        """The folder of a machine's root."""
        return str(self.pair.root(number))

    @contextmanager
    def sending(self) -> Iterator[LedgerSender]:
        """Send while the body runs, and receive all once the pair is in step again."""
        self.pair.primary_in_step()
        sender = LedgerSender(self.pair.ports)
        yield sender
        primary = self.pair.primary_in_step()
        sender.stop()
        self.received = LedgerReceiver(self.pair.ports[primary], sender.accepted).run()

    def wait_for_more(self, sender: LedgerSender) -> None:
        """Wait until more is accepted than now."""
        count = len(sender.accepted)
        self.pair.wait(lambda: len(sender.accepted) > count + 20)

    @contextmanager
    def amid_a_switch(self, primary: int) -> Iterator[list[int]]:
        """Run the body amid a switch that the standby, frozen, holds up; the command's code then.

        The standby thaws before the command is waited for, if the body has not killed it.
        """
        log = self.pair.folder / f"log{primary}"
        before, codes = log.read_text().count("switching to"), list[int]()
        words = ["failover", "switch", self.root(primary)]
        order = threading.Thread(target=lambda: codes.append(main(words)))
        self.pair.signal(1 - primary, signal.SIGSTOP)
        order.start()
        self.pair.wait(lambda: log.read_text().count("switching to") > before)
        yield codes
        self.pair.signal(1 - primary, signal.SIGCONT)
        order.join(_LONG_S)


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    drill = Drill(tmp_path_factory.mktemp("pair"))
    yield drill
    drill.pair.end()


def test_two_switches_in_a_row_leave_no_message_in_doubt(
    drill: Drill, capsys: pytest.CaptureFixture[str]
) -> None:
    outages_s = []
    with drill.sending() as sender:
        starts = [*drill.pair.starts]
        drill.pair.signal(
            1 - drill.pair.primary_in_step(), signal.SIGHUP
        )  # as a reload of its unit
        for _ in range(2):
            primary = drill.pair.primary_in_step()
            drill.wait_for_more(sender)
            began_s = time.monotonic()
            assert main(["failover", "switch", "--json", drill.root(primary)]) == ExitCode.DONE
            answer = json.loads(capsys.readouterr().out)
            assert answer["serves"].endswith(drill.root(1 - primary))
            drill.wait_for_more(sender)
            answered_at = [at for at in sender.answered_at if at > began_s - 1.0]
            outages_s.append(max(after - before for before, after in pairwise(answered_at)))
            drill.pair.primary_in_step()  # the one that handed over follows, in the same process
            assert main(["failover", "status", "--json", drill.root(1 - primary)]) == ExitCode.DONE
            row = json.loads(capsys.readouterr().out)
            assert row["switched_why"].startswith("ordered by local uid=")
        assert drill.pair.starts == starts
    assert drill.received == Counter(sender.accepted)
    print("seconds without an answer:", *(f"{one:.2f}" for one in outages_s))


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_console_shows_the_standby_and_the_last_switch(drill: Drill, tmp_path: Path) -> None:
    """And a chart of what was sent meanwhile is marked where the other machine took over."""
    primary = drill.pair.primary_in_step()
    urls = re.findall(r" http=(\S+)", (drill.pair.folder / f"log{primary}").read_text())
    with browser(tmp_path) as page:
        page.open(f"{urls[-1]}/#/overview")
        tiles = "[...document.querySelectorAll('.tiles a')].map((it) => it.innerText)"
        page.until(f"({tiles}).some((text) => text.startsWith('Last switch'))")
        texts = {name: rest for name, *rest in map(str.splitlines, page.evaluate(tiles))}
        assert texts["Standby"] == ["in step", "it has all that was confirmed"]
        assert re.search(
            r": ordered by local uid=\d+.*; served \d+\.\d s later$", texts["Last switch"][1]
        )
        page.evaluate("location.hash = '#/queue/booked'")
        page.until("document.querySelector('.chart .mark[data-what=\"failed over\"]')")
        assert page.troubles == []


def killed_amid_a_switch(drill: Drill, victim: Callable[[int], int]) -> None:
    """Kill one of the two, by the number of the primary: the other one serves, and has it all."""
    with drill.sending() as sender:
        primary = drill.pair.primary_in_step()
        killed = victim(primary)
        drill.wait_for_more(sender)
        with drill.amid_a_switch(primary) as codes:
            drill.pair.kill(killed)
        assert codes == [ExitCode.TRY_LATER]
        drill.wait_for_more(sender)
        assert drill.pair.holder()["where"].endswith(drill.root(1 - killed))
        drill.pair.start(killed)
    assert {*sender.accepted} <= {*drill.received}


def test_a_standby_that_is_killed_amid_a_switch_leaves_the_old_primary_serving(
    drill: Drill, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_amid_a_switch(drill, lambda primary: 1 - primary)
    capsys.readouterr()


def test_a_primary_that_is_killed_amid_a_switch_is_taken_over_from(
    drill: Drill, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_amid_a_switch(drill, lambda primary: primary)
    assert max(drill.received.values()) == 1
    capsys.readouterr()


def test_a_machine_that_is_told_to_stop_amid_a_switch_ends(
    drill: Drill, capsys: pytest.CaptureFixture[str]
) -> None:
    with drill.sending() as sender:
        primary = drill.pair.primary_in_step()
        drill.wait_for_more(sender)
        process = drill.pair.processes[primary]
        assert process is not None
        with drill.amid_a_switch(primary):
            drill.pair.down.add(primary)
            drill.pair.signal(primary, signal.SIGTERM)
        assert process.wait(_LONG_S) == ExitCode.DONE
        drill.wait_for_more(sender)
        drill.pair.start(primary)
    assert drill.received == Counter(sender.accepted)
    capsys.readouterr()

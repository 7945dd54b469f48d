"""A switch hands over all that was confirmed, and is refused in one line where it cannot be had."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker_shim.completion import Completion
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.serve.pair.control import PairControl, SwitchOutcome
from sparkstore.config import StoreConfig
from sparkstore.exit_codes import ExitCode
from sparkstore.log.writer import Log
from sparkstore.standby.stand_by import PeerAddress, StandBy
from tests.support.roots.logs import TIMEOUT_S, fact, facts_in, opened, until, write
from tests.support.roots.pairs import PAIR, TOKEN, on_a_thread, port_of, serving, standing_by

pytestmark = pytest.mark.slow
WITH_PEER = replace(PAIR, peer="tcp:127.0.0.1:1", witness_lease_s=600.0)
"""No lease runs out here: whoever takes over was handed to."""


def control_of(log: Log, config: StoreConfig, successor_s: float = TIMEOUT_S) -> PairControl:
    """Control a pair whose broker has nothing under way."""
    assert log.shipping is not None
    control = PairControl(log, log.shipping, config, successor_s=successor_s)
    control._stop = control.go_on
    return control


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    """Settings of a machine that has a peer, and a witness."""
    (tmp_path / "witness").mkdir()
    return replace(WITH_PEER, witness=str(tmp_path / "witness"))


@contextmanager
def taking_over(
    where: Path, port: int, config: StoreConfig, meanwhile: Callable[[], object] = list
) -> Iterator[StandBy]:
    """A standby that opens its root once it has taken over."""
    standby = StandBy(where, config, PeerAddress("127.0.0.1", port, TOKEN))

    def run() -> None:
        if standby.run():
            with opened(where, config):
                meanwhile()

    with on_a_thread(standby, run):
        yield standby


def test_a_switch_hands_over_all_that_was_confirmed_and_confirms_no_more(
    tmp_path: Path, config: StoreConfig
) -> None:
    over = threading.Event()
    with serving(tmp_path / "a", config) as (log, port):
        control = control_of(log, config)
        with taking_over(tmp_path / "b", port_of(port), config, over.wait) as standby:
            until(lambda: standby.is_live and control.holder().in_step)
            write(log, 1, 40)
            before = control.holder()
            outcome = control.switch("ann").result(TIMEOUT_S)
            holder = control.holder()
            over.set()
        assert (outcome.serves, holder.where) == (holder.where, outcome.serves)
        assert (holder.root_id, holder.generation) == (before.in_step, before.generation + 1)
        assert (holder.switched_why, holder.switched_us > 0) == ("ordered by ann", True)
        assert log.failure is not None
        assert control.code_of(ExitCode.DONE) == ExitCode.TAKEN_OVER
    with opened(tmp_path / "b", config):
        assert facts_in(tmp_path / "b") == [*range(1, 41)]


def test_a_switch_whose_standby_dies_ends_with_what_happens_next(
    tmp_path: Path, config: StoreConfig
) -> None:
    begun: list[Future[SwitchOutcome]] = []
    with serving(tmp_path / "a", config) as (log, port):
        control = control_of(log, config, successor_s=0.2)
        with standing_by(tmp_path / "b", port_of(port), config) as standby:
            until(lambda: standby.is_live and control.holder().in_step)
            write(log, 1, 3)
            paused = control.pause(is_paused=True)
            control.pause(is_paused=False)
            standby._stopping.set()  # as if it were killed when the lease is released
            begun.append(control.switch("ann"))
            assert not begun[0].cancel()
        with pytest.raises(Unavailable, match="looks again which of the two serves"):
            begun[0].result(TIMEOUT_S)
        assert paused.is_paused
    with opened(tmp_path / "a", config) as log:  # it is served again
        write(log, 4, 5)
    assert facts_in(tmp_path / "a") == [*range(1, 6)]


def test_a_lease_is_released_after_the_last_completion_of_the_log(
    tmp_path: Path, config: StoreConfig
) -> None:
    gate, last = threading.Event(), Completion()
    with serving(tmp_path / "a", config) as (log, _port):
        control = control_of(log, config)
        log.append([fact(1)], lambda _error: gate.wait(TIMEOUT_S))  # the log thread is held up
        log.append([fact(2)], last.finish)
        thread = threading.Thread(target=log.hand_over)
        thread.start()
        until(log._ending.is_set)
        assert not control.holder().is_closed
        gate.set()
        thread.join(TIMEOUT_S)
        last.complete(TIMEOUT_S)
        assert control.holder().is_closed


def test_a_switch_is_refused_where_it_cannot_be_had(tmp_path: Path, config: StoreConfig) -> None:
    with serving(tmp_path / "alone", WITH_PEER) as (log, _port):
        refused(control_of(log, WITH_PEER), InvalidRequest, "has no witness")
    with serving(tmp_path / "a", config) as (log, port):
        control = control_of(log, config)
        refused(control, Unavailable, "no standby is in step, so none could take over: start it")
        with standing_by(tmp_path / "b", port_of(port), config) as standby:
            until(lambda: standby.is_live and control.holder().in_step)
            control.pause(is_paused=True)
            refused(control, InvalidRequest, "take-overs are paused: sparkstore failover resume")
            control.pause(is_paused=False)
            refused(control_of(log, replace(config, peer="")), InvalidRequest, "--standby-of")
            assert control.check_switch().in_step
            control._stop = lambda: None
            control.switch("ann")
            refused(control, Unavailable, "a switch is under way")
            write(log, 1, 2)  # until it is drained, it confirms


def test_a_stop_has_a_successor_where_a_standby_may_take_over(
    tmp_path: Path, config: StoreConfig
) -> None:
    with serving(tmp_path / "alone", WITH_PEER) as (log, port):
        control = control_of(log, WITH_PEER)
        with standing_by(tmp_path / "copy", port_of(port), WITH_PEER) as standby:
            until(lambda: standby.is_live and control.figures.is_in_step)
            assert not control.is_expected, "nothing takes over without a witness"
    with serving(tmp_path / "a", config) as (log, port):
        control, witness = control_of(log, config), log.witness
        assert witness is not None
        assert not control.is_expected, "no standby is there"
        with standing_by(tmp_path / "b", port_of(port), config) as standby:
            until(lambda: standby.is_live and control.holder().in_step)
            assert control.is_expected
            for is_paused in (True, False):
                control.pause(is_paused=is_paused)
                witness.renew()
                assert control.is_expected is not is_paused


def refused(control: PairControl, error: type[StoreError], reason: str) -> None:
    """Assert that an order to switch is refused so."""
    with pytest.raises(error, match=reason):
        control.switch("ann")

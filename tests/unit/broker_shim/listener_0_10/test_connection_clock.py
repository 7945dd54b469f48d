"""Heartbeats and the time to open: who is silent for too long is hung up on."""

from __future__ import annotations

from broker_shim.listener_0_10.sessions.connection import ConnectionClock


def test_a_peer_has_so_long_to_open() -> None:
    clock = ConnectionClock(10.0, 100.0)
    assert not clock.is_late(109.9, is_open=False)
    assert clock.is_late(110.0, is_open=False)
    assert not clock.is_late(110.0, is_open=True)
    assert clock.next_s(100.0, is_open=False) == 110.0


def test_a_peer_hears_of_us_twice_a_heartbeat_and_is_late_after_two() -> None:
    clock = ConnectionClock(10.0, 100.0)
    clock.heartbeat_s = 8
    assert not clock.is_beat_due(103.9)
    assert clock.is_beat_due(104.0)
    assert clock.next_s(100.0, is_open=True) == 104.0
    assert not clock.is_late(115.9, is_open=True)
    assert clock.is_late(116.0, is_open=True)
    clock.said_s = 115.0
    assert clock.next_s(115.0, is_open=True) == 116.0

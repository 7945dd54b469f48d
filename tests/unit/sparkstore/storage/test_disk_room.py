"""How much of a disk is to stay free, and when senders wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkstore.errors import Full
from sparkstore.storage.disk_room import Disk, RoomLimits, check_has_room

GIB, MIB = 1 << 30, 1 << 20
LIMITS = RoomLimits(128 * MIB, 0.0, 16 * MIB)


@pytest.mark.parametrize(
    ("limits", "total", "least", "reserve"),
    [
        (LIMITS, 100 * GIB, 128 * MIB, 16 * MIB),
        (LIMITS, 100 * MIB, 10 * MIB, 5 * MIB),
        (LIMITS._replace(min_free_percent=5.0), 100 * GIB, 5 * GIB, 16 * MIB),
        (LIMITS._replace(min_free_percent=0.001), 100 * GIB, 128 * MIB, 16 * MIB),
        (RoomLimits(0, 0.0, 0), 100 * GIB, 0, 0),
    ],
)
def test_what_stays_free_follows_the_settings_and_the_size_of_the_disk(
    limits: RoomLimits, total: int, least: int, reserve: int
) -> None:
    assert (limits.least_free(total), limits.reserve(total)) == (least, reserve)


@pytest.mark.parametrize(
    ("free_mib", "was_held_back", "is_held_back"),
    [(128, False, False), (127, False, True), (140, True, True), (160, True, False)],
)
def test_senders_go_on_with_more_room_than_made_them_wait(
    free_mib: int, was_held_back: bool, is_held_back: bool
) -> None:
    disk = Disk(Path("/d"), free_mib * MIB, 100 * GIB)
    roomy = Disk(Path("/e"), GIB, 100 * GIB)
    why = LIMITS.pressure([roomy, disk], was_held_back=was_held_back)
    assert bool(why) is is_held_back
    assert not why or "the disk of /d has" in why


def test_what_would_fill_the_disk_is_not_begun(tmp_path: Path) -> None:
    check_has_room(tmp_path, 1)
    check_has_room(tmp_path, 0)
    with pytest.raises(Full, match="nothing was done; give it room"):
        check_has_room(tmp_path, 1 << 60)


def test_without_a_limit_nobody_waits() -> None:
    full = Disk(Path("/d"), 0, GIB)
    assert RoomLimits(0, 0.0, 0).pressure([full], was_held_back=True) == ""

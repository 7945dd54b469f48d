"""Whether a member may go on with what it has seen of a root."""

from __future__ import annotations

import pytest

from broker_shim.service.seen_root import ServedRoot, reason_to_fence
from broker_shim.store.protocol import SeenRoot

SEEN = SeenRoot("root", 1, "first run", 140)
PROMOTED = ServedRoot("copy", 2, "next run", 101, frozenset({"root"}))


@pytest.mark.parametrize(
    ("root", "is_told_anew", "reason"),
    [
        pytest.param(ServedRoot("root", 1, "first run", 5), False, None, id="the same run"),
        pytest.param(ServedRoot("root", 1, "next run", 141), False, None, id="a restart"),
        pytest.param(
            ServedRoot("root", 1, "next run", 140), False, "put back to 139", id="one record gone"
        ),
        pytest.param(
            ServedRoot("root", 1, "next run", 101), True, "put back to 100", id="no promotion"
        ),
        pytest.param(PROMOTED, True, None, id="a loss that was accepted"),
        pytest.param(PROMOTED, False, "put back to 100", id="a host at a lagging replica"),
        pytest.param(PROMOTED._replace(opened=141), False, None, id="a full replica"),
        pytest.param(
            PROMOTED._replace(generation=1), True, "another root", id="a copy that is not promoted"
        ),
        pytest.param(ServedRoot("new", 1, "next run", 999), True, "another root", id="wiped"),
    ],
)
def test_who_has_seen_what_the_root_does_not_have_is_fenced(
    root: ServedRoot, *, is_told_anew: bool, reason: str | None
) -> None:
    found = reason_to_fence(SEEN, root, is_told_anew=is_told_anew)
    assert (found is None) if reason is None else (found is not None and reason in found)

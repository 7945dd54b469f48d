"""The object of a witness is read by older and newer processes of a pair that is upgraded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkstore.errors import CorruptData
from sparkstore.witness.holder import Holder, packed, unpacked

OLDEST: dict[str, Any] = {"root_id": "r", "generation": 2, "writer": "w", "lease_s": 3.0}


def test_an_older_process_meets_no_field_that_says_nothing() -> None:
    assert json.loads(packed(Holder(**OLDEST))) == OLDEST
    held = Holder(**OLDEST, renewal=7, in_step="s", is_paused=True)
    assert json.loads(packed(held)) == {**OLDEST, "renewal": 7, "in_step": "s", "is_paused": True}
    assert unpacked("here", packed(held)) == held


def test_an_older_process_reads_what_a_newer_one_wrote() -> None:
    newer = {**OLDEST, "renewal": 7, "of_a_newer_version": [1]}
    assert unpacked("here", json.dumps(newer).encode()) == Holder(**OLDEST, renewal=7)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"7", b"\xff"])
def test_what_is_no_object_of_a_witness_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptData, match="here: the object cannot be read"):
        unpacked("here", content)

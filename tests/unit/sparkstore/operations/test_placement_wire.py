"""Placements as JSON: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import MessageDraft
from sparkstore.operations.placement import Placement, PlacementRequest
from sparkstore.operations.placement_wire import placements_content, placements_of

DRAFT = MessageDraft(MessageHeader("raw", b"\x00\xff", properties=(("a", "1"),)), b"\x00body")
EVERY = PlacementRequest(
    (
        Placement(1, "q", "q", None, 1 << 52, 3, {}, is_shift=True),
        Placement(2, "q", "other", DRAFT, annotations={"k": ("uint", "1")}),
        Placement(target="q", draft=DRAFT),
        Placement(4, "ü\n"),
    ),
    "0123abcd",
    "d00000045",
)


@pytest.mark.parametrize("request_", [EVERY, EVERY._replace(undoes=None)])
def test_placements_come_out_as_they_went_in(request_: PlacementRequest) -> None:
    assert placements_of(json.loads(json.dumps(placements_content(request_)))) == request_


@pytest.mark.parametrize(
    "content",
    [
        {"placements": []},
        {"placements": [], "operation": "short"},
        {"placements": [], "operation": "0123 abcd"},
        {"placements": [], "operation": 7},
        {"placements": [], "operation": "0123abcd", "undoes": "-"},
        {"operation": "0123abcd"},
        {"placements": 7, "operation": "0123abcd"},
        *(
            {"placements": [each], "operation": "0123abcd"}
            for each in (
                7,
                {"message_id": "1"},
                {"message_id": True},
                {"message_id": -1},
                {"delivery_count": -1},
                {"unknown": 1},
                {"draft": {}},
                {"draft": {"header": {}, "body": "!"}},
                {"annotations": {"k": "text"}},
                {"annotations": {"k": ["a", "b", "c"]}},
            )
        ),
    ],
    ids=str,
)
def test_what_is_no_request_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        placements_of(content)

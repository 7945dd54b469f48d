"""Encode placements as objects of JSON, as `POST placements` takes them. Pure.

    {"placements": [{"message_id": 1, "source": "a", "target": "b", "expires_at": 17…,
                     "delivery_count": 2, "annotations": {"key": ["string", "text"]},
                     "draft": {"header": {…}, "body": base64}},
                    {"message_id": 2, "messages": 900, "source": "a", "target": "b"}, …],
     "operation": "0123abcd", "undoes": "89ef4567"}

A field that is not said has its default.
"""

from __future__ import annotations

from typing import Any

from sparkstore.core.annotations import Annotations
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import is_operation
from sparkstore.operations.placement import Placement, PlacementRequest
from sparkstore.operations.wire import draft_content, draft_of

_TYPES: dict[str, type] = {
    "message_id": int,
    "source": str,
    "target": str,
    "draft": dict,
    "expires_at": int,
    "delivery_count": int,
    "annotations": dict,
    "is_shift": bool,
    "messages": int,
}


def placements_content(request: PlacementRequest) -> dict[str, Any]:
    """Encode a request as an object."""
    content = {"placements": [_placement_object(placement) for placement in request.placements]}
    named = {"operation": request.operation, "undoes": request.undoes}
    return content | {name: value for name, value in named.items() if value is not None}


def placements_of(content: dict[str, Any]) -> PlacementRequest:
    """A request that came.

    Raises:
        InvalidRequest: It is none.
    """
    operation, undoes = content.get("operation"), content.get("undoes")
    if not isinstance(operation, str) or not is_operation(operation):
        raise InvalidRequest("placements need an operation: 8 to 32 letters and digits")
    if undoes is not None and not is_operation(undoes):
        raise InvalidRequest("what placements undo is named by 8 to 32 letters and digits")
    try:
        placements = tuple(_placement(dict(fields)) for fields in content["placements"])
    except (KeyError, TypeError, ValueError) as reason:
        message = f"placements cannot be read: {reason!r}"
        raise InvalidRequest(message) from reason
    return PlacementRequest(placements, operation, undoes)


def _placement_object(placement: Placement) -> dict[str, Any]:
    plain = Placement()
    fields = {
        name: value for name, value in placement._asdict().items() if value != getattr(plain, name)
    }
    return fields | ({} if placement.draft is None else {"draft": draft_content(placement.draft)})


def _placement(fields: dict[str, Any]) -> Placement:
    for name, value in fields.items():
        if type(value) is not _TYPES.get(name):
            message = f"a placement cannot have {name!r} as {value!r:.80}"
            raise ValueError(message)
    if fields.get("delivery_count", 0) < 0 or fields.get("message_id", 0) < 0:
        raise ValueError("counts and ids are not negative")
    if fields.get("messages", 1) < 1:
        raise ValueError("a placement is of one message at least")
    if "draft" in fields:
        fields["draft"] = draft_of(fields["draft"])
    if "annotations" in fields:
        fields["annotations"] = _annotations(fields["annotations"])
    return Placement(**fields)


def _annotations(content: dict[str, Any]) -> Annotations:
    return {str(key): (str(kind), str(text)) for key, (kind, text) in content.items()}

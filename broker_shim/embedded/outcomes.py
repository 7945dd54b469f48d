"""What a consumer said about a delivery, as the JSON that history keeps."""

from __future__ import annotations

from typing import Any

from cproton import (
    pn_condition_get_description,
    pn_condition_get_name,
    pn_delivery_remote,
    pn_disposition_condition,
)

from broker_shim.embedded.engine import text_from


def rejection(delivery: Any) -> dict[str, str]:
    """The outcome of a rejected delivery, with the peer's reason if it gave one."""
    condition = pn_disposition_condition(pn_delivery_remote(delivery))
    outcome = {"outcome": "rejected"}
    for name, read in (
        ("condition", pn_condition_get_name),
        ("description", pn_condition_get_description),
    ):
        text = text_from(read, condition)
        if text:
            outcome[name] = text
    return outcome

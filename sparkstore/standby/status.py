"""Tell which machine of a pair serves, and how its standby stands: a row for people and scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkstore.shipping.log_shipping import StandbyFigures
    from sparkstore.witness.holder import Holder


def status_row(holder: Holder, figures: StandbyFigures | None = None) -> dict[str, Any]:
    """Make the row that every road shows.

    Args:
        holder: What the witness says.
        figures: Those of the primary; None: it was not asked, and nobody else knows them.
    """
    switched = datetime.fromtimestamp(holder.switched_us / 1e6, UTC)
    lag_s = None if figures is None else round(figures.lag_s, 3)
    return {
        "serves": "" if holder.is_closed else holder.where,
        "served_last": holder.where,
        "root_id": holder.root_id,
        "generation": holder.generation,
        "standby_in_step": holder.in_step,
        "paused": holder.is_paused,
        "lease_s": holder.lease_s,
        "switched_at": switched.isoformat(timespec="milliseconds") if holder.switched_us else None,
        "switched_why": holder.switched_why,
        "alone": None if figures is None else figures.is_alone,
        "lag_records": None if figures is None else figures.lag_records,
        "lag_bytes": None if figures is None else figures.lag_bytes,
        "lag_seconds": lag_s,
    }

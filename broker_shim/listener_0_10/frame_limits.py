"""How much of a peer is taken: next to nothing before it has opened. Data only.

Who it is nobody knows by then, and it needs little: a few controls on channel 0. What was kept for
each of its channels would be kept for strangers.
"""

from __future__ import annotations

from broker_shim.amqp_0_10.definitions import MIN_MAX_FRAME_SIZE
from broker_shim.broker.settings import BrokerSettings
from broker_shim.framing.order import FramingLimits

NEWCOMERS_LIMITS = FramingLimits(
    max_method_bytes=MIN_MAX_FRAME_SIZE,
    max_header_bytes=MIN_MAX_FRAME_SIZE,
    max_assembly_bytes=MIN_MAX_FRAME_SIZE,
    only_controls=True,
)
"""Of a peer that has not opened: as large as a frame may be until another size is agreed."""


def limits_of(settings: BrokerSettings) -> FramingLimits:
    """Find the limits for a peer that has opened."""
    return FramingLimits(
        max_method_bytes=settings.max_header_bytes,
        max_header_bytes=settings.max_header_bytes,
        max_assembly_bytes=settings.max_message_bytes + settings.max_header_bytes,
    )

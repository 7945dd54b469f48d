"""What a process whose business is a store sets for itself; called by composition roots only.

Measured with 1,000 messages in flight: Python's cyclic collector, which walks every live entry of
every queue again and again, took half of all CPU time; nothing on the hot path makes cycles. And a
thread that comes back from fdatasync waits for the interpreter up to the switch interval.
"""

from __future__ import annotations

import gc
import sys

_NEW_OBJECTS = 200_000
_SWITCH_INTERVAL_S = 0.001


def tune_process() -> None:
    """Collect seldom, never walk what is there now, and hand the interpreter over sooner."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 100)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)

"""What a process whose business is a store sets for itself; called by composition roots only.

Measured with 1,000 messages in flight: Python's cyclic collector, which walks every live entry of
every queue again and again, took half of all CPU time; nothing on the hot path makes cycles. The
interpreter's switch interval stays as it is: at a fifth of it 32 callers got 0.8 ×, at a fiftieth
0.5 × the throughput, because every hand-over of the interpreter costs more than what it hurries.
(The broker shortens it while its loop has more to do than a turn: there one thread does all.)
"""

from __future__ import annotations

import gc
import os

_NEW_OBJECTS = 200_000


def tune_allocator() -> None:
    """Let Arrow use the system's allocator; of no effect once `pyarrow` was imported.

    Arrow's own one kept 140 MB for itself after a start that read two million records back; the
    system's gives back what is free, and was as fast in every benchmark here.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def tune_process() -> None:
    """Collect seldom, and never walk what is there now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 100)

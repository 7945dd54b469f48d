"""Draw the seed of generated histories: fixed in CI, chance elsewhere."""

from __future__ import annotations

import os
import random


def seed() -> int:
    """Return 1 in CI, the number in `SPARKSTORE_FOLD_SEED` if it is set, else a new one."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "ci":
        return 1
    return int(os.environ.get("SPARKSTORE_FOLD_SEED", random.SystemRandom().getrandbits(32)))

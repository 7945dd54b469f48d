"""Where this user's cache is: working copies of buckets, and what starts of Spark learn."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Return the folder, which may not be there: `sparkstore` in `$XDG_CACHE_HOME`, or `~/.cache`.

    The specification of base directories has a path ignored that is not absolute.

    Raises:
        RuntimeError: The user has no home.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if not cache.is_absolute():
        cache = Path.home() / ".cache"
    return cache / "sparkstore"

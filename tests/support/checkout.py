"""Where the checkout is that is tested."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]

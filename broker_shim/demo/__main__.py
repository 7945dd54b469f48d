"""`python -m broker_shim.demo [--messages 60000] [--folder build/demo]`; exit code 1: it failed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from broker_shim.demo.processes import DemoFailed
from broker_shim.demo.story import run
from sparkstore.errors import StoreError


def main() -> int:
    """Run the demo; its exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--folder", type=Path, default=Path("build/demo"))
    options = parser.parse_args()
    try:
        run(options.folder, options.messages)
    except (DemoFailed, StoreError) as reason:
        print(f"demo: FAILED: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

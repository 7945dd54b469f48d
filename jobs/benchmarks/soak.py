"""Kill -9 at random points of a mixed load, hundreds of times, on one growing root.

    python -m jobs.benchmarks.soak [KILLS] [SEED]

Every third kill is a power cut: what no mark covers is zeroed. The same seed makes the same calls,
not the same timing. The folder is kept if something was lost.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.support.system.kill_loop import run


def main() -> None:
    """Run, print progress every ten kills, say how it ended."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 100_000
    folder = Path(tempfile.mkdtemp(prefix="sparkstore-soak-"))
    print(f"soak: {kills} kills, seed {seed}, in {folder}", flush=True)
    try:
        run(folder, kills, seed)
    except AssertionError as failure:
        sys.exit(f"FAILED with seed {seed}, see {folder}: {failure}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""spark-submit --properties-file conf/spark-defaults.conf jobs/compact.py ROOT.

Exit codes: 0 done; 75 try later (another job is at work, or the store must start first); 1 error.
"""

from __future__ import annotations

import argparse
import logging
import sys

from sparkstore.compact import run
from sparkstore.compact_plan import Limits
from sparkstore.errors import Locked, StoreError, Unavailable
from sparkstore.session import submitted_session

TRY_LATER = 75


def main(argv: list[str] | None = None) -> int:
    """Compact one root and print the report as JSON."""
    parser = argparse.ArgumentParser(description="Move records to history, fold them into state.")
    parser.add_argument("root", help="folder of the store")
    parser.add_argument(
        "--step-records", type=int, default=Limits().step_records, help="records folded at a time"
    )
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        spark = submitted_session("sparkstore compact")
        report = run(spark, arguments.root, limits=Limits(arguments.step_records))
    except StoreError as reason:
        sys.stderr.write(f"compact: {reason}\n")
        return TRY_LATER if isinstance(reason, Locked | Unavailable) else 1
    except OSError as reason:
        sys.stderr.write(f"compact: {arguments.root}: {reason}\n")
        return 1
    sys.stdout.write(report.as_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

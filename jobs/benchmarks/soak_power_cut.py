"""The power of one machine of a pair is cut at many moments: what was confirmed is on its disk.

    python -m jobs.benchmarks.soak_power_cut primary|standby POWERLOSS [POINTS]

POWERLOSS is the file of a tool that runs a command with its data in a folder, keeps the order of
all writes and syncs, and builds from it what a power cut at some moment may leave. The command is
this module once more (`work`): a primary and its standby in one process, and the root of one of the
two in that folder. It says there when a record is confirmed. What is left is opened as whoever
serves next opens it (`check`): it must have each record that was confirmed before. Needs root, for
FUSE.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from sparkstore.exit_codes import end_process
from sparkstore.standby.stand_by import finish
from sparkstore.tables.fencing import STANDBY
from sparkstore.tables.root import is_root, open_root
from tests.support.checkout import CHECKOUT
from tests.support.roots.logs import append, facts_in, opened, until
from tests.support.roots.pairs import PAIR, port_of, serving, standing_by

_RECORDS = 300
_CONFIG = replace(PAIR, wal_file_bytes=1 << 20, max_wal_files=4, commit_interval_ms=30)


def work(of: str) -> None:
    """Confirm records, and say so, each after both machines have it."""
    cut = Path(os.environ["PL_DIR"])
    marks = os.open(os.environ["PL_MARK"], os.O_WRONLY | os.O_APPEND)
    with tempfile.TemporaryDirectory() as safe:
        roots = {"primary": Path(safe) / "root", "standby": Path(safe) / "root", of: cut / "root"}
        with (
            serving(roots["primary"], _CONFIG) as (log, port),
            standing_by(roots["standby"], port_of(port), _CONFIG) as standby,
        ):
            until(lambda: standby.is_live)
            for number in range(1, _RECORDS + 1):
                append(log, number, size=200).complete(30.0)
                if standby.is_live:
                    os.write(marks, b"%d\n" % number)


def check(tree: Path, marks: Path) -> str:
    """Return what is missing; empty: nothing."""
    confirmed = {int(line) for line in marks.read_text().split()}
    root = tree / "root"
    if not confirmed:
        return ""
    if not is_root(root):
        return f"{len(confirmed)} records were confirmed, and there is no root"
    if open_root(root).identity.role == STANDBY:
        finish(root)
    with opened(root, _CONFIG):
        missing = confirmed - {*facts_in(root)}
    return f"confirmed, and not on this disk: {sorted(missing)[:9]}" if missing else ""


def main() -> int:
    """Run one of the three; the exit code."""
    verb, *words = sys.argv[1:]
    if verb == "work":
        work(*words)
    elif verb == "check":
        missing = check(*map(Path, words))
        print(missing, flush=True)
        os._exit(1 if missing else 0)  # threads of the tables' engine may still run, and abort
    else:
        powerloss, *points = words
        here = f"{sys.executable} -m jobs.benchmarks.soak_power_cut"
        command = [sys.executable, powerloss, "run", "--points", *(points or ["60"]), "--rand", "1"]
        command += [
            "--verify",
            f"{here} check {{tree}} {{marks}}",
            "--",
            *here.split(),
            "work",
            verb,
        ]
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
        return subprocess.run(command, check=False, cwd=CHECKOUT, env=environment).returncode
    return 0


if __name__ == "__main__":
    end_process(main())

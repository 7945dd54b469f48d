"""`make mutants`: put one fault at a time into the code, and see that a test notices it.

A test that cannot fail proves nothing, and nobody sees that it cannot. So what must hold is listed
here from the other side: each `[[fault]]` of a TOML file beside this module names a piece of code
(`file`, and `old`, which occurs in it exactly once), what a careless change would make of it
(`new`), and the `tests` that are there to see it. This program applies each to a copy of the
checkout and runs these tests: they must fail, for a fault that nobody notices is a missing test.

    python -m tests.mutants                  # all of them: some minutes
    python -m tests.mutants durability       # those of durability.toml
    python -m tests.mutants durability:root  # those of it whose name holds "root"
    python -m tests.mutants --check          # only: does each fault still fit the code?

Exit code 0: every fault was noticed. 1: some were not, each is named. `--check` is part of
`make test` (tests/architecture/test_mutants.py), so that a fault follows the code it is about.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Fault:
    """One change that a test must notice.

    Attributes:
        group: Stem of the TOML file that lists it.
        name: What would be wrong, as a sentence.
        file: The file to change, relative to the top.
        old: The text to replace; it occurs exactly once in the file.
        new: What stands there instead.
        tests: Arguments of pytest: the tests of which at least one must fail.
    """

    group: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def faults() -> list[Fault]:
    """Every fault that is listed, in the order of files and of lines."""
    return [
        Fault(path.stem, each["name"], each["file"], each["old"], each["new"], tuple(each["tests"]))
        for path in sorted(Path(__file__).parent.glob("*.toml"))
        for each in tomllib.loads(path.read_text())["fault"]
    ]


def misfit(fault: Fault) -> str | None:
    """Why a fault cannot be applied to the code as it is; None if it can."""
    path = TOP / fault.file
    if not path.is_file():
        return f"{fault.file} is not there"
    count = path.read_text().count(fault.old)
    if count != 1:
        return f"the text to replace occurs {count} times in {fault.file}"
    if path.suffix == ".py":
        try:
            compile(path.read_text().replace(fault.old, fault.new), fault.file, "exec")
        except SyntaxError as reason:
            return f"with it {fault.file} is no Python: {reason}"
    missing = [test for test in fault.tests if not (TOP / test.partition("::")[0]).exists()]
    return f"no such tests: {', '.join(missing)}" if missing or not fault.tests else None


def noticed(fault: Fault, checkout: Path) -> bool:
    """Whether the tests of a fault fail with it; the checkout is put right again afterwards."""
    path = checkout / fault.file
    right = path.read_text()
    path.write_text(right.replace(fault.old, fault.new))
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.tests],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout), "HYPOTHESIS_PROFILE": "ci"},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True  # a fault that makes the tests hang is noticed, too
    finally:
        path.write_text(right)
    if ended.returncode not in {0, 1}:  # 1: tests failed; else they could not even be run
        sys.stderr.write(ended.stdout.decode() + ended.stderr.decode())
        raise SystemExit(f"mutants: the tests of {fault.name!r} cannot be run")
    return ended.returncode == 1


def _copy(target: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (TOP / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TOP / name, target / name)


def _chosen(wanted: list[str]) -> list[Fault]:
    if not wanted:
        return faults()
    pairs = [each.partition(":") for each in wanted]
    return [
        fault
        for fault in faults()
        if any(fault.group == group and text in fault.name for group, _, text in pairs)
    ]


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("wanted", nargs="*", metavar="GROUP[:TEXT]")
    parser.add_argument("--check", action="store_true", help="only look whether each fault fits")
    args = parser.parse_args()
    chosen = _chosen(args.wanted)
    unfit = [f"{each.group}: {each.name}: {why}" for each in chosen if (why := misfit(each))]
    if unfit or args.check:
        print("\n".join(unfit) or f"{len(chosen)} faults fit the code")
        return 1 if unfit else 0
    missed = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        _copy(Path(folder))
        for number, fault in enumerate(chosen, 1):
            seen = noticed(fault, Path(folder))
            told = "noticed" if seen else "NOT NOTICED"
            print(f"[{number}/{len(chosen)}] {told}: {fault.group}: {fault.name}", flush=True)
            if not seen:
                missed.append(fault.name)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} faults were noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

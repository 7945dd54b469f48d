"""What `make wheel` builds runs without a checkout, and brings the jobs and their schedules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.architecture.source import TOP, tracked_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is made of: a build leaves its scratch beside the sources."""
    copy = tmp_path_factory.mktemp("copy")
    for path in tracked_files():
        parts = {"sparkstore", "broker_shim", "jobs", "conf", ".ci"}
        if path.parts[0] in parts or len(path.parts) == 1:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(TOP / path, copy / path)
    return copy


@pytest.fixture(scope="module")
def wheel(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built of the copy."""
    built = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", built, copy], check=True, timeout=300)
    (found,) = built.glob("*.whl")
    return found


def test_a_wheel_needs_python_alone_and_no_environment(copy: Path, tmp_path: Path) -> None:
    """No Java, no compiler and no git are found; setuptools comes by the lock, with its hash."""
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    for tool in ("sh", "make", "awk", "rm", "ls", "touch"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    command = ["make", "-C", copy, "wheel", f"PYTHON={python}"]
    environment = {**os.environ, "PATH": str(tmp_path)}
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert [*(copy / "dist").glob("sparkstore-*.whl")]
    assert not (copy / ".venv").exists()
    made = [*(copy / "build" / "wheel-venv").rglob("*")]
    assert sum(each.stat().st_size for each in made if each.is_file()) < 100 << 20


def test_the_wheel_has_every_query_every_setting_every_job_and_every_schedule(
    wheel: Path,
) -> None:
    names = {name.split(".data/data/share/sparkstore/")[-1] for name in ZipFile(wheel).namelist()}
    expected = {
        path.as_posix()
        for path in tracked_files()
        if path.parts[0] in {"jobs", "conf"} or path.suffix == ".sql"
        if path.parts[:2] != ("jobs", "benchmarks")
    }
    assert "conf/schedules/crontab" in expected
    assert expected - names == set()


def test_a_fresh_environment_runs_the_command_and_the_job_scripts_of_the_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    # Dependencies are our own environment's: what it has by `.pth` files, like the checkout, is not
    # reached this way.
    (site,) = fresh.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", fresh / "bin" / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True, cwd=tmp_path)

    def said(*words: Path | str) -> str:
        run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        return run.stdout

    python, share = fresh / "bin" / "python", fresh / "share" / "sparkstore"
    where = said(python, "-c", "import sparkstore; print(sparkstore.__file__)")
    assert Path(where.strip()).is_relative_to(fresh)
    assert "deltalake" in said(fresh / "bin" / "sparkstore", "version")
    assert "serve" in said(fresh / "bin" / "sparkstore", "--help")
    for job in (share / "jobs").glob("*.py"):
        assert f"sparkstore {job.stem}" in said(python, job, "--help")

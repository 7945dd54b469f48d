"""Without Spark or a client of buckets: what works, and what the others say."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from broker_shim.store.delta import DeltaMessageStore
from sparkstore.cli.command_line import main
from sparkstore.extras import missing_extra
from tests.architecture.source import TOP
from tests.support.bare_install import bare_program
from tests.support.stores.stores import DELTA_CONFIG

_EXTRAS = {"pyspark", "delta", "py4j", "obstore"}
_RUN = """
import sys
import broker_shim.serve.command
from sparkstore.cli.command_line import main
root, query = sys.argv[1], "SELECT queue, depth FROM queues"
for words in (
    ["queue", "create", root, "orders"],
    ["queues", root],
    ["sql", root, query],
    ["diff", root, "--from", "position=1"],
    ["verify", root],
    ["version"],
):
    assert main(words) == 0, words
"""


def test_a_broker_its_commands_and_duckdb_need_no_extra(tmp_path: Path) -> None:
    """One process, where nothing of an extra can be imported."""
    root = tmp_path / "root"
    DeltaMessageStore(root, DELTA_CONFIG).close()
    run = subprocess.run(
        [sys.executable, "-c", bare_program(_RUN), str(root)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert "orders" in run.stdout


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["sql", "ROOT", "SELECT 1", "--engine", "spark"],
            "needs Spark: pip install 'sparkstore[spark]', or --engine duckdb",
        ),
        (["compact", "ROOT"], "pip install 'sparkstore[spark]'"),
        (["reconcile", "ROOT"], "pip install 'sparkstore[spark]'"),
        (["replicate", "ROOT", "nowhere"], "pip install 'sparkstore[spark]'"),
        (["purge", "ROOT", "queue", "--where", "true"], "or use --id"),
        (["queues", "s3://lake/queues"], "pip install 'sparkstore[s3]'"),
    ],
)
def test_a_command_that_needs_an_extra_says_which_and_does_nothing(
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    said: str,
) -> None:
    for module in [*sys.modules, *_EXTRAS]:
        if module.partition(".")[0] in _EXTRAS:
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    assert main([str(template) if word == "ROOT" else word for word in argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert [*tmp_path.iterdir()] == []


def test_a_failed_import_tells_the_extra_of_its_module() -> None:
    lost = missing_extra(ModuleNotFoundError("no", name="delta.tables"))
    assert "pip install 'sparkstore[spark]'" in str(lost)
    assert missing_extra(ModuleNotFoundError("no", name="deltalake")) is None


def test_every_module_of_an_extra_is_named_by_the_package() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {each.partition("==")[0] for each in extras["spark"]} == {"delta-spark", "pyspark"}
    assert any(each.startswith("obstore") for each in extras["s3"])
    wanted = " ".join(project["dependencies"])
    assert "duckdb" in wanted
    assert "spark" not in wanted

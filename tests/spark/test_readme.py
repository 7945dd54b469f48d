"""The README's snippets run, in their order, on one root."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkstore.cli.command_line import main
from sparkstore.views import views

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text()


def snippets(language: str) -> list[str]:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return found


def test_the_snippets_run_and_every_query_has_an_answer(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "queues"
    questions, storing = sorted(snippets("python"), key=lambda text: "DeltaMessageStore" in text)
    exec(compile(storing, "README.md", "exec"), {"root": root})
    exec(compile(questions, "README.md", "exec"), {"root": root})
    assert "orders" in capsys.readouterr().out
    queries = snippets("sql")
    assert len(queries) == 5
    for query in queries:
        views.sql(spark, root, query).collect()


def test_every_command_that_the_readme_names_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = set(re.findall(r"`sparkstore ([a-z]+)", README))
    with pytest.raises(SystemExit):
        main(["--help"])
    offered = set(re.findall(r"^    ([a-z]+)\b", capsys.readouterr().out, re.MULTILINE))
    assert "queues" in offered
    assert named - offered == set()


def test_every_make_target_that_the_documents_name_is_there() -> None:
    documents = README + (TOP / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", documents, re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "bench"} <= named
    assert named - targets == set()


def test_the_dependencies_of_the_package_are_those_of_the_lock() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    locked = (TOP / "requirements.lock").read_text()
    for requirement in project["dependencies"]:
        name = re.split(r"[=<>]", requirement)[0]
        assert f"\n{name}==" in f"\n{locked}"

"""Starting Spark: what it is told, and what it says when it cannot start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from sparkstore import session
from sparkstore.errors import InvalidRequest
from tests.support.checkout import CHECKOUT

OF_ONE_MACHINE = {"spark.driver.host", "spark.driver.bindAddress"}
SCALED = {
    "spark.sql.shuffle.partitions",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism",
}
"""What a cluster has more of."""


def _settings(file: str) -> dict[str, str]:
    lines = (CHECKOUT / "conf" / file).read_text().splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {name: value.strip() for name, value in pairs}


def test_pyspark_finds_the_source_in_this_installation_which_may_be_editable(
    tmp_path: Path,
) -> None:
    """It lists the modules of `sys.path`, and sees none that a hook of imports would bring."""
    found = "import pkgutil; print(*(module.name for module in pkgutil.iter_modules()))"
    command = [sys.executable, "-c", found]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert session.SOURCE_PACKAGE in listed.stdout.split()


def test_spark_submit_is_told_what_a_local_session_is_told() -> None:
    defaults = _settings("spark-defaults.conf")
    assert {name: defaults.get(name) for name in session.SETTINGS} == session.SETTINGS


def test_a_cluster_is_told_the_same_but_for_where_the_driver_is_and_how_much_runs_at_once() -> None:
    told = _settings("spark-cluster.conf")
    packages = told.pop("spark.jars.packages").split(",")
    assert packages[0] == session.DELTA_PACKAGE
    same = {*session.SETTINGS} - OF_ONE_MACHINE - SCALED - {"spark.jars.packages"}
    assert [name for name in same if told.get(name) != session.SETTINGS[name]] == []
    assert not OF_ONE_MACHINE & {*told}
    assert all(int(told[name]) > int(session.SETTINGS[name]) for name in SCALED)
    log4j = "spark.driver.extraJavaOptions"
    assert told[log4j] == _settings("spark-defaults.conf")[log4j]


def test_executors_read_s3_by_the_version_of_hadoop_that_spark_has() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop = jar.stem.removeprefix("hadoop-client-api-")
    packages = _settings("spark-cluster.conf")["spark.jars.packages"].split(",")
    assert f"org.apache.hadoop:hadoop-aws:{hadoop}" in packages
    sdk = {name.rpartition(":")[2] for name in packages if name.startswith("software.amazon")}
    assert len(sdk) == 1


def test_the_files_that_spark_defaults_names_are_those_of_the_package() -> None:
    for name in ("ivysettings.xml", "log4j2.properties"):
        for settings in ("spark-defaults.conf", "spark-cluster.conf"):
            assert f"conf/{name}" in (CHECKOUT / "conf" / settings).read_text()
        assert (CHECKOUT / "conf" / name).read_bytes() == (session.CONF / name).read_bytes()


def test_ivy_asks_by_get_alone() -> None:
    assert 'httpRequestMethod="GET"' in (session.CONF / "ivysettings.xml").read_text()


def test_a_missing_java_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"Spark needs Java 17\+, JAVA_HOME is .*: install"):
        session.check_java()


def test_an_old_java_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r'is openjdk version "1.8.0_402"'):
        session.check_java()


def test_a_jar_that_cannot_be_fetched_is_one_clear_line() -> None:
    said = ":: UNRESOLVED DEPENDENCIES ::\nException: [unresolved dependency: io.delta#delta]\n"
    reason = session._why(said)
    assert "could not be fetched" in reason
    assert "\n" not in reason

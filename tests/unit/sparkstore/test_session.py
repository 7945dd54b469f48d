"""Starting Spark: what it is told, and what it says when it cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkstore import session
from sparkstore.errors import InvalidRequest
from tests.support.checkout import CHECKOUT


def _defaults() -> dict[str, str]:
    lines = (CHECKOUT / "conf" / "spark-defaults.conf").read_text().splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {name: value.strip() for name, value in pairs}


def test_spark_submit_is_told_what_a_local_session_is_told() -> None:
    defaults = _defaults()
    assert {name: defaults.get(name) for name in session.SETTINGS} == session.SETTINGS


def test_the_files_that_spark_defaults_names_are_those_of_the_package() -> None:
    for name in ("ivysettings.xml", "log4j2.properties"):
        assert f"conf/{name}" in (CHECKOUT / "conf" / "spark-defaults.conf").read_text()
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

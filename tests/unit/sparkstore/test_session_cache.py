"""What a start of Spark leaves for the next: jars by path, and an archive of classes."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from sparkstore import session, session_cache

JAVA = "/usr/bin/java 17"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "sparkstore"


def jar(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(b"classes")
    return path


def ended_process() -> int:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    return ended.pid


def archive_of(option: str) -> Path:
    found = re.search(r"(?:ArchiveClassesAtExit|SharedArchiveFile)=(\S+)", option)
    assert found is not None
    return Path(found[1])


def test_jars_are_known_by_path_after_one_start_had_them_resolved(tmp_path: Path) -> None:
    delta = jar(tmp_path, "io.delta_delta-spark_4.2_2.13-4.4.0.jar")
    assert session_cache.known_jars("delta") == []
    session_cache.remember_jars("delta", [f"file://{delta}"])
    assert session_cache.known_jars("delta") == [str(delta)]
    assert session_cache.known_jars("another") == []


def test_a_jar_that_spark_brings_itself_is_left_out(tmp_path: Path) -> None:
    spark = next(session_cache._spark_jars().glob("slf4j-api-*.jar"))
    again = jar(tmp_path, f"org.slf4j_{spark.name}")
    older = jar(tmp_path, "org.slf4j_slf4j-api-1.0.0.jar")
    session_cache.remember_jars("delta", [f"file://{again}", f"file://{older}"])
    assert session_cache.known_jars("delta") == []


def test_a_jar_that_is_gone_or_cut_short_is_resolved_anew(tmp_path: Path) -> None:
    delta = jar(tmp_path, "io.delta_delta-spark_4.2_2.13-4.4.0.jar")
    session_cache.remember_jars("delta", [f"file://{delta}"])
    delta.write_bytes(b"")
    assert session_cache.known_jars("delta") == []
    delta.unlink()
    assert session_cache.known_jars("delta") == []


def test_a_list_that_somebody_spoilt_is_passed_over(folder: Path, tmp_path: Path) -> None:
    session_cache.remember_jars("delta", [f"file://{jar(tmp_path, 'a_b-1.jar')}"])
    (listed,) = folder.glob("jars-*")
    listed.write_text("no number\n")
    assert session_cache.known_jars("delta") == []


def test_the_first_jvm_makes_the_archive_and_one_beside_it_does_not(folder: Path) -> None:
    assert archive_of(session_cache.archive_option(JAVA)).parent == folder
    assert session_cache.archive_option(JAVA) == ""


def test_a_jvm_that_answers_no_query_makes_none(folder: Path) -> None:
    assert session_cache.archive_option(JAVA, makes=False) == ""
    assert not list(folder.iterdir())


def test_the_archive_of_a_jvm_that_ended_is_adopted(folder: Path) -> None:
    part = archive_of(session_cache.archive_option(JAVA))
    part.write_bytes(b"classes")
    part.rename(part.with_name(part.name.replace(str(os.getpid()), str(ended_process()))))
    option = session_cache.archive_option(JAVA)
    assert "SharedArchiveFile" in option
    assert archive_of(option).read_bytes() == b"classes"
    assert not list(folder.glob("*.part"))


def test_a_jvm_that_was_killed_leaves_the_next_to_make_the_archive() -> None:
    part = archive_of(session_cache.archive_option(JAVA))
    part.rename(part.with_name(part.name.replace(str(os.getpid()), str(ended_process()))))
    assert archive_of(session_cache.archive_option(JAVA)) == part


def test_another_java_has_another_archive() -> None:
    first = archive_of(session_cache.archive_option(JAVA))
    assert archive_of(session_cache.archive_option("/usr/bin/java 21")) != first


def test_an_archive_that_nobody_used_for_a_month_goes(folder: Path) -> None:
    session_cache.archive_option(JAVA)
    old, fresh = folder / "classes-old.jsa", folder / "classes-fresh.jsa"
    for file in (old, fresh):
        file.write_bytes(b"classes")
    month_ago = time.time() - 31 * 86_400
    os.utime(old, (month_ago, month_ago))
    session_cache.archive_option("another")
    assert not old.exists()
    assert fresh.exists()


@pytest.mark.parametrize("mode", [0o777, 0o770], ids=["world", "group"])
def test_a_folder_that_others_may_write_is_not_believed(
    folder: Path, tmp_path: Path, mode: int
) -> None:
    session_cache.remember_jars("delta", [f"file://{jar(tmp_path, 'a_b-1.jar')}"])
    folder.chmod(mode)
    assert session_cache.known_jars("delta") == []
    assert session_cache.archive_option(JAVA) == ""


def test_without_a_folder_spark_starts_as_it_always_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(jar(tmp_path, "file")))
    session_cache.remember_jars("delta", [])
    assert session_cache.known_jars("delta") == []
    assert session_cache.archive_option(JAVA) == ""


def test_a_cache_that_is_no_absolute_path_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert session_cache.cache_folder() == tmp_path / ".cache" / "sparkstore"


def test_jars_that_a_caller_names_are_not_replaced(tmp_path: Path) -> None:
    session_cache.remember_jars(session.DELTA_PACKAGE, [f"file://{jar(tmp_path, 'a_b-1.jar')}"])
    package = {"spark.jars.packages": session.DELTA_PACKAGE}
    assert session._by_path(dict(package)) == {"spark.jars": str(tmp_path / "a_b-1.jar")}
    for given in (package | {"spark.jars": "mine.jar"}, {"spark.jars.packages": "other:jar:1"}):
        assert session._by_path(dict(given)) == given

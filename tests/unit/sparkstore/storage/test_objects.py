"""What a bucket refuses, and how it is told; whose success a lost answer was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.storage.probe import check_is_conditional
from tests.support.objects.s3_server import DROP, S3Server, once, served

URI = "s3://lake/queues"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


def test_only_other_uris_than_files_are_of_a_bucket(tmp_path: Path) -> None:
    assert is_object_uri(URI)
    assert not is_object_uri(tmp_path)
    assert not is_object_uri(tmp_path.as_uri())


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("s3://lake", "name a prefix"),
        ("s3://lake/", "name a prefix"),
        ("s3:///queues", "s3://BUCKET/PREFIX"),
        ("hdfs://lake/queues", "s3://BUCKET/PREFIX"),
        ("s3://lake/my\nqueues", "misread"),
        ("s3://my lake/queues", "no name of a bucket"),
        ("s3://lake/a/..", "is no name"),
        ("s3://lake/a/../b", "is no name"),
        ("s3://lake/a//b", "is no name"),
        ("s3://lake/queues?versionId=1", "misread"),
    ],
)
def test_a_uri_that_names_no_prefix_is_refused(server: S3Server, uri: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        ObjectStorage(uri)
    assert server.requests == []


@pytest.mark.parametrize("uri", [Path(URI), URI.encode(), None, 5])
def test_what_is_no_text_is_refused(server: S3Server, uri: Any) -> None:
    with pytest.raises(InvalidRequest, match="write it as a text"):
        ObjectStorage(uri)


def test_a_bucket_has_one_name_however_its_scheme_is_written(server: S3Server) -> None:
    assert ObjectStorage("S3://lake/Queues/").location == "s3://lake/Queues"


def test_credentials_in_a_uri_are_refused_and_not_repeated(server: S3Server) -> None:
    with pytest.raises(InvalidRequest, match="environment") as refused:
        ObjectStorage("s3://AKIA123:geheim@lake/queues")
    assert "geheim" not in str(refused.value)
    assert "AKIA123" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_S3_ALLOW_UNSAFE_RENAME", "true"),
        ("AWS_CONDITIONAL_PUT", "disabled"),
        ("aws_conditional_put", "Disabled"),
        ("AWS_ALLOW_HTTP", "false"),
    ],
)
def test_settings_that_take_safety_away_are_refused_by_name(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidRequest, match=name.upper()):
        ObjectStorage(URI)


def test_a_store_that_ignores_conditions_is_found_out_and_left_clean(server: S3Server) -> None:
    check_is_conditional(ObjectStorage(URI))
    server.ignores_conditions = True
    with pytest.raises(InvalidRequest, match="If-None-Match"):
        check_is_conditional(ObjectStorage(URI))
    assert server.objects == {}


def test_no_such_bucket_is_said_by_every_call(server: S3Server, tmp_path: Path) -> None:
    storage = ObjectStorage("s3://elsewhere/queues")
    for act in (
        lambda: storage.read("a"),
        lambda: [*storage.files()],
        lambda: storage.put_if_absent("a", b""),
        lambda: storage.download("a", tmp_path / "a"),
    ):
        with pytest.raises(InvalidRequest, match="no such bucket"):
            act()


@pytest.mark.parametrize(
    ("method", "act"), [("PUT", "put"), ("GET", "read"), ("POST|DELETE", "delete")]
)
def test_what_is_not_permitted_is_named(server: S3Server, method: str, act: str) -> None:
    server.faults = [lambda request: 403 if request.method in method.split("|") else None]
    with pytest.raises(InvalidRequest, match=f"may not {act}"):
        check_is_conditional(ObjectStorage(URI))


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (400, "ExpiredToken", "the credentials have expired .*: renew them"),
        (403, "RequestTimeTooSkewed", "the clock of this machine is too far off .*: set it"),
    ],
)
def test_what_can_be_put_right_elsewhere_is_tried_later(
    server: S3Server, status: int, code: str, told: str
) -> None:
    server.faults, server.error_code = [lambda _: status], code
    with pytest.raises(Unavailable, match=told):
        ObjectStorage(URI).put_if_absent("mine", b"mine")


def test_a_store_that_does_not_answer_is_tried_later(server: S3Server) -> None:
    storage = ObjectStorage(URI)
    server.faults = [lambda _: 400]
    with pytest.raises(Unavailable, match="did not put: Injected"):
        storage.put_if_absent("a", b"")


@pytest.mark.parametrize("answer", [DROP, 409, 503])
def test_ones_own_success_is_known_from_anothers(server: S3Server, answer: int) -> None:
    storage = ObjectStorage(URI)
    server.faults = [once("PUT", "mine", answer)]
    assert storage.put_if_absent("mine", b"mine")
    server.faults = [once("PUT", "theirs", answer)]
    server.objects["queues/theirs"] = b"theirs"
    assert not storage.put_if_absent("theirs", b"mine")
    found = storage.read("mine")
    assert found is not None
    server.faults = [once("PUT", "mine", answer)]
    assert storage.replace_if_unchanged("mine", b"changed", found.tag)
    server.faults = [once("PUT", "mine", answer)]
    assert not storage.replace_if_unchanged("mine", b"again", found.tag)


def test_a_large_file_goes_up_in_parts(server: S3Server, tmp_path: Path) -> None:
    storage, file = ObjectStorage(URI), tmp_path / "file"
    file.write_bytes(bytes(20 << 20))
    storage.upload("history/part", file)
    assert server.objects["queues/history/part"] == file.read_bytes()
    storage.download("history/part", tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_size == 20 << 20

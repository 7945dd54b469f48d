"""What is no folder's name: a URI, also one of which a colon or a slash is missing."""

from __future__ import annotations

import argparse

import pytest

from broker_shim.serve.options import parser
from sparkstore.config import ChainMemberConfig, StoreConfig
from sparkstore.errors import InvalidRequest
from sparkstore.folder_name import check_is_folder_name

MISTYPED = ("s3//lake/q", "s3:lake/q", "S3:/lake", "gs//lake", "hdfs//n/q", "http:x", "other:/x")


@pytest.mark.parametrize("name", MISTYPED)
@pytest.mark.parametrize("setting", ["wal_dir", "copy_dir"])
def test_no_setting_takes_a_uri_for_a_folder(name: str, setting: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{setting} {name} is no folder"):
        StoreConfig(**{setting: name})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MISTYPED)
def test_an_audit_file_is_no_uri_either(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is no folder"):
        ChainMemberConfig(audit=name)


@pytest.mark.parametrize("name", MISTYPED)
def test_nor_is_the_folder_of_a_configuration(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--configuration", name])
    assert "is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["/var/lib/q", "s3", "s3/lake", "./s3//lake", "data//queues", "s3_old/q", "a:b", "files/x", ""],
)
def test_a_folder_may_have_any_other_name(name: str) -> None:
    check_is_folder_name(name, "wal_dir")
    assert isinstance(parser().parse_args(["--configuration", name]), argparse.Namespace)

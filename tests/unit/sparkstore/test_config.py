from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from broker_shim.broker.settings import BrokerSettings
from sparkstore.config import StoreConfig, read_config
from sparkstore.errors import InvalidRequest

assert BrokerSettings.PLACE == "[broker]"  # so that it is known what stands there


def settings_file(folder: Path, text: str) -> Path:
    file = folder / "sparkstore.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("text", ["", "[store]", "[broker]\nnot_ours = 1"])
def test_what_a_file_leaves_out_has_its_default(tmp_path: Path, text: str) -> None:
    assert read_config(settings_file(tmp_path, text)) == StoreConfig()


def test_settings_are_read_by_name_and_a_whole_number_may_be_a_float(tmp_path: Path) -> None:
    text = '[store]\nack = "wal"\nreader_grace_s = 5\nsegment_records = 10\nfsync = false\n'
    expected = StoreConfig(ack="wal", reader_grace_s=5.0, segment_records=10, fsync=False)
    assert read_config(settings_file(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "clue"),
    [
        ("[store]\nackk = 'wal'", r"unknown setting 'ackk' in .store.: did you mean 'ack'\?"),
        ("[store]\nmax-wal-files = 3", "did you mean 'max_wal_files'"),
        ("[store]\nqqq = 3", "none has a name like it; conf/sparkstore.toml has all"),
        ("[securty]\nusers = 'u'", r"unknown section 'securty': did you mean 'security'\?"),
        ("[Store]\nack = 'wal'", r"unknown section 'Store': did you mean 'store'\?"),
        (
            "ack = 'wal'",
            "unknown section 'ack': say one of amqp_0_10, broker, security, storage, store",
        ),
        ("[store]\n[store.wal]\nx = 1", "unknown setting 'wal'"),
        ("[[store]]\nack = 'wal'", "store must be a table"),
        ("[security]\nx = " + "[" * 5000, "settings .*sparkstore.toml"),
        ("[store]\nack = 1", "ack is 1: say a text"),
        ("[store]\nfsync = 1", "fsync is 1: say true or false"),
        ("[store]\nsegment_records = true", "segment_records is True: say a whole number"),
        ("[store]\nsegment_records = 1.5", "segment_records is 1.5: say a whole number"),
        ("[store]\nack = 'paper'", "ack is 'paper'"),
        ("[store]\nwal_file_bytes = 1000", "wal_file_bytes is 1000: it must be at least"),
        ("[store]\nmax_wal_files = 1", "max_wal_files is 1"),
        ("[store\n", "settings .*sparkstore.toml"),
        ("store = 3", "store must be a table"),
    ],
)
def test_a_setting_that_is_unknown_or_wrong_is_refused_by_name(
    tmp_path: Path, text: str, clue: str
) -> None:
    with pytest.raises(InvalidRequest, match=clue):
        read_config(settings_file(tmp_path, text))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"wal_dir": None}, "wal_dir is None: say a text"),
        ({"copy_dir": 5}, "copy_dir is 5: say a text"),
        ({"witness": b"s3://lake/w"}, "witness is b's3://lake/w': say a text"),
        ({"fence_check_s": "10"}, "fence_check_s is '10': say a number"),
    ],
)
def test_a_value_of_another_type_is_refused_in_python_too(
    settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        StoreConfig(**settings)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ack = 'wal'\nackk = 'wal'", "line 3: unknown setting 'ackk' in [store]: did you mean"),
        ("\n# ack = 3\n\nack = 3", "line 5: [store] ack is 3: say a text"),
        ('wal_dir = """\nack = 3\n"""\nack = "paper"', "line 5: [store] ack is 'paper': say one"),
        ("cache_bytes = -1", "line 2: [store] cache_bytes is -1: it must be at least 0"),
        ("segment_hours = nan", "line 2: [store] segment_hours is nan: it must be at least 0"),
        ("chain = [\n {mirror = 'a'},\n {miror = 'b'},\n]", "line 2: unknown key 'miror' of ["),
        ("chain = [\n {audit = 'a', max_distance = 0},\n]", "line 2: [store] chain: max_dist"),
        ("ack = ''\nchain = 3", "line 3: [store] chain must be a list"),
        ("wal_dir = 's3://lake'", "line 1: wal_dir s3://lake is no folder"),
        ("fsync = true\n[brker]\ncredit = 3", "line 3: unknown section 'brker': did you mean"),
        ("fsync = true\n[store.broker]", "line 3: unknown setting 'broker' in [store]"),
        ("fsync = true\nmax_links = 3", "line 3: unknown setting 'max_links' in [store]: it stand"),
        ("ack = 'wal'\nack = 'wal'", "Cannot overwrite a value (at line 3, column 12)"),
    ],
)
def test_a_mistake_is_said_with_its_file_and_line(tmp_path: Path, text: str, told: str) -> None:
    file = settings_file(tmp_path, f"[store]\n{text}\n")
    with pytest.raises(InvalidRequest) as refused:
        read_config(file)
    assert str(refused.value).startswith(f"settings {file}, {told}".replace(", Cannot", ": Cannot"))
    assert "\n" not in str(refused.value)


def test_the_line_of_a_long_file_is_left_out_and_the_mistake_is_said(tmp_path: Path) -> None:
    file = settings_file(tmp_path, "\n" * 200_000 + "[store]\nackk = 3\n")
    with pytest.raises(InvalidRequest, match=r"sparkstore\.toml: unknown setting 'ackk'"):
        read_config(file)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.toml"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match=r"binary\.toml"):
        read_config(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    "wrong",
    [
        {"commit_interval_ms": -1},
        {"max_message_bytes": -1},
        {"max_pending_bytes": 0},
        {"segment_commits": 0},
        {"segment_hours": -0.5},
        {"segment_hours": float("nan")},
        {"reader_grace_s": -1.0},
        {"max_commit_bytes": 0},
        {"cache_bytes": -1},
    ],
    ids=str,
)
def test_a_number_that_would_stop_the_store_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        StoreConfig(**wrong)


def test_nothing_is_a_valid_cache_and_a_valid_wait() -> None:
    config = StoreConfig(cache_bytes=0, commit_interval_ms=0, reader_grace_s=0.0)
    assert (config.cache_bytes, config.commit_interval_ms) == (0, 0)

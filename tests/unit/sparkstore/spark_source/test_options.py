"""Options of the data source: any case, one set for all roads, mistakes named."""

from __future__ import annotations

import pytest

from broker_shim.spark_sink.sink_settings import OPTIONS as WRITE_OPTIONS
from sparkstore.errors import InvalidRequest
from sparkstore.spark_source.options import read_options


def test_names_have_no_case_and_defaults_hold() -> None:
    settings = read_options({"PATH": "/a, /b", "Columns": "queue,body"})
    assert settings.roots == ("/a", "/b")
    assert settings.columns == ("queue", "body")
    assert (settings.view, settings.queue, settings.pushes_filters) == ("queue_messages", "", False)


def test_a_time_is_kept_as_it_is_written() -> None:
    assert read_options({"path": "/a"}).as_of is None
    assert read_options({"path": "/a", "AsOf": "2026-11-22 10:00"}).as_of == "2026-11-22 10:00"


def test_a_tables_location_is_its_path_and_a_path_goes_before_it() -> None:
    assert read_options({"location": "file:/a"}).roots == ("/a",)
    assert read_options({"location": "file:/a%20b", "option.view": "x"}).roots == ("/a b",)
    assert read_options({"location": "file:/a", "path": "file:/b%20ü"}).roots == ("/b%20ü",)


def test_options_of_a_write_are_let_through() -> None:
    assert read_options({"path": "/a", "target": "orders"}).roots == ("/a",)
    for name in WRITE_OPTIONS:
        assert read_options({"path": "/a", name: "/a"}).roots == ("/a",)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give the option path"),
        ({"path": " , "}, "give the option path"),
        ({"path": "/a", "veiw": "queues"}, "'veiw'.*is view meant"),
        ({"path": "/a", "xyzzy": "1"}, "'xyzzy'.*there are path, view"),
        ({"path": "/a", "asof": "yesterday"}, "'yesterday' is no time"),
        ({"path": "/a", "pushFilters": "yes"}, "pushFilters cannot be 'yes'"),
    ],
)
def test_a_mistake_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        read_options(options)

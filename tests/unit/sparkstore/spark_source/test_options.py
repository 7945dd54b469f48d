"""Options of the data source: any case, one set for all roads, mistakes named."""

from __future__ import annotations

import pytest

from broker_shim.spark_sink.sink_settings import OPTIONS as WRITE_OPTIONS
from sparkstore.errors import InvalidRequest
from sparkstore.spark_source.options import STREAM_OPTIONS, TAKING_OPTIONS, read_options
from sparkstore.spark_source.stream_options import StreamStart, is_of_events, stream_options


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


STREAM_ONLY = ({o.name for o in STREAM_OPTIONS} | {*TAKING_OPTIONS}) - {"path", "columns", "queue"}


@pytest.mark.parametrize("name", sorted(STREAM_ONLY))
def test_an_option_of_a_stream_is_none_of_a_read_but_in_a_table(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"option {name} is one of a stream.*: use spark.r"):
        read_options({"path": "/a", name.lower(): "true"})
    assert read_options({"option.path": "/a", "path": "/a", name: "true"}).roots == ("/a",)


@pytest.mark.parametrize("name", ["view", "pushFilters", "asOf"])
def test_an_option_of_a_read_is_none_of_a_stream_but_in_a_table(name: str) -> None:
    stream = {"path": "/a", "kind": "enqueued"}
    with pytest.raises(InvalidRequest, match=f"option {name} is one of a read: use spark.read"):
        stream_options({**stream, name.lower(): "queues"})
    assert stream_options({**stream, name: "queues", "option.path": "/a"}).root == "/a"


def test_a_stream_has_kinds_a_start_and_limits() -> None:
    assert is_of_events({"KIND": "*"})
    assert not is_of_events({"view": "queues"})
    plain = stream_options({"path": "/a", "kind": "*"})
    assert (plain.kinds, plain.start, plain.queue) == ((), StreamStart(), "")
    assert (plain.max_records, plain.max_bytes, plain.fails_on_loss) == (None, None, True)
    given = stream_options(
        {
            "path": "/a",
            "kind": "enqueued, dequeued,enqueued",
            "queue": "a::a",
            "maxRecordsPerTrigger": "5",
            "maxBytesPerTrigger": "6",
            "failOnDataLoss": "FALSE",
        }
    )
    assert (given.kinds, given.queue) == (("enqueued", "dequeued"), "a")
    assert (given.max_records, given.max_bytes, given.fails_on_loss) == (5, 6, False)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", StreamStart()),
        ("LATEST", StreamStart(is_latest=True)),
        ("17", StreamStart(position=17)),
        ("20261122", StreamStart(position=20261122)),
        ("position=17", StreamStart(position=17)),
        ("1970-01-01 00:00:01", StreamStart(at=1_000_000)),
        ("1970-01-01T01:00:01+01:00", StreamStart(at=1_000_000)),
    ],
)
def test_a_start_is_a_word_a_position_or_a_time_which_is_utc(text: str, start: StreamStart) -> None:
    assert stream_options({"path": "/a", "kind": "*", "startingPosition": text}).start == start


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kind": ""}, "needs the option kind: enqueued, for example"),
        ({"kind": "enqued"}, "no kind 'enqued' of events: is enqueued meant"),
        ({"kind": "xyzzy"}, "no kind 'xyzzy' of events: there are opened,"),
        ({"kind": "*,enqueued"}, r"no kind '\*'"),
        ({"path": ""}, "give the option path"),
        ({"path": "/a,/b"}, "a stream reads one root, not 2"),
        ({"readInDriver": "1"}, "readInDriver cannot be '1'"),
        ({"queue": "a::"}, "'a::' has no queue"),
        ({"startingPosition": ""}, "startingPosition cannot be ''"),
        ({"startingPosition": "0"}, "startingPosition cannot be '0': give earliest, latest, a pos"),
        ({"startingPosition": "-1"}, "startingPosition cannot be '-1'"),
        ({"startingPosition": "1" * 40}, "startingPosition cannot be '1111"),
        ({"startingPosition": "\u0661"}, "startingPosition cannot be '\u0661'"),
        ({"startingPosition": "yesterday"}, "startingPosition cannot be 'yesterday'"),
        ({"maxRecordsPerTrigger": "0"}, "maxRecordsPerTrigger cannot be '0': give a number from 1"),
        ({"maxRecordsPerTrigger": "1e3"}, "maxRecordsPerTrigger cannot be '1e3'"),
        ({"maxBytesPerTrigger": "9" * 30}, "maxBytesPerTrigger cannot be '9999"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss cannot be 'no': give true or false"),
        ({"settle": "true"}, "option settle is one of a stream that takes messages"),
        ({"startingPositon": "1"}, "'startingPositon'.*is startingPosition meant"),
    ],
)
def test_a_mistake_in_a_stream_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        stream_options({"path": "/a", "kind": "enqueued", **options})

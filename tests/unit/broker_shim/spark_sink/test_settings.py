"""Options of a write: what they mean, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.spark_sink.sink_settings import read_settings, service_address

GIVEN = {"target": "orders", "path": "/root"}


def test_options_are_read_in_any_case_and_those_of_others_are_passed_over() -> None:
    given = {
        "TARGET": "news",
        "targettype": "Exchange",
        "RoutingKey": "a.b",
        "path": "/r",
        "waitSeconds": "2.5",
        "checkpointLocation": "/c",
        "view": "queues",
    }
    found = read_settings(given)
    assert (found.target, found.target_type, found.routing_key) == ("news", "exchange", "a.b")
    assert (found.path, found.wait_s, found.version) == ("/r", 2.5, None)
    assert read_settings(GIVEN).stream != read_settings(GIVEN).stream
    numbered = {**GIVEN, "txnAppId": "app " * 50, "txnVersion": "7"}
    assert read_settings(numbered).version == 7
    assert read_settings(numbered).stream == read_settings(numbered).stream
    assert len(read_settings(numbered).stream) <= 40


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({**GIVEN, "startingposition": "1"}, "option startingPosition is one of readStream"),
        ({"path": "/r"}, "give the option target"),
        ({"target": "", "path": "/r"}, "give the option target"),
        ({"target": "q"}, "give the option path"),
        ({**GIVEN, "routngKey": "a"}, "is 'routingKey' meant"),
        ({**GIVEN, "sockett": "a"}, "is 'socket' meant"),
        ({**GIVEN, "targetType": "topic"}, "give queue or exchange"),
        ({**GIVEN, "waitSeconds": "soon"}, "waitSeconds cannot be 'soon'"),
        ({**GIVEN, "waitSeconds": "-1"}, "waitSeconds cannot be '-1'"),
        ({**GIVEN, "waitSeconds": "nan"}, "waitSeconds cannot be 'nan'"),
        ({**GIVEN, "txnAppId": "a"}, "txnAppId and txnVersion go together"),
        ({**GIVEN, "txnVersion": "1"}, "txnAppId and txnVersion go together"),
        ({**GIVEN, "txnAppId": "a", "txnVersion": "-1"}, "txnVersion cannot be '-1'"),
        ({**GIVEN, "txnAppId": "a", "txnVersion": "9" * 30}, "give a number from 0"),
    ],
)
def test_an_option_that_means_nothing_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        read_settings(given)


def test_the_service_of_a_root_is_found_at_its_socket(tmp_path: Path) -> None:
    settings = read_settings({**GIVEN, "path": str(tmp_path)})
    with pytest.raises(InvalidRequest, match="start `sparkstore serve"):
        service_address(settings.path, settings.socket)
    (tmp_path / "service.sock").touch()
    assert service_address(settings.path, settings.socket) == f"unix:{tmp_path}/service.sock"
    elsewhere = read_settings({"target": "q", "socket": "tcp:127.0.0.1:1"})
    assert service_address(elsewhere.path, elsewhere.socket) == "tcp:127.0.0.1:1"
    for path in (str(tmp_path / "none"), "s3://bucket/root"):
        with pytest.raises(InvalidRequest, match="is no folder of a root on this machine"):
            service_address(path, None)

"""`conf/sparkstore.toml` tells every setting, with its default."""

from __future__ import annotations

import tomllib
from dataclasses import fields

from broker_shim.broker.settings import NO_SETTINGS, BrokerSettings, read_settings
from broker_shim.handlers.add_ons import HandlerSettings, read_handlers
from broker_shim.handlers.chain import InsertionPoints
from broker_shim.security.settings import SecuritySettings, read_security
from sparkstore.config import StoreConfig, read_config
from tests.architecture.source import TOP

FILE = TOP / "conf" / "sparkstore.toml"


def test_the_file_tells_every_setting_of_the_store_with_its_default() -> None:
    assert read_config(FILE) == StoreConfig()
    told = tomllib.loads(FILE.read_text())["store"]
    assert set(told) == {field.name for field in fields(StoreConfig)}


def test_the_file_tells_every_setting_of_the_broker_with_its_default() -> None:
    assert read_settings(FILE) == BrokerSettings()
    told = tomllib.loads(FILE.read_text())["broker"]
    assert set(told) == {field.name for field in fields(BrokerSettings)} - NO_SETTINGS


def test_the_file_tells_every_setting_of_security_with_its_default() -> None:
    assert read_security(FILE) == SecuritySettings()
    told = tomllib.loads(FILE.read_text())["security"]
    assert set(told) == {field.name for field in fields(SecuritySettings)}


def test_the_file_tells_every_setting_of_amqp_0_10_with_its_default() -> None:
    assert read_handlers(FILE) == InsertionPoints()
    told = tomllib.loads(FILE.read_text())["amqp_0_10"]
    assert set(told) == {field.name for field in fields(HandlerSettings)}

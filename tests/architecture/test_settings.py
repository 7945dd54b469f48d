"""Each setting is declared once, and what is made of the declarations is current."""

from __future__ import annotations

from dataclasses import fields

import pytest

from broker_shim import (
    argument_documents,
    column_documents,
    endpoint_documents,
    settings_documents,
    table_documents,
)
from broker_shim.broker.settings import BrokerSettings, read_settings
from broker_shim.handlers.add_ons import read_handlers
from broker_shim.handlers.handler_chain import InsertionPoints
from broker_shim.security.security_settings import SecuritySettings, read_security
from broker_shim.serve.http.endpoints import ENDPOINTS
from sparkstore.config import StoreConfig, read_config
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.declared_settings import settings_of, texts_of
from sparkstore.queue_columns import Road, columns_of
from sparkstore.settings_file import SECTIONS
from sparkstore.storage.access import StorageConfig, read_storage_config
from tests.architecture.source import TOP

FILE = TOP / "conf" / "sparkstore.toml"


def test_the_settings_file_is_as_the_declarations_make_it() -> None:
    assert FILE.read_text() == settings_documents.settings_file()


def test_the_tables_of_the_document_are_as_the_declarations_make_them() -> None:
    page = TOP / settings_documents.PAGE
    assert page.read_text() == settings_documents.page(page.read_text())


def test_the_table_of_arguments_is_as_they_are_declared() -> None:
    page = (TOP / argument_documents.PAGE).read_text()
    assert page == argument_documents.page(page)
    assert all(f"| `{name}` |" in page for name in QueueArguments._fields)


@pytest.mark.parametrize("name", column_documents.PAGES)
def test_the_table_of_a_queues_columns_is_as_they_are_declared(name: str) -> None:
    page = (TOP / name).read_text()
    assert page == column_documents.page(name, page)
    assert all(f"| `{column.name}` |" in page for column in columns_of(Road.VIEW))


def test_the_table_of_endpoints_is_as_they_are_served() -> None:
    page = (TOP / endpoint_documents.PAGE).read_text()
    assert page == endpoint_documents.page(page)
    assert all(f"`{each.method} {each.path}" in page for each in ENDPOINTS)


def test_the_page_of_tables_is_as_the_schemas_make_it() -> None:
    assert (TOP / table_documents.PAGE).read_text() == table_documents.page()


def test_the_file_says_every_setting_with_its_default() -> None:
    assert read_config(FILE) == StoreConfig()
    assert read_settings(FILE) == BrokerSettings()
    assert read_security(FILE) == SecuritySettings()
    assert read_storage_config(FILE) == StorageConfig()
    assert read_handlers(FILE) == InsertionPoints()


@pytest.mark.parametrize("declared", settings_documents.DECLARED)
def test_a_setting_has_a_text(declared: type) -> None:
    _, texts = texts_of(declared)
    assert set(settings_of(declared)) <= set(texts) <= {each.name for each in fields(declared)}
    assert all(each[0] for each in texts.values())


def test_the_declared_sections_are_those_that_a_file_may_have() -> None:
    assert tuple(each.PLACE.strip("[]") for each in settings_documents.DECLARED) == SECTIONS

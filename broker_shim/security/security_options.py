"""Security's part of the command line of `sparkstore serve`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.security.security_settings import SecuritySettings, read_security
from sparkstore.declared_settings import settings_of, texts_of


def add_options(add: Callable[..., object]) -> None:
    """Add to an argparse parser the settings that have an option, and `--insecure`."""
    _, texts = texts_of(SecuritySettings)
    for name, metavar in _options().items():
        add(
            f"--{name.replace('_', '-')}",
            metavar=metavar,
            help=texts.get(name, [""])[0].replace("%", "%%"),
        )
    add(
        "--insecure",
        action="store_true",
        help="listen where others reach it without TLS or without users: passwords and messages"
        " can be read on the way",
    )


def security_of(options: argparse.Namespace) -> SecuritySettings:
    """`[security]` of the configuration file, with what the command line says instead.

    Raises:
        InvalidRequest: They cannot be used.
    """
    settings = SecuritySettings() if options.config is None else read_security(options.config)
    given: dict[str, Any] = {
        name: getattr(options, name) for name in _options() if getattr(options, name) is not None
    }
    if "mechanisms" in given:
        given["mechanisms"] = tuple(given["mechanisms"].split(","))
    if any(not value for value in given.values()):
        raise InvalidRequest("an option of security without a value: leave it out instead")
    return replace(settings, **given)


def _options() -> dict[str, str]:
    """Return the settings that have an option, and the name of its value."""
    every = settings_of(SecuritySettings).items()
    return {name: setting.bounds.metavar for name, setting in every if setting.bounds.metavar}

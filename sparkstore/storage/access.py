"""Find the way to a bucket of S3: by the environment, a profile of AWS, or a role, in this order.

    environment       AWS_ACCESS_KEY_ID and the like, AWS_ENDPOINT_URL, AWS_REGION
    [storage]         of the settings: where the bucket's server is, and which profile; no keys
    profile           of ~/.aws/credentials and ~/.aws/config: AWS_PROFILE, or `default`
    role              of the container or the machine: found by the library of `objects`

What the environment says wins over settings, and keys in it over a profile, as with AWS's own
tools. A profile is read again each minute, so keys that are renewed there need no restart.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from sparkstore.errors import InvalidRequest
from sparkstore.settings_file import named_section, read_section

_READ_AGAIN_S = 60
_KEYS = ("aws_access_key_id", "aws_secret_access_key")
_BY_OTHERS = {"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"}
"""With these a container has a role, which is asked before the profile `default`."""

Keys = dict[str, Any]
"""As the library of `objects` wants them."""


@named_section
@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Settings of the way to buckets (docs/buckets.md).

    What the environment says wins (AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE). Keys are no
    settings: they are in the environment, in a profile of ~/.aws, or the machine has a role.

    Attributes:
        endpoint: URL of the bucket's server; empty: AWS's.
        region: Where the bucket is; empty: as the profile says.
        profile: Profile of ~/.aws that has the keys; empty: `default`, if the environment has none.
        allow_http: true for a server without TLS, in a network of your own.
    """

    PLACE: ClassVar[str] = "[storage]"

    endpoint: str = ""
    region: str = ""
    profile: str = ""
    allow_http: bool = False


def read_storage_config(path: Path) -> StorageConfig:
    """The section of a file of settings.

    Raises:
        InvalidRequest: No such file, not TOML, an unknown setting, or a value of the wrong type.
    """
    return read_section(path, StorageConfig, StorageConfig)


def use_storage_settings(
    path: Path | None, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Let every bucket of this process be reached as a file of settings says.

    Raises:
        InvalidRequest: The file cannot be used: see `read_storage_config`.
    """
    if path is None:
        return
    config = read_storage_config(path)
    settings = {
        "AWS_ENDPOINT_URL": (config.endpoint, ("AWS_ENDPOINT",)),
        "AWS_REGION": (config.region, ("AWS_DEFAULT_REGION",)),
        "AWS_PROFILE": (config.profile, ()),
        "AWS_ALLOW_HTTP": ("true" if config.allow_http else "", ()),
    }
    for name, (value, others) in settings.items():
        if value and not any(environment.get(variable) for variable in (name, *others)):
            environment[name] = value


@dataclass(frozen=True, slots=True)
class BucketAccess:
    """The way to a bucket: what the library does not find in the environment itself.

    Attributes:
        settings: Settings of the library: endpoint, region.
        keys: Reads the keys of the profile; None: the environment has them, or a role.
    """

    settings: Mapping[str, str]
    keys: Callable[[], Keys] | None


def access_of(environment: Mapping[str, str]) -> BucketAccess:
    """Return the settings and keys of a profile that the environment does not have.

    Raises:
        InvalidRequest: The profile that was named is not there, or has no keys.
    """
    named = environment.get("AWS_PROFILE", "")
    if not named and _BY_OTHERS & environment.keys():
        return BucketAccess({}, None)
    profile = _profile(environment, named or "default")
    if profile is None:
        if named and not environment.get("AWS_ACCESS_KEY_ID"):
            message = f"there is no profile {named!r} in ~/.aws: set AWS_PROFILE, or"
            raise InvalidRequest(f"{message} [storage] profile, to one that is there")
        return BucketAccess({}, None)
    has_endpoint = environment.get("AWS_ENDPOINT_URL") or environment.get("AWS_ENDPOINT")
    has_region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    settings = {
        "endpoint": "" if has_endpoint else profile.get("endpoint_url", ""),
        "region": "" if has_region else profile.get("region", ""),
    }
    given = {name: value for name, value in settings.items() if value}
    if environment.get("AWS_ACCESS_KEY_ID") or not (named or _KEYS[0] in profile):
        return BucketAccess(given, None)
    _keys_in(profile, named)
    return BucketAccess(given, lambda: _keys_of(environment, named or "default"))


def _keys_of(environment: Mapping[str, str], name: str) -> Keys:
    return _keys_in(_profile(environment, name) or {}, name)


def _keys_in(profile: Mapping[str, str], name: str) -> Keys:
    missing = [key for key in _KEYS if key not in profile]
    if missing:
        message = f"the profile {name!r} has no {missing[0]}: other ways to get keys are not known"
        raise InvalidRequest(f"{message} here: aws configure export-credentials --format env")
    again = datetime.now(UTC) + timedelta(seconds=_READ_AGAIN_S)
    return {
        "access_key_id": profile[_KEYS[0]],
        "secret_access_key": profile[_KEYS[1]],
        "token": profile.get("aws_session_token"),
        "expires_at": again,
    }


def _profile(environment: Mapping[str, str], name: str) -> dict[str, str] | None:
    """Return a profile's settings from both files; None if neither has it."""
    home = Path(environment.get("HOME") or Path.home()) / ".aws"
    places = {
        environment.get("AWS_CONFIG_FILE") or str(home / "config"): (f"profile {name}", name),
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or str(home / "credentials"): (name,),
    }
    profile: dict[str, str] | None = None
    for file, sections in places.items():
        parser = configparser.RawConfigParser()
        try:
            parser.read(file)
        except (OSError, configparser.Error, UnicodeDecodeError) as reason:
            message = f"{file} cannot be read: {type(reason).__name__}"
            raise InvalidRequest(message) from None  # its text may hold a key
        for section in sections:
            if parser.has_section(section):
                profile = (profile or {}) | dict(parser.items(section))
    return profile

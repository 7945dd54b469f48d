"""Where keys and the endpoint of a bucket come from, and what is told if they are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.storage.access import access_of, use_storage_settings
from sparkstore.storage.objects import ObjectStorage
from sparkstore.storage.probe import check_is_conditional
from tests.support.objects import versitygw
from tests.support.objects.s3_server import S3Server, served

URI = "s3://lake/queues"
_CREDENTIALS = """
[default]
aws_access_key_id = of-default
aws_secret_access_key = geheim
[work]
aws_access_key_id = of-work
aws_secret_access_key = geheim
aws_session_token = session
[sso]
sso_session = company
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with profiles, and an environment that says nothing."""
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(_CREDENTIALS)
    (folder / "config").write_text("[profile work]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    return tmp_path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[S3Server]:
    """A server that is found; whose keys are to be used is not said."""
    monkeypatch.setenv("AWS_PROFILE", "")
    with served(monkeypatch) as server:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        yield server


@pytest.mark.parametrize(("profile", "signer"), [("", "of-default"), ("work", "of-work")])
def test_keys_come_from_a_profile_if_the_environment_has_none(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, profile: str, signer: str
) -> None:
    monkeypatch.setenv("AWS_PROFILE", profile)
    assert ObjectStorage(URI).put_if_absent("a", b"one")
    assert server.signers == {signer}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    assert ObjectStorage(URI).put_if_absent("b", b"two")
    assert server.signers == {signer, "of-environment"}


def test_what_the_environment_says_wins_over_a_profile_and_over_settings(home: Path) -> None:
    config = home / ".aws" / "config"
    config.write_text("[profile work]\nregion = eu-west-1\nendpoint_url = https://here\n")
    environment = {"HOME": str(home), "AWS_PROFILE": "work"}
    assert access_of(environment).settings == {"endpoint": "https://here", "region": "eu-west-1"}
    settings = home / "sparkstore.toml"
    settings.write_text(
        '[storage]\nendpoint = "https://there"\nregion = "x"\nprofile = "default"\n'
    )
    use_storage_settings(settings, environment)
    assert environment["AWS_PROFILE"] == "work"
    assert environment["AWS_ENDPOINT_URL"] == "https://there"
    assert access_of(environment).settings == {}
    use_storage_settings(None, environment)


def test_a_container_with_a_role_is_not_given_the_default_profile(home: Path) -> None:
    environment = {"HOME": str(home), "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}
    assert access_of(environment).keys is None
    keys = access_of(environment | {"AWS_PROFILE": "work"}).keys
    assert keys is not None
    assert keys()["token"] == "session"


@pytest.mark.parametrize(
    ("profile", "told"), [("wrok", "no profile 'wrok'"), ("sso", "'sso' has no aws_access_key_id")]
)
def test_a_profile_without_keys_is_told(home: Path, profile: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        access_of({"HOME": str(home), "AWS_PROFILE": profile})


def test_a_file_that_cannot_be_read_is_told_without_what_it_says(home: Path) -> None:
    (home / ".aws" / "credentials").write_text("aws_secret_access_key = geheim\n")
    with pytest.raises(InvalidRequest, match="credentials cannot be read") as told:
        access_of({"HOME": str(home)})
    assert "geheim" not in str(told.value)


def test_keys_are_no_settings(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = home / "sparkstore.toml"
    for text, told in (
        ('[storage]\nsecret_access_key = "geheim"\n', "unknown setting 'secret_access_key'"),
        ("[storage]\nendpoint = 5\n", "endpoint is 5: say a text"),
        ('[storge]\nendpoint = ""\n', "did you mean 'storage'?"),
    ):
        settings.write_text(text)
        assert main(["queue", "create", "--config", str(settings), URI, "q"]) == 2
        said = capsys.readouterr().err
        assert told in said
        assert "geheim" not in said


def test_the_command_goes_where_the_settings_say(
    server: S3Server,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_PROFILE"):
        monkeypatch.setenv(name, "")  # and as it was afterwards
    settings = home / "sparkstore.toml"
    text = f'[storage]\nendpoint = "{server.endpoint}"\nallow_http = true\nprofile = "work"\n'
    settings.write_text(text)
    assert main(["queue", "create", "--config", str(settings), URI, "q"]) == 2
    assert f"{URI} is not a sparkstore root" in capsys.readouterr().err
    assert server.signers == {"of-work"}


def test_no_credentials_and_wrong_ones_are_told_as_that(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.faults, server.error_code = [lambda _: 403], "SignatureDoesNotMatch"
    with pytest.raises(InvalidRequest, match="the credentials are wrong"):
        check_is_conditional(ObjectStorage(URI))
    server.error_code = "AccessDenied"
    with pytest.raises(InvalidRequest, match="may not put there"):  # and not: delete
        check_is_conditional(ObjectStorage(URI))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "nobody's"))
    with pytest.raises((InvalidRequest, Unavailable), match="there are no credentials for it"):
        ObjectStorage(URI, patience_s=1.0).read("a")


@pytest.mark.thorough
@pytest.mark.slow
def test_a_server_that_looks_at_signatures_takes_those_of_a_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with versitygw.served(home / "buckets", monkeypatch):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        with pytest.raises(InvalidRequest, match="the credentials are wrong"):
            check_is_conditional(ObjectStorage(URI))
        own = "[default]\naws_access_key_id = test\naws_secret_access_key = testtest\n"
        (home / ".aws" / "credentials").write_text(own)
        check_is_conditional(ObjectStorage(URI))

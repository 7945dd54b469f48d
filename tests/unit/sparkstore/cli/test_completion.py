"""Scripts of shells, run by the shells: what completes is what the parsers know."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from sparkstore.cli.command_line import main
from sparkstore.cli.completion import SHELLS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completions(text: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    typed = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _sparkstore; "
    done = subprocess.run(
        ["bash", "-c", text + asked + 'printf "%s\\n" "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_subcommands_and_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = script("bash", capsys)
    assert completions(text, "sparkstore", "qu") == ["queues", "queue"]
    assert set(completions(text, "sparkstore", "queue", "")) >= {"create", "alter", "--help"}
    assert completions(text, "sparkstore", "purge", "--dry") == ["--dry-run"]
    assert completions(text, "sparkstore", "queue", "delete", "/r", "--if-u") == ["--if-unused"]
    assert completions(text, "sparkstore", "serve", "--metrics-l") == ["--metrics-listen"]
    assert completions(text, "sparkstore", "purge", "/root", "q") == []  # a queue, or a file


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_takes_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert "redrive" in text
    assert "--dry-run" in text or "-l dry-run" in text
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine: its script was made, and not run")
    done = subprocess.run(
        [shell, "-n"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tcsh"])
    assert ended.value.code == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err

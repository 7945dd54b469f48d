"""`sparkstore passwd`: the users file's command line.

A password comes from a prompt, twice, or from standard input: on a command line every user of the
machine could see it, and the shell would keep it.
"""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from broker_shim.errors import InvalidRequest
from broker_shim.security.passwords import (
    MOST_PASSWORD_BYTES,
    new_token,
    secrets_of_new,
    token_hash,
)
from broker_shim.security.rules.http_roles import check_no_misspelt_role
from broker_shim.security.rules.users import User, Users, check_name
from broker_shim.security.users_file import changing_users, read_users
from sparkstore.cli.output import one_line
from sparkstore.exit_codes import ExitCode, exit_code_of
from sparkstore.log_format import say

_PROGRAM = "sparkstore passwd"
EXAMPLES = """\
examples:
  sparkstore passwd users.json ann                    a new user, or a new password (asked twice)
  sparkstore passwd users.json ann --stdin <secret    the first line of standard input
  sparkstore passwd users.json ann --roles shop,audit also what permissions may name: role:shop
  sparkstore passwd users.json ci --token --roles monitor >ci.token   for the HTTP port, once
  sparkstore passwd users.json host7 --no-password    logs in by certificate only; has roles
  sparkstore passwd users.json ann --delete
  sparkstore passwd users.json --list

The file is made with mode 0600 if it is not there. A broker (`sparkstore serve --users FILE`) looks
at it at each login, so a change needs no restart. exit codes: 0 done, 1 not written, 2 wrong call
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    parser = _parser()
    options, more = parser.parse_known_args(argv)
    if more:  # it may be a password
        unknown = [word.partition("=")[0] for word in more if word.startswith("--")]
        parser.error(
            f"unknown: {', '.join(unknown)}"
            if unknown
            else "a password is asked for, or"
            " read with --stdin: a command line is seen by every user of this machine"
        )
    try:
        _run(options)
    except InvalidRequest as reason:
        return _complain(str(reason), exit_code_of(reason))
    except OSError as reason:
        return _complain(f"{options.file}: {reason}", exit_code_of(reason))
    except (KeyboardInterrupt, EOFError):
        return _complain("no password was given; nothing was changed", ExitCode.ERROR)
    return ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparkstore passwd",
        description="Add, change, delete and list the users who may connect to a broker.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="USERS-FILE", help="the users file")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the user")
    parser.add_argument("--roles", metavar="A,B", help="roles the user has from now on")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--stdin", action="store_true", help="read the password from standard input")
    how.add_argument("--no-password", action="store_true", help="a user without a password")
    how.add_argument(
        "--token", action="store_true", help="a new token, by which it logs in over HTTP (Bearer)"
    )
    how.add_argument("--delete", action="store_true", help="delete the user")
    how.add_argument("--list", action="store_true", help="list users, roles and mechanisms")
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.list:
        print(*_listed(read_users(options.file)), sep="\n")
        return
    if not options.name:
        raise InvalidRequest("say the user's name: sparkstore passwd USERS-FILE NAME")
    check_name(options.name)
    _check_order(options.file, options.name)
    if options.delete:
        _delete(options.file, options.name)
        _say(options, "deleted")
        return
    roles = None if options.roles is None else _roles(options.roles)
    if options.file.exists():
        read_users(options.file)  # what cannot be used is told before a password is asked for
    token = new_token() if options.token else ""
    keeps_secrets = options.no_password or options.token
    secrets = {} if keeps_secrets else secrets_of_new(_password(options))
    with changing_users(options.file) as users:
        is_new = options.name not in users
        user = users.get(options.name, User(options.name))
        changed = {"token": token_hash(token)} if token else {"secrets": secrets}
        user = replace(user, **changed)
        user = user if roles is None else replace(user, roles=roles)
        users[options.name] = user
    _say(options, _became(user, is_new=is_new))
    if token:
        print(token)


def _check_order(file: Path, name: str) -> None:
    """Refuse the two arguments in the other order, which would make a file named as the user."""
    if not file.exists() and (name.endswith(".json") or Path(name).is_file()):
        message = f"{name!r} is a file's name, and comes first: sparkstore passwd {name} {file}"
        raise InvalidRequest(message)


def _became(user: User, *, is_new: bool) -> str:
    """Describe a user after a change, in words."""
    secret = "a password" if user.secrets else "no password"
    secret += " and a token" if user.token else ""
    roles = ",".join(sorted(user.roles)) or "no roles"
    return f"{'added' if is_new else 'changed'}, with {secret} and {roles}"


def _say(options: argparse.Namespace, what: str) -> None:
    """Note a change once it is on disk; standard output is the token's alone."""
    say(_PROGRAM, one_line(f"{options.file}: user {options.name!r} {what}"))


def _delete(file: Path, name: str) -> None:
    read_users(file)  # else one that is not there would be made
    with changing_users(file) as users:
        if users.pop(name, None) is None:
            message = f"{file} has no user {name!r}"
            raise InvalidRequest(message)


def _listed(users: Users) -> Iterator[str]:
    for name, user in sorted(users.items()):
        how = ",".join([*sorted(user.secrets), *(["token"] if user.token else [])])
        how = how or "certificate"
        yield f"{name}\troles={','.join(sorted(user.roles))}\t{how}"


def _roles(text: str) -> frozenset[str]:
    roles = frozenset(role for role in text.split(",") if role)
    for role in roles:
        check_name(role, "role")
        check_no_misspelt_role(role)
    return roles


def _password(options: argparse.Namespace) -> str:
    if options.stdin:
        line = sys.stdin.buffer.readline(MOST_PASSWORD_BYTES + 3)
        try:
            return line.decode().rstrip("\r\n")
        except UnicodeDecodeError as reason:
            raise InvalidRequest("the password on standard input is not UTF-8") from reason
    first = getpass.getpass(f"Password of {options.name}: ")
    if getpass.getpass("The same again: ") != first:
        raise InvalidRequest("the two passwords differ; nothing was changed")
    return first


def _complain(line: str, code: int) -> int:
    say(_PROGRAM, one_line(line))
    return code


if __name__ == "__main__":
    sys.exit(main())

"""The target of a command: a root, which is read, or changed by whoever serves it; or a URL.

A look at a ROOT reads its tables, whether a broker serves it or not: it takes no lock, changes
nothing, and needs nobody. A change is carried out by the broker that runs, or under its lock.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sparkstore.cli.notes import note_unreplayed, tell_unreplayed
from sparkstore.cli.output import Row, show_rows
from sparkstore.cli.parsing import is_dry
from sparkstore.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from sparkstore.control.broker_control import BrokerControl
    from sparkstore.control.client import AdminClient
    from sparkstore.control.http_client import BrokerClient
    from sparkstore.core.fold import State
    from sparkstore.operations.administration import Order
    from sparkstore.tables.root import Root


@contextmanager
def opened_root(where: str, *, whole: bool = False, executors_at: str = "") -> Iterator[Root]:
    """The root that was named; of one in a bucket a copy, with every file only if `whole`.

    With `executors_at` Spark reads the tables there (`bucket.cluster_tables`).
    """
    from sparkstore.log.tuning import import_arrow_without
    from sparkstore.storage.objects import is_object_uri

    import_arrow_without("pandas")
    from sparkstore.tables.root import open_root

    if is_object_uri(where):
        from sparkstore.bucket.bucket_download import local_copy

        with local_copy(where, whole=whole, executors_at=executors_at) as root:
            yield root
    else:
        yield open_root(where)


def recovered(root: Root) -> State:
    """Return the fold of all that Delta has; see `recovered_state` for what it raises."""
    from sparkstore.recovery.recovered_state import recovered_state  # it loads deltalake

    return recovered_state(root)


def flush_broker(where: str) -> bool:
    """Have the running broker put all that it has into the tables; True if there is one."""
    from sparkstore.control.client import connect_to

    served = connect_to(where)
    if served is not None:
        with closing(served):
            served.flush()
    return served is not None


def queue_named(arguments: Namespace, state: State) -> str:
    """Find the queue that the user names; a short name will do.

    Raises:
        InvalidRequest: There is none, or the name means several.
    """
    from sparkstore.operations.administration import existing
    from sparkstore.operations.root_at_rest import StateFacts

    return existing(arguments.queue, StateFacts(state))


@contextmanager
def opened_broker(arguments: Namespace) -> Iterator[BrokerClient]:
    """Open a client of the broker whose URL was named, and close it at the end.

    Raises:
        InvalidRequest: The login is not one, or the URL.
    """
    from sparkstore.control.http_client import BrokerClient

    with closing(BrokerClient.by_url(arguments.url, _login_of(arguments))) as broker:
        yield broker


def _login_of(arguments: Namespace) -> Any:
    from sparkstore.control.http_client import BrokerLogin

    if (arguments.cert is None) != (arguments.cert_key is None):
        raise InvalidRequest("--cert and --cert-key: give both, or neither")
    if arguments.password_file is not None and arguments.user is None:
        raise InvalidRequest("--password-file: whose? give --user NAME, too")
    certificate = None if arguments.cert is None else (arguments.cert, arguments.cert_key)
    if arguments.token_file is not None and arguments.user is not None:
        raise InvalidRequest("--token-file says who logs in: leave --user out")
    files = arguments.password_file, arguments.ca_file, certificate, arguments.token_file
    return BrokerLogin(arguments.user, *files)


@contextmanager
def by_url(arguments: Namespace) -> Iterator[BrokerControl]:
    """Open what has a broker carry orders out by its URL, and close it at the end."""
    from sparkstore.control.broker_control import BrokerControl

    with opened_broker(arguments) as broker:
        yield BrokerControl(broker)


@contextmanager
def running_broker(arguments: Namespace) -> Iterator[BrokerControl]:
    """Open what asks the broker of the target, at its URL or the socket of its ROOT; close it.

    Raises:
        Unavailable: No broker serves the root.
    """
    from sparkstore.control.client import connect_to

    if arguments.url is not None:
        with by_url(arguments) as control:
            yield control
        return
    served = connect_to(arguments.root)
    if served is None:
        raise Unavailable(f"no broker serves {arguments.root}, so there is none to ask: start one")
    with closing(served):
        yield served


@contextmanager
def opened_control(arguments: Namespace) -> Iterator[AdminClient]:
    """Open whatever can change the queues of the target, and close it at the end.

    Raises:
        StoreError: Nobody can change it now, for the reasons of `open_control`.
    """
    from sparkstore.config import StoreConfig, read_config
    from sparkstore.control.client import open_control
    from sparkstore.settings_file import audit_file

    if arguments.url is not None:
        with by_url(arguments) as control:
            yield control
        return
    settings = arguments.config
    config = read_config(settings) if settings else StoreConfig()
    named = audit_file(settings) if settings else None
    with closing(open_control(arguments.root, config, named)) as control:
        yield control


def given(arguments: Namespace, order: Order) -> dict[str, Any]:
    """Give an order to whoever serves the target, and return what it came to.

    A dry run about a root decides it by what the tables have; consumers are not known then.

    Raises:
        StoreError: It was refused, or nobody knows what came of it.
    """
    if arguments.url is not None:
        with by_url(arguments) as control:
            return control.order(order, dry_run=is_dry(arguments))
    if not is_dry(arguments):
        with opened_control(arguments) as opened:
            return opened.order(order)
    from sparkstore.operations.administration import decide
    from sparkstore.operations.root_at_rest import StateFacts

    with opened_root(arguments.root, whole=True) as root:
        decided = decide(order, StateFacts(recovered(root)))
        note_unreplayed(root)
    return {"dry_run": True, **decided.answer}


def show_list(
    arguments: Namespace,
    columns: Sequence[str],
    of_tables: Callable[[State], Iterable[Row]],
    of_broker: Callable[[BrokerClient], Iterable[Row]],
) -> int:
    """Print a list: that of a root's tables, or of the broker at a URL."""
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            show_rows(arguments, of_broker(broker), columns)
        return 0
    with opened_root(arguments.root) as root:
        show_rows(arguments, of_tables(recovered(root)), columns)
        tell_unreplayed(arguments, root)
    return 0

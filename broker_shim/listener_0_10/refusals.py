"""The store's errors as AMQP 0-10's execution errors. Pure."""

from __future__ import annotations

from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.errors import InvalidRequest, LimitReached, NotAcquired, NotNow, StoreError
from broker_shim.framing.errors import RemoteCommandError

_CODES: tuple[tuple[type[StoreError], ExecutionErrorCode], ...] = (
    (LimitReached, ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED),
    (InvalidRequest, ExecutionErrorCode.PRECONDITION_FAILED),
    (NotAcquired, ExecutionErrorCode.RESOURCE_LOCKED),
    (NotNow, ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED),
)


def refusal_of(error: StoreError) -> RemoteCommandError:
    """Map an error of the store to the error that ends the session."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return RemoteCommandError(code, str(error))
    text = f"{type(error).__name__}: {error}"
    return RemoteCommandError(ExecutionErrorCode.INTERNAL_ERROR, text)


def not_found(text: str) -> RemoteCommandError:
    """Refuse a command that names what is not there."""
    return RemoteCommandError(ExecutionErrorCode.NOT_FOUND, text)


def not_allowed(text: str) -> RemoteCommandError:
    """Refuse what the protocol or the broker does not allow, whoever asks."""
    return RemoteCommandError(ExecutionErrorCode.NOT_ALLOWED, text)


def illegal_argument(text: str) -> RemoteCommandError:
    """Refuse a command that says what cannot be."""
    return RemoteCommandError(ExecutionErrorCode.ILLEGAL_ARGUMENT, text)


def not_implemented(text: str) -> RemoteCommandError:
    """Refuse a command that this broker does not do."""
    return RemoteCommandError(ExecutionErrorCode.NOT_IMPLEMENTED, text)


def locked(text: str) -> RemoteCommandError:
    """Refuse a command for a queue that another session has for itself."""
    return RemoteCommandError(ExecutionErrorCode.RESOURCE_LOCKED, text)


def illegal_state(text: str) -> RemoteCommandError:
    """Refuse a command that cannot be asked now."""
    return RemoteCommandError(ExecutionErrorCode.ILLEGAL_STATE, text)


def short_text(text: str) -> str:
    """Cut a text to what a str8 holds."""
    return text.encode()[:255].decode(errors="ignore")

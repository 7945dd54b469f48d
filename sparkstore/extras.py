"""Tell which extra of the package a command needs: all but the broker itself is an extra.

`pip install sparkstore` brings the broker, its command line and DuckDB. A command that needs more
asks here before it does anything; `missing_extra` is for whoever imports without having asked.
"""

from __future__ import annotations

from importlib.util import find_spec

from sparkstore.errors import InvalidRequest

_EXTRA_OF = {
    **dict.fromkeys(("pyspark", "py4j", "delta"), "spark"),
    "obstore": "s3",
    "fastavro": "avro",
    "google": "protobuf",
}


def check_spark(what: str, instead: str = "") -> None:
    """Refuse a command that needs Spark where Spark is not installed.

    Args:
        what: The command, or that option of it which needs Spark.
        instead: What does the same without Spark; empty: nothing does.

    Raises:
        InvalidRequest: PySpark is not installed.
    """
    if find_spec("pyspark") is None:
        other = f", or {instead}" if instead else ""
        message = f"{what} needs Spark: pip install 'sparkstore[spark]'{other}"
        raise InvalidRequest(message)


def missing_extra(reason: ModuleNotFoundError) -> InvalidRequest | None:
    """Return the error that says what to install, if the module that was not found is an extra's.

    Args:
        reason: A failed import.
    """
    extra = _EXTRA_OF.get((reason.name or "").partition(".")[0])
    if extra is None:
        return None
    return InvalidRequest(f"this needs {reason.name}: pip install 'sparkstore[{extra}]'")

"""The exceptions of the package, one class for each kind of error of the engine."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Busy",
    "Closed",
    "Conflict",
    "Corruption",
    "Error",
    "FormatTooNew",
    "Internal",
    "Interrupted",
    "InvalidArgument",
    "IoError",
    "Locked",
    "NoMemory",
    "NoSpace",
    "NotFound",
    "OutcomeUnknown",
    "Poisoned",
    "ReadOnly",
]


class Error(Exception):
    """Base class of all exceptions of the engine.

    A key that does not exist is a ``KeyError`` instead; an argument of a wrong type is a
    ``TypeError``; a wrong value is an ``InvalidArgument`` or another ``ValueError``.
    """

    kind: ClassVar[str] = "error"
    """Kind of the error as text."""

    file: str | None = None
    """File in which the error occurred, relative to the directory of the database."""
    offset: int | None = None
    """Offset in that file in bytes."""
    family: str | None = None
    """Column family of a conflict."""
    key: bytes | None = None
    """Key of a conflict."""
    os_error: int | None = None
    """Error number of the operating system."""
    retryable: bool = False
    """True if the operation had no effect and may succeed if it is tried again."""


class InvalidArgument(Error, ValueError):
    """An argument breaks a limit or rule; nothing happened. Change the call."""

    kind = "invalid argument"


class NotFound(Error):
    """The database, column family, snapshot or backup does not exist."""

    kind = "not found"


class AlreadyExists(Error):
    """An object of that name already exists."""

    kind = "already exists"


class Locked(Error):
    """The database is already open for writing, in another process or in this one.

    Close it there, or open it with ``read_only=True``.
    """

    kind = "locked"


class Corruption(Error):
    """Stored bytes are damaged. Nothing was changed; see ``file`` and ``offset``."""

    kind = "corruption"


class FormatTooNew(Error):
    """A newer version wrote the database. Nothing was changed; use that version."""

    kind = "format too new"


class IoError(Error):
    """A system call failed. The write was not applied; see ``os_error``."""

    kind = "i/o error"


class NoSpace(Error):
    """The disk is full. The write was not applied; free some space and try again."""

    kind = "no space"


class OutcomeUnknown(Error):
    """A write or sync of the log failed. Reopen the database and read what is there."""

    kind = "outcome unknown"


class Poisoned(Error):
    """Writes are stopped because of an earlier failure; reads go on. Reopen the database."""

    kind = "poisoned"


class Closed(Error):
    """The database, snapshot or batch was closed."""

    kind = "closed"


class NoMemory(Error, MemoryError):
    """A large buffer could not be allocated."""

    kind = "no memory"


class ReadOnly(Error):
    """The database was opened read-only."""

    kind = "read-only"


class Busy(Error):
    """A lock or another operation is in the way; nothing happened. Try again later."""

    kind = "busy"


class Conflict(Error):
    """Another commit came first; nothing was written. Run the whole transaction again.

    ``Database.run`` does that.
    """

    kind = "conflict"


class Aborted(Error):
    """The transaction exceeded its time limit; nothing was written. Begin a new one."""

    kind = "aborted"


class Interrupted(Error):
    """A wait for a lock was ended; the call had no effect."""

    kind = "interrupted"


class Internal(Error):
    """A bug in the engine. Please report it."""

    kind = "internal error"


_BY_KIND: dict[str, type[Error]] = {cls.kind: cls for cls in Error.__subclasses__()}


def make_error(kind: str, message: str, fields: dict[str, Any]) -> Error:
    """Returns the exception for an error of the engine; called by the native module."""
    error = _BY_KIND.get(kind, Error)(message)
    error.__dict__.update(fields)
    return error

"""Perigee: an embedded, ordered, transactional key-value store.

A database is a directory. ``perigeedb.open`` returns it as a mapping from ``bytes`` to ``bytes``
that is sorted by key:

>>> with perigeedb.open(path + "/moon.db") as moon:
...     moon["full"] = "2026-11-24"
...     moon["new"] = "2026-12-08"
...     for key, value in moon["a":"g"]:
...         print(key, value)
b'full' b'2026-11-24'
"""

from collections.abc import Mapping, MutableMapping

from ._errors import (
    Aborted,
    AlreadyExists,
    Busy,
    Closed,
    Conflict,
    Corruption,
    Error,
    FormatTooNew,
    Internal,
    Interrupted,
    InvalidArgument,
    IoError,
    Locked,
    NoMemory,
    NoSpace,
    NotFound,
    OutcomeUnknown,
    Poisoned,
    ReadOnly,
)
from ._native import (
    Backups,
    Batch,
    BatchView,
    ChangeFeed,
    Commit,
    Database,
    Family,
    FamilyChange,
    Operation,
    Range,
    RangeIterator,
    ReadView,
    Snapshot,
    Transaction,
    TransactionView,
    WriteView,
    __version__,
    open,
    repair,
)

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Backups",
    "Batch",
    "BatchView",
    "Busy",
    "ChangeFeed",
    "Closed",
    "Commit",
    "Conflict",
    "Corruption",
    "Database",
    "Error",
    "Family",
    "FamilyChange",
    "FormatTooNew",
    "Internal",
    "Interrupted",
    "InvalidArgument",
    "IoError",
    "Locked",
    "NoMemory",
    "NoSpace",
    "NotFound",
    "Operation",
    "OutcomeUnknown",
    "Poisoned",
    "Range",
    "RangeIterator",
    "ReadOnly",
    "ReadView",
    "Snapshot",
    "Transaction",
    "TransactionView",
    "WriteView",
    "__version__",
    "open",
    "repair",
]

Mapping.register(ReadView)
MutableMapping.register(WriteView)

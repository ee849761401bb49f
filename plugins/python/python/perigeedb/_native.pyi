"""Types of the native module; the classes are documented where they are defined."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from datetime import timedelta
from os import PathLike
from pathlib import Path
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, TypedDict, TypeVar, final, overload

from _typeshed import SupportsKeysAndGetItem
from typing_extensions import Buffer, Self, TypeAlias, Unpack, disjoint_base

__all__ = [
    "Backups",
    "Batch",
    "BatchView",
    "ChangeFeed",
    "Commit",
    "Database",
    "Family",
    "FamilyChange",
    "Operation",
    "Range",
    "RangeIterator",
    "ReadView",
    "Snapshot",
    "Transaction",
    "TransactionView",
    "WriteView",
    "__version__",
    "open",
    "repair",
]

__version__: str

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

_Data: TypeAlias = str | Buffer
"""A key or value: str (encoded as UTF-8) or bytes-like."""
_Seconds: TypeAlias = float | timedelta
_Durability: TypeAlias = str | timedelta
_Isolation: TypeAlias = Literal[
    "read_uncommitted",
    "read_committed",
    "repeatable_read",
    "snapshot",
    "serializable",
    "read uncommitted",
    "read committed",
    "repeatable read",
]
_Path: TypeAlias = str | PathLike[str]
_Size: TypeAlias = int | str
"""A number of bytes, or text such as "64 MiB"."""
_Keys: TypeAlias = Buffer | list[bytes] | tuple[bytes, ...]
"""A key of 32 bytes, or several, the newest last."""
_Entries: TypeAlias = SupportsKeysAndGetItem[Any, Any] | Iterable[tuple[_Data, _Data]]
"""A mapping of keys to values, or pairs; each str or bytes-like."""

class _FamilyOptions(TypedDict, total=False):
    comparator: str | None
    memtable_bytes: _Size | None
    value_threshold: _Size | None
    block_bytes: _Size | None
    compression: str | None
    filter_bits: int | str | None
    target_file_bytes: _Size | None
    level1_bytes: _Size | None
    level_ratio: int | None
    isolation: str | None
    merge_operator: str | None

@final
class RangeIterator(Iterator[_T_co], Generic[_T_co]):
    """An iterator over entries, keys or values in key order. It shows the state at its start: later
    writes do not change it. Several threads can share an iterator: each entry is returned once.
    """
    def __iter__(self) -> Self: ...
    def __next__(self) -> _T_co: ...
    def close(self) -> None:
        """Ends the iteration and releases the files that it pinned. An iterator that has returned its
        last entry is closed already.
        """

@final
class Range(Generic[_T_co]):
    """The keys, values or entries of a range of keys, read again by each iteration. Made by `keys()`,
    `values()` and `items()` of a view, and by slices such as `db["a":"f"]`.

    >>> db.update({"a": "1", "b": "2", "c": "3"})
    >>> days = db.keys(start="b")
    >>> list(days), list(reversed(days)), days.count()
    ([b'b', b'c'], [b'c', b'b'], 2)
    """
    def __iter__(self) -> RangeIterator[_T_co]: ...
    def __reversed__(self) -> RangeIterator[_T_co]: ...
    def __contains__(self, item: Any, /) -> bool: ...
    def count(self) -> int:
        """Returns the exact number of entries, by a scan over the keys. `estimate` is faster.

        >>> db.update({"a": "1", "b": "2"})
        >>> db["a":"b"].count()
        1
        """
    @classmethod
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

# The type of the keys is Any, because they can be given as str, bytes and other buffers: so a view
# can be passed where a mapping from one of these types is expected. Iterations return bytes.
@disjoint_base
class ReadView(Mapping[Any, bytes]):
    """A read-only mapping from keys to values, sorted by key. Keys and values can be given as `bytes`,
    as `str` (encoded as UTF-8) or as any other bytes-like object; results are `bytes`. It is the
    base class of databases, column families, snapshots and transactions.
    """
    @overload
    def __getitem__(self, key: _Data, /) -> bytes: ...
    @overload
    def __getitem__(self, key: slice, /) -> Range[tuple[bytes, bytes]]: ...
    @overload
    def get(self, key: _Data, default: None = None, /) -> bytes | None:
        """Returns the value of a key, or `default` if the key does not exist.

        >>> db["moon"] = "full"
        >>> db.get("moon"), db.get("sun"), db.get("sun", b"?")
        (b'full', None, b'?')
        """
    @overload
    def get(self, key: _Data, default: _T, /) -> bytes | _T: ...
    @overload
    def get_many(self, keys: Iterable[_Data], default: None = None, /) -> list[bytes | None]:
        """Returns the values of many keys as of one moment, in the order of the keys; `default` for
        keys that do not exist. Faster than single reads if keys are close to each other or must be
        read from disk.

        >>> db.update({"moon": "full", "tide": "high"})
        >>> db.get_many(["tide", "wind", "moon"])
        [b'high', None, b'full']
        """
    @overload
    def get_many(self, keys: Iterable[_Data], default: _T, /) -> list[bytes | _T]: ...
    def __contains__(self, key: Any, /) -> bool: ...
    def __iter__(self) -> RangeIterator[bytes]: ...
    def __reversed__(self) -> RangeIterator[bytes]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def keys(  # type: ignore[override]
        self,
        *,
        prefix: _Data | None = None,
        start: _Data | None = None,
        end: _Data | None = None,
        reverse: bool = False,
    ) -> Range[bytes]:
        """Returns the keys in order, or those from `start` (inclusive) to `end` (exclusive) that begin
        with `prefix`; in descending order if `reverse`. Values are not read.

        >>> db.update({"user/1": "ann", "user/2": "bob", "visits": "7"})
        >>> list(db.keys(prefix="user/"))
        [b'user/1', b'user/2']
        """
    def values(  # type: ignore[override]
        self,
        *,
        prefix: _Data | None = None,
        start: _Data | None = None,
        end: _Data | None = None,
        reverse: bool = False,
    ) -> Range[bytes]:
        """Returns the values in the order of their keys; arguments as for `keys`.

        >>> db.update({"user/1": "ann", "user/2": "bob"})
        >>> list(db.values(start="user/2"))
        [b'bob']
        """
    def items(  # type: ignore[override]
        self,
        *,
        prefix: _Data | None = None,
        start: _Data | None = None,
        end: _Data | None = None,
        reverse: bool = False,
    ) -> Range[tuple[bytes, bytes]]:
        """Returns the entries `(key, value)` in the order of their keys; arguments as for `keys`.

        >>> db.update({"user/1": "ann", "user/2": "bob"})
        >>> for key, value in db.items(prefix="user/", reverse=True):
        ...     print(key, value)
        b'user/2' b'bob'
        b'user/1' b'ann'
        """
    def first(
        self, *, prefix: _Data | None = None, start: _Data | None = None, end: _Data | None = None
    ) -> tuple[bytes, bytes] | None:
        """Returns the entry with the smallest key, or `None`; arguments as for `keys`.

        >>> db.update({"06:12": "high", "12:31": "low"})
        >>> db.first(), db.first(start="07")
        ((b'06:12', b'high'), (b'12:31', b'low'))
        """
    def last(
        self, *, prefix: _Data | None = None, start: _Data | None = None, end: _Data | None = None
    ) -> tuple[bytes, bytes] | None:
        """Returns the entry with the largest key, or `None`; arguments as for `keys`.

        >>> db.update({"06:12": "high", "12:31": "low"})
        >>> db.last(), db.last(end="12")
        ((b'12:31', b'low'), (b'06:12', b'high'))
        """
    def ttl(self, key: _Data, /) -> float | None:
        """Returns the time in seconds until a key expires, or `None` if it never does. Raises
        `KeyError` if the key does not exist.

        >>> db.put("session", "ann", ttl=60)
        >>> 0 < db.ttl("session") <= 60
        True
        """
    def get_with_ttl(self, key: _Data, /) -> tuple[bytes, float | None] | None:
        """Returns a value and the time in seconds until it expires (`None`: never), or `None` if the
        key does not exist.

        >>> db["moon"] = "full"
        >>> db.get_with_ttl("moon"), db.get_with_ttl("sun")
        ((b'full', None), None)
        """
    def estimate(
        self, *, start: _Data | None = None, end: _Data | None = None
    ) -> dict[str, int]:
        """Estimates the size of a range of keys without reading it: a dictionary with `keys`,
        `entries` (with overwritten versions), `disk_bytes` and `memory_bytes`.

        >>> db.update({"a": "1", "b": "2", "c": "3"})
        >>> db.estimate(start="b")["keys"]
        2
        """

@disjoint_base
class WriteView(ReadView, MutableMapping[Any, bytes]):
    """A mutable mapping from keys to values, sorted by key: a column family, or a column family in a
    transaction.
    """
    def __setitem__(self, key: _Data, value: _Data, /) -> None: ...
    def __delitem__(self, key: _Data | slice, /) -> None: ...
    def put(
        self,
        key: _Data,
        value: _Data,
        /,
        *,
        ttl: _Seconds | None = None,
        durability: _Durability | None = None,
    ) -> None:
        """Sets the value of a key. With `ttl`, seconds or a `timedelta`, the key does not exist any
        more after that time. `durability` is `"full"` (survives a power failure), `"none"` or
        `"interval 100 ms"`; by default that of the database.

        >>> from datetime import timedelta
        >>> db.put("moon", "full")
        >>> db.put("session", b"ann", ttl=timedelta(minutes=10), durability="none")
        """
    def delete(self, key: _Data, /, *, durability: _Durability | None = None) -> None:
        """Deletes a key. A key that does not exist is no error, and the key is not read.

        >>> db["moon"] = "full"
        >>> db.delete("moon")
        >>> "moon" in db
        False
        """
    @overload
    def pop(self, key: _Data, /) -> bytes:
        """Deletes a key and returns its value. If the key does not exist, returns `default`, or raises
        `KeyError` without one. Atomic: of several threads only one gets the value.

        >>> db["moon"] = "full"
        >>> db.pop("moon"), db.pop("moon", None)
        (b'full', None)
        """
    @overload
    def pop(self, key: _Data, default: _T, /) -> bytes | _T: ...
    def popitem(self, *, last: bool = True) -> tuple[bytes, bytes]:
        """Deletes the entry with the largest key, or with the smallest one if `last` is false, and
        returns it. Raises `KeyError` if there are no entries.

        >>> db.update({"a": "1", "b": "2"})
        >>> db.popitem(last=False)
        (b'a', b'1')
        """
    def setdefault(self, key: _Data, default: _Data, /) -> bytes:
        """Returns the value of a key. If the key does not exist, puts `default` and returns it.
        Atomic.

        >>> db.setdefault("moon", "new"), db.setdefault("moon", "full")
        (b'new', b'new')
        """
    def update(
        self, other: _Entries | None = None, /, **entries: _Data
    ) -> None:
        """Puts all entries of a mapping or of an iterable of pairs, and the keyword arguments, as one
        atomic batch of at most 2 GiB. For more entries use several calls, or `bulk_load`.

        >>> db.update({"moon": "full"}, tide="high")
        >>> dict(db)
        {b'moon': b'full', b'tide': b'high'}
        """
    def clear(self) -> None:
        """Deletes all keys.

        >>> db.update({"a": "1", "b": "2"})
        >>> db.clear()
        >>> len(db)
        0
        """
    def delete_range(self, start: _Data | None = None, end: _Data | None = None) -> None:
        """Deletes the keys from `start` (inclusive) to `end` (exclusive), at a cost that does not
        depend on their number. `del db["a":"f"]` does the same.

        >>> db.update({"a": "1", "b": "2", "c": "3"})
        >>> db.delete_range("b")
        >>> list(db)
        [b'a']
        """
    def delete_prefix(self, prefix: _Data, /) -> None:
        """Deletes the keys that begin with `prefix`, at a cost that does not depend on their number.

        >>> db.update({"user/1": "ann", "visits": "7"})
        >>> db.delete_prefix("user/")
        >>> list(db)
        [b'visits']
        """
    def merge(
        self, key: _Data, operand: _Data | int, /, *, durability: _Durability | None = None
    ) -> None:
        """Merges an operand into the value of a key without reading it. The column family needs a
        merge operator: `"counter"` adds integers (8 bytes, little-endian; an `int` can be passed),
        `"append:,"` appends text after a separator.

        >>> visits = db.family("visits", merge_operator="counter")
        >>> visits.merge("home", 1); visits.merge("home", 2)
        >>> int.from_bytes(visits["home"], "little", signed=True)
        3
        """

@disjoint_base
class Family(WriteView):
    """A column family: a separate mapping with its own options, in the same database. Batches and
    transactions change several column families atomically.

    >>> tides = db.family("tides", compression="zstd 3")
    >>> tides["06:12"] = "high"
    >>> tides.name, "06:12" in db
    ('tides', False)
    """
    @property
    def name(self) -> str:
        """Name of the column family."""
    @property
    def id(self) -> int:
        """Number of the column family, which is never reused in a database."""
    def options(self) -> dict[str, Any]:
        """Returns the options of the column family: names and values as in an options file.

        >>> db.family("logs", compression="zstd 3").options()["compression"]
        'zstd 3'
        """
    def set_options(self, **options: Unpack[_FamilyOptions]) -> None:
        """Changes some options of the column family, durably; they apply to files written from now on.
        The comparator and an existing merge operator cannot be changed.

        >>> logs = db.family("logs")
        >>> logs.set_options(compression="zstd 3", block_bytes="16 KiB")
        >>> logs.options()["block_bytes"]
        '16 KiB'
        """
    def stats(self) -> dict[str, Any]:
        """Returns statistics of the column family as a dictionary (`docs/STATISTICS.md`).

        >>> db.family("logs").stats()["name"]
        'logs'
        """
    def flush(self) -> None:
        """Writes the memtable of the column family to a table file."""
    def compact(self, start: _Data | None = None, end: _Data | None = None) -> None:
        """Merges the tables that contain keys from `start` to `end` (by default all) and drops
        overwritten and deleted entries.
        """
    def purge(self) -> None:
        """Reclaims the space of all deleted, overwritten and expired entries."""
    def compare_and_swap(
        self, key: _Data, expected: _Data | None, new: _Data | None, /
    ) -> bool:
        """Replaces the value of a key with `new` if it is `expected`; `None` stands for a key that
        does not exist. Returns true if the value was replaced. Atomic.

        >>> db.compare_and_swap("leader", None, "node 1")
        True
        >>> db.compare_and_swap("leader", "node 2", "node 3"), db["leader"]
        (False, b'node 1')
        """
    def bulk_load(
        self, items: Iterable[tuple[_Data, _Data]], /, *, memory_bytes: int | None = None
    ) -> dict[str, int]:
        """Adds the entries of an iterable of pairs, in any order, directly to table files: much faster
        than single writes, and not limited by memory. All of them become visible at once at the
        end, or none if an error occurs. Returns a dictionary with `entries`, `bytes` and
        `sequence`.

        >>> report = db.bulk_load((f"{i:06}", str(i * i)) for i in range(1000))
        >>> report["entries"], db["000012"]
        (1000, b'144')
        """

@final
class Snapshot(ReadView):
    """A read-only view of the database at one moment: a mapping of the column family `default`, with
    `on` for others. Costs nothing to make; until it is closed, old versions are kept on disk.

    >>> db["moon"] = "new"
    >>> with db.snapshot() as snapshot:
    ...     db["moon"] = "full"
    ...     print(snapshot["moon"], db["moon"])
    b'new' b'full'
    """
    def on(self, family: str | Family, /) -> ReadView:
        """Returns a column family, given by name or handle, as of the snapshot.

        >>> tides = db.family("tides")
        >>> tides["06:12"] = "high"
        >>> snapshot = db.snapshot()
        >>> del tides["06:12"]
        >>> list(snapshot.on("tides"))
        [b'06:12']
        """
    @property
    def sequence(self) -> int:
        """Sequence number of the last write that the snapshot sees."""
    @property
    def closed(self) -> bool:
        """True after `close`."""
    def close(self) -> None:
        """Releases the snapshot. Reads of it fail from now on; closing it again has no effect."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...

@disjoint_base
class TransactionView(WriteView):
    """A column family in a transaction."""
    @overload
    def get_for_update(
        self, key: _Data, default: None = None, /, *, shared: bool = False
    ) -> bytes | None:
        """Locks a key and returns its value, or `default`. Until the transaction ends, no other one
        can lock the key (with `shared`, others can get shared locks), and if the key is changed
        without a lock, the commit of this transaction raises `Conflict`. Raises `Busy` if the lock
        is not granted within `lock_timeout`.

        >>> with db.transaction(lock=True) as txn:
        ...     seats = int(txn.get_for_update("seats", b"5"))
        ...     txn["seats"] = str(seats - 1)
        >>> db["seats"]
        b'4'
        """
    @overload
    def get_for_update(
        self, key: _Data, default: _T, /, *, shared: bool = False
    ) -> bytes | _T: ...
    def lock(self, key: _Data, /, *, shared: bool = False) -> None:
        """Locks a key, which need not exist, without reading it; see `get_for_update`."""

@final
class Transaction(TransactionView):
    """A transaction: a mapping of the column family `default`, with `on` for others. Its writes are
    private until it is committed, and then become visible together. As a context manager it commits
    at the end, and rolls back if the block raises an exception.

    >>> db["ann"], db["bob"] = "70", "30"
    >>> with db.transaction() as txn:
    ...     amount = 20
    ...     txn["ann"] = str(int(txn["ann"]) - amount)
    ...     txn["bob"] = str(int(txn["bob"]) + amount)
    >>> db["ann"], db["bob"]
    (b'50', b'50')
    """
    def on(self, family: str | Family, /) -> TransactionView:
        """Returns a column family, given by name or handle, in the transaction.

        >>> tides = db.family("tides")
        >>> with db.transaction() as txn:
        ...     txn["moon"] = "full"
        ...     txn.on("tides")["06:12"] = "high"
        >>> db["moon"], tides["06:12"]
        (b'full', b'high')
        """
    def commit(self, *, durability: _Durability | None = None) -> int:
        """Commits the transaction and returns the sequence number of its last write. Raises `Conflict`
        if another commit came first: then nothing was written, and the work has to be done again
        from the start, as `Database.run` does.
        """
    def rollback(self) -> None:
        """Discards all writes. Has no effect on a transaction that has ended."""
    def savepoint(self, name: str, /) -> None:
        """Sets a savepoint with this name at the current end of the writes.

        >>> with db.transaction() as txn:
        ...     txn["moon"] = "full"
        ...     txn.savepoint("s")
        ...     txn["moon"] = "new"
        ...     txn.rollback_to("s")
        >>> db["moon"]
        b'full'
        """
    def rollback_to(self, name: str, /) -> None:
        """Discards the writes since a savepoint and releases the locks taken since then. The savepoint
        stays set.
        """
    def release_savepoint(self, name: str, /) -> None:
        """Removes a savepoint and all later ones; the writes stay."""
    @property
    def state(self) -> Literal["active", "committed", "rolled back"]:
        """State of the transaction: `"active"`, `"committed"` or `"rolled back"`."""
    @property
    def isolation(self) -> str:
        """Isolation level of the transaction, such as `"snapshot"`."""
    @property
    def operations(self) -> int:
        """Number of writes so far."""
    @property
    def bytes(self) -> int:
        """Size of the writes so far in bytes."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...

@disjoint_base
class BatchView:
    """A column family in a batch: the same writes as in a batch itself."""
    def __setitem__(self, key: _Data, value: _Data, /) -> None: ...
    def __delitem__(self, key: _Data | slice, /) -> None: ...
    def put(self, key: _Data, value: _Data, /, *, ttl: _Seconds | None = None) -> None:
        """Adds a put of a value, with `ttl` seconds (or a `timedelta`) to live from now on."""
    def delete(self, key: _Data, /) -> None:
        """Adds a delete of a key, which need not exist."""
    def merge(self, key: _Data, operand: _Data | int, /) -> None:
        """Adds a merge of an operand; see `Family.merge`."""
    def delete_range(self, start: _Data | None = None, end: _Data | None = None) -> None:
        """Adds a delete of the keys from `start` (inclusive) to `end` (exclusive). It applies to
        earlier operations of the batch, but not to later ones.
        """
    def delete_prefix(self, prefix: _Data, /) -> None:
        """Adds a delete of the keys that begin with `prefix`."""

@final
class Batch(BatchView):
    """A sequence of writes to any number of column families that is applied atomically. As a context
    manager it is written at the end, and discarded if the block raises an exception.

    >>> tides = db.family("tides")
    >>> with db.batch() as batch:
    ...     batch["moon"] = "full"
    ...     batch.delete("sun")
    ...     batch.on(tides)["06:12"] = "high"
    >>> db["moon"], tides["06:12"]
    (b'full', b'high')
    """
    def on(self, family: str | Family, /) -> BatchView:
        """Returns a column family, given by name or handle, in the batch."""
    def commit(self) -> int:
        """Writes the batch and returns the sequence number of its last operation. The batch has ended,
        also after an error.
        """
    def discard(self) -> None:
        """Discards the batch. Has no effect on a batch that has ended."""
    def __len__(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Size of the operations so far in bytes."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...

@final
class Operation:
    """One operation of a commit. `kind` is `"put"`, `"delete"`, `"single_delete"`, `"merge"` or
    `"delete_range"`. A put has `key`, `value` and perhaps `expires_at` (seconds since the Unix
    epoch), a merge has `key` and the operand as `value`. A range delete has `start` and `end`,
    `None` if the range has no such bound; `start_inclusive` and `end_inclusive` say whether the
    bound itself is deleted.
    """
    @property
    def sequence(self) -> int:
        """Sequence number of the operation."""
    @property
    def family(self) -> str:
        """Name of the column family at the time of the commit."""
    @property
    def kind(
        self,
    ) -> Literal["put", "delete", "single_delete", "merge", "delete_range", "unknown"]:
        """Kind of the operation."""
    @property
    def key(self) -> bytes | None:
        """The key, or `None` for a range delete."""
    @property
    def value(self) -> bytes | None:
        """The value or operand, or `None`."""
    @property
    def expires_at(self) -> float | None:
        """Time at which a put expires, in seconds since the Unix epoch, or `None`."""
    @property
    def start(self) -> bytes | None:
        """First bound of a range delete, or `None`."""
    @property
    def start_inclusive(self) -> bool:
        """True if the first bound itself is deleted."""
    @property
    def end(self) -> bytes | None:
        """Second bound of a range delete, or `None`."""
    @property
    def end_inclusive(self) -> bool:
        """True if the second bound itself is deleted."""

@final
class Commit:
    """A commit in a change feed: all its operations, on all column families."""
    @property
    def sequence(self) -> int:
        """Sequence number of the last operation."""
    @property
    def first_sequence(self) -> int:
        """Sequence number of the first operation."""
    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations, a tuple of `Operation`, in the order of the batch."""

@final
class FamilyChange:
    """A change of a column family as a whole in a change feed. `kind` is `"created"`, `"dropped"`,
    `"renamed"`, `"cleared"`, `"cloned"` or `"loaded"`: after a bulk load, whose entries are not in
    the feed, read the column family.
    """
    @property
    def sequence(self) -> int:
        """Sequence number of the change."""
    @property
    def family_id(self) -> int:
        """Number of the column family (`Family.id`)."""
    @property
    def kind(
        self,
    ) -> Literal["created", "dropped", "renamed", "cleared", "cloned", "loaded", "unknown"]:
        """Kind of the change."""
    @property
    def name(self) -> str | None:
        """Name of the column family, the new one after a rename; `None` for `"cleared"` and
        `"loaded"`.
        """
    @property
    def old_name(self) -> str | None:
        """Name before a rename."""

@final
class ChangeFeed(Iterator[Commit | FamilyChange]):
    """An iterator over everything that was committed after a position, as `Commit` and `FamilyChange`
    objects, in commit order. The iteration ends when no further change has come within the timeout
    of the feed; iterating again continues after the last change that was returned.

    >>> feed = db.changes()
    >>> db.update({"moon": "full", "tide": "high"})
    >>> for change in feed:
    ...     for operation in change.operations:
    ...         print(change.sequence, operation.kind, operation.key, operation.value)
    2 put b'moon' b'full'
    2 put b'tide' b'high'
    >>> feed.position
    2
    """
    @property
    def position(self) -> int:
        """Sequence number up to which all changes have been returned. Store it with the result of
        processing them, and continue there: `db.changes(position)`.
        """
    def __iter__(self) -> Self: ...
    def __next__(self) -> Commit | FamilyChange: ...

@final
class Backups:
    """A directory of backups, written by `Database.backup`. Each backup is a numbered generation that
    can be restored to a complete database. No database needs to be open.

    >>> db["moon"] = "full"
    >>> db.backup(path + "/backups")["generation"]
    1
    >>> backups = perigeedb.Backups(path + "/backups")
    >>> report = backups.restore(path + "/restored")
    >>> with perigeedb.open(path + "/restored") as restored:
    ...     print(restored["moon"])
    b'full'
    """
    def __new__(cls, path: _Path, *, encryption_keys: _Keys | None = None) -> Self: ...
    def list(self) -> list[dict[str, Any]]:
        """Returns a dictionary for each generation, the oldest first, with `generation`, `sequence`,
        `created_ms`, `bytes` and `files`.
        """
    def verify(self, generation: int | None = None) -> dict[str, Any]:
        """Compares every file of a generation, or of all, with its checksum. Returns a dictionary;
        damage is listed in `errors`.
        """
    def restore(self, target: _Path, generation: int | None = None) -> dict[str, int]:
        """Restores a generation, by default the newest, to the directory `target`, which must not
        exist or must be empty. Every byte is compared with its checksum.
        """
    def prune(self, keep: int) -> dict[str, Any]:
        """Removes all but the newest `keep` generations."""

@final
class Database(Family):
    """An open database: a mapping from keys to values, sorted by key, and the other column families.
    Made by `open`. All methods can be called from any number of threads at once.
    """
    @property
    def path(self) -> Path:
        """Directory of the database."""
    @property
    def closed(self) -> bool:
        """True after `close`."""
    def close(self) -> None:
        """Makes every write durable and closes the database. Other objects made from it, such as
        iterators, raise `Closed` from now on. Closing again has no effect.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...
    def family(
        self, name: str, /, *, create: bool = True, **options: Unpack[_FamilyOptions]
    ) -> Family:
        """Returns the column family with this name. Creates it with the given options if it does not
        exist, or, if `create` is false, raises `NotFound`. The options have no effect on a column
        family that exists: `Family.set_options` changes them.

        >>> logs = db.family("logs", compression="zstd 3", filter_bits=12)
        >>> logs["2026-11-29"] = "first light"
        >>> db.families()
        ['default', 'logs']
        """
    def families(self) -> list[str]:
        """Returns the names of all column families, sorted."""
    def drop_family(self, name: str, /) -> None:
        """Drops a column family and its contents. Open iterators still return its entries."""
    def rename_family(self, name: str, new_name: str, /) -> None:
        """Renames a column family. Handles stay valid."""
    def batch(self, *, durability: _Durability | None = None) -> Batch:
        """Returns an empty batch of writes, which are applied atomically; a context manager."""
    def transaction(
        self,
        *,
        isolation: _Isolation | None = None,
        lock: bool = False,
        read_only: bool = False,
        lock_timeout: _Seconds | None = None,
        timeout: _Seconds | None = None,
        max_bytes: int | None = None,
        durability: _Durability | None = None,
    ) -> Transaction:
        """Begins a transaction; a context manager that commits at the end.

        `isolation` is `"read_committed"`, `"repeatable_read"`, `"snapshot"` (the default) or
        `"serializable"`. With `lock`, each key is locked before it is written, and a call waits up
        to `lock_timeout` seconds (default 1) for other transactions; otherwise the second of two
        transactions that wrote the same key raises `Conflict` when it commits. A transaction that
        began before it got a lock can still conflict with the one that held it, unless its
        isolation is `"read_committed"`: use `run`. A `read_only`
        transaction never conflicts. After `timeout` seconds calls raise `Aborted`; writes of more
        than `max_bytes` are rejected. `durability` is that of the commit.
        """
    def run(
        self,
        work: Callable[[Transaction], _T],
        /,
        *,
        retries: int = 100,
        isolation: _Isolation | None = None,
        lock: bool = False,
        read_only: bool = False,
        lock_timeout: _Seconds | None = None,
        timeout: _Seconds | None = None,
        max_bytes: int | None = None,
        durability: _Durability | None = None,
    ) -> _T:
        """Calls `work(transaction)`, commits, and returns the result of `work`. After a conflict, it
        calls `work` again on the current state, up to `retries` times, with increasing pauses; so
        `work` must not have other side effects. If `work` raises an exception, nothing is committed. Other
        arguments are those of `transaction`.

        >>> def count_visit(txn):
        ...     visits = int(txn.get("visits", b"0")) + 1
        ...     txn["visits"] = str(visits)
        ...     return visits
        >>> db.run(count_visit), db.run(count_visit)
        (1, 2)
        """
    def snapshot(self, *, name: str | None = None, at: int | None = None) -> Snapshot:
        """Returns a snapshot: a read-only view of all column families as they are now, or as of the
        named snapshot `name` (`create_snapshot`), or right after the write with the sequence number
        `at`, if that state is still there (option `history`). A context manager.
        """
    def create_snapshot(self, name: str, /) -> int:
        """Creates a snapshot with a name, which survives a restart, and returns its sequence number.

        >>> db["moon"] = "new"
        >>> sequence = db.create_snapshot("before")
        >>> db["moon"] = "full"
        >>> db.snapshot(name="before")["moon"], db.named_snapshots() == {"before": sequence}
        (b'new', True)
        >>> db.drop_snapshot("before")
        """
    def drop_snapshot(self, name: str, /) -> None:
        """Deletes a named snapshot."""
    def named_snapshots(self) -> dict[str, int]:
        """Returns the named snapshots: a dictionary from names to sequence numbers."""
    @property
    def sequence(self) -> int:
        """Sequence number of the newest write."""
    def changes(self, since: int = 0, *, timeout: _Seconds | None = 0) -> ChangeFeed:
        """Returns an iterator over everything that is committed durably after the sequence number
        `since` (0: from the beginning). It ends when there was no further change for `timeout`
        seconds (default 0; `None`: it waits without limit). Raises `NotFound` if the log does not
        reach back that far: the option `log_retention` keeps more of it.
        """
    def sync(self) -> None:
        """Makes every write so far survive a power failure. Needed only with a durability other than
        `"full"`.
        """
    def flush(self) -> None:
        """Writes the memtables of all column families to table files."""
    def compact(self) -> None:  # type: ignore[override]
        """Compacts all column families: drops overwritten and deleted entries. Can rewrite the whole
        database. `db.family("default").compact(start, end)` compacts a range of keys.
        """
    def purge(self) -> None:
        """Reclaims the space of all deleted, overwritten and expired entries of all column families."""
    def wait_idle(self, timeout: _Seconds | None = None) -> bool:
        """Waits until no flush or compaction is running or due, for at most `timeout` seconds. Returns
        false after the timeout.
        """
    def verify(self) -> dict[str, Any]:
        """Reads every byte of every file and checks it. Returns a dictionary with `files`, `bytes`,
        `entries` and `errors`, one for each damaged file.

        >>> db["moon"] = "full"
        >>> db.flush()
        >>> db.verify()["errors"]
        []
        """
    def checkpoint(self, path: _Path) -> dict[str, int]:
        """Creates a copy of the database, as of now, in the directory `path`, which must not exist or
        must be empty. On the same file system the files are shared by hard links.
        """
    def backup(self, path: _Path, *, reread: bool = False) -> dict[str, int]:
        """Adds a backup to the directory `path`; only files that it does not contain are copied. See
        `Backups` for restoring. With `reread`, shared files of earlier backups are checked too.
        """
    def stats(self) -> dict[str, Any]:
        """Returns statistics of the database, its column families and background work as a dictionary
        (`docs/STATISTICS.md`).

        >>> db["moon"] = "full"
        >>> db.stats()["last_sequence"]
        1
        """
    def counters(self) -> dict[str, int]:
        """Returns the counters since the database was opened: a dictionary from names to numbers. Much
        cheaper than `stats`.
        """
    def metrics(self) -> dict[str, float]:
        """Returns the metrics as a dictionary from names, with labels, to numbers.

        >>> db["moon"] = "full"
        >>> db.metrics()["perigee_last_sequence"]
        1.0
        """
    def metrics_text(self) -> str:
        """Returns the metrics as OpenMetrics text, for an endpoint `/metrics`
        (`application/openmetrics-text; version=1.0.0`).
        """
    def files(self) -> list[dict[str, Any]]:
        """Returns a dictionary for each table file: level, size, number of entries, range of keys."""

def open(
    path: _Path,
    /,
    *,
    encryption_keys: _Keys | None = None,
    families: Mapping[str, _FamilyOptions] | None = None,
    create_if_missing: bool | None = None,
    error_if_exists: bool | None = None,
    read_only: bool | None = None,
    salvage_readonly: bool | None = None,
    durability: _Durability | None = None,
    isolation: _Isolation | None = None,
    memory_budget: _Size | None = None,
    block_cache_bytes: _Size | None = None,
    row_cache_bytes: _Size | None = None,
    max_open_files: int | None = None,
    min_free_space: _Size | None = None,
    verify_outputs: bool | None = None,
    background_rate: _Size | None = None,
    space_amplification: int | None = None,
    scrub_interval: _Seconds | str | None = None,
    log_retention: _Size | None = None,
    history: str | timedelta | None = None,
    latency_stats: bool | None = None,
    log_file_bytes: _Size | None = None,
    log_files_kept: int | None = None,
    comparator: str | None = None,
    memtable_bytes: _Size | None = None,
    value_threshold: _Size | None = None,
    block_bytes: _Size | None = None,
    compression: str | None = None,
    filter_bits: int | str | None = None,
    target_file_bytes: _Size | None = None,
    level1_bytes: _Size | None = None,
    level_ratio: int | None = None,
    merge_operator: str | None = None,
) -> Database:
    """Opens the database in the directory `path`, or creates it, and returns a `Database`, which is a
    context manager and a mapping. Only one process at a time can open a database for writing.

    Options of the database are keyword arguments: `create_if_missing`, `error_if_exists`,
    `read_only`, `durability` ("full", "none", "interval 100 ms"), `isolation`, `memory_budget`
    ("512 MiB" or a number of bytes) and all others of `docs/OPTIONS.md`; `None` is the default.
    Options of a column family, such as `compression`, replace all options of the column family
    `default`; `families` is a dictionary from names of other column families, which are created if
    they do not exist, to their options.

    With `encryption_keys`, a key of 32 bytes or a list of keys, the files are encrypted; every later
    open needs all keys that were used. New files are written with the last key of the list.

    Raises `Locked` if the database is already open, `NotFound` if it must not be created,
    `InvalidArgument` or `ValueError` for wrong values and `TypeError` for unknown options.

    >>> other = perigeedb.open(path + "/other", memory_budget="64 MiB", durability="none")
    >>> other["moon"] = "full"
    >>> other.close()
    """
def repair(
    source: _Path, target: _Path, *, encryption_keys: _Keys | None = None
) -> dict[str, Any]:
    """Writes a new database to `target` with everything that can be read in the damaged database
    `source`, which is not changed. Returns a dictionary: `lost` lists what could not be read; it is
    empty if nothing is missing.
    """

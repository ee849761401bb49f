"""Asynchronous use: the calls of a database as coroutines.

Every call runs in a thread of a pool that belongs to the database, so the event loop never waits
for the disk:

>>> import asyncio
>>> from perigeedb import aio
>>> async def main():
...     async with aio.open(path + "/aio.db") as db:
...         await db.put("moon", "full")
...         async for key, value in db.items(prefix="m"):
...             print(key, value)
...         print(await db.call(db.sync.flush))
>>> asyncio.run(main())
b'moon' b'full'
None

``call`` runs any other function of the package: ``await db.call(db.sync.backup, "/backup")``.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, TypeVar

import perigeedb

__all__ = [
    "AsyncDatabase",
    "AsyncRange",
    "AsyncTransaction",
    "AsyncView",
    "AsyncWriteView",
    "Opening",
    "open",
]

_T = TypeVar("_T")
_BATCH_ENTRIES = 512


class AsyncRange(Generic[_T]):
    """The keys, values or entries of a range, for ``async for``; read in batches."""

    def __init__(self, view: AsyncView, make: Callable[[], Iterable[_T]]) -> None:
        self._view = view
        self._make = make

    async def __aiter__(self) -> AsyncIterator[_T]:
        iterator = await self._view.call(lambda: iter(self._make()))
        try:
            while True:
                part = itertools.islice(iterator, _BATCH_ENTRIES)
                batch: list[_T] = await self._view.call(list, part)
                for item in batch:
                    yield item
                if len(batch) < _BATCH_ENTRIES:
                    return
        finally:
            # Releases the files that the iteration pinned, if it was left early.
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    async def list(self) -> list[_T]:
        """Returns all items as a list."""
        return await self._view.call(lambda: list(self._make()))


class AsyncView:
    """A column family, snapshot or transaction whose calls are coroutines.

    ``sync`` is the object with the blocking calls.
    """

    def __init__(self, sync: perigeedb.ReadView, pool: ThreadPoolExecutor) -> None:
        self.sync: Any = sync
        self._pool = pool

    async def call(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:
        """Runs a blocking function in the pool of the database."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, functools.partial(function, *args, **kwargs)
        )

    async def get(self, key: Any, default: Any = None) -> Any:
        """Returns the value of a key, or ``default``."""
        return await self.call(self.sync.get, key, default)

    async def get_many(self, keys: Iterable[Any], default: Any = None) -> list[Any]:
        """Returns the values of many keys, in their order."""
        return await self.call(self.sync.get_many, list(keys), default)

    async def contains(self, key: Any) -> bool:
        """Returns true if the key exists."""
        return await self.call(self.sync.__contains__, key)

    async def ttl(self, key: Any) -> float | None:
        """Returns the time in seconds until a key expires; see ``ReadView.ttl``."""
        return await self.call(self.sync.ttl, key)

    def keys(self, **bounds: Any) -> AsyncRange[bytes]:
        """Returns the keys of a range; arguments as for ``ReadView.keys``."""
        return AsyncRange(self, lambda: self.sync.keys(**bounds))

    def values(self, **bounds: Any) -> AsyncRange[bytes]:
        """Returns the values of a range; arguments as for ``ReadView.keys``."""
        return AsyncRange(self, lambda: self.sync.values(**bounds))

    def items(self, **bounds: Any) -> AsyncRange[tuple[bytes, bytes]]:
        """Returns the entries of a range; arguments as for ``ReadView.keys``."""
        return AsyncRange(self, lambda: self.sync.items(**bounds))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.keys().__aiter__()


class AsyncWriteView(AsyncView):
    """A column family, also in a transaction, whose calls are coroutines."""

    async def put(self, key: Any, value: Any, **options: Any) -> None:
        """Sets the value of a key; options as for ``WriteView.put``."""
        await self.call(self.sync.put, key, value, **options)

    async def delete(self, key: Any) -> None:
        """Deletes a key, which need not exist."""
        await self.call(self.sync.delete, key)

    async def pop(self, key: Any, *default: Any) -> Any:
        """Deletes a key and returns its value; see ``WriteView.pop``."""
        return await self.call(self.sync.pop, key, *default)

    async def setdefault(self, key: Any, default: Any) -> bytes:
        """Returns the value of a key, after putting ``default`` if it does not exist."""
        value: bytes = await self.call(self.sync.setdefault, key, default)
        return value

    async def update(self, entries: Any = None, /, **more: Any) -> None:
        """Puts many entries as one atomic batch."""
        await self.call(self.sync.update, entries, **more)

    async def merge(self, key: Any, operand: Any) -> None:
        """Merges an operand into the value of a key."""
        await self.call(self.sync.merge, key, operand)

    async def delete_range(self, start: Any = None, end: Any = None) -> None:
        """Deletes the keys from ``start`` (inclusive) to ``end`` (exclusive)."""
        await self.call(self.sync.delete_range, start, end)

    async def delete_prefix(self, prefix: Any) -> None:
        """Deletes the keys that begin with ``prefix``."""
        await self.call(self.sync.delete_prefix, prefix)


class AsyncTransaction(AsyncWriteView):
    """A transaction whose calls are coroutines; made by ``AsyncDatabase.transaction``.

    >>> async def transfer(db):
    ...     async with db.transaction() as txn:
    ...         await txn.put("moon", "full")
    """

    def __init__(self, database: AsyncDatabase, options: dict[str, Any]) -> None:
        super().__init__(database.sync, database._pool)
        self._options = options
        self._active = False

    async def __aenter__(self) -> AsyncTransaction:
        if self._active:
            raise RuntimeError("the transaction has begun already")
        self.sync = await self.call(self.sync.transaction, **self._options)
        self._active = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.call(self.sync.__exit__, kind, value, traceback)

    def on(self, family: Any) -> AsyncWriteView:
        """Returns a column family, given by name or handle, in the transaction."""
        handle = family.sync if isinstance(family, AsyncView) else family
        return AsyncWriteView(self.sync.on(handle), self._pool)

    async def get_for_update(self, key: Any, default: Any = None, **options: Any) -> Any:
        """Locks a key and returns its value; see ``TransactionView.get_for_update``."""
        return await self.call(self.sync.get_for_update, key, default, **options)

    async def commit(self) -> int:
        """Commits the transaction and returns the sequence number of its last write."""
        return int(await self.call(self.sync.commit))

    async def rollback(self) -> None:
        """Discards all writes."""
        await self.call(self.sync.rollback)


class AsyncDatabase(AsyncWriteView):
    """An open database whose calls are coroutines; made by ``open``."""

    async def close(self) -> None:
        """Closes the database and ends its threads."""
        await self.call(self.sync.close)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def family(self, name: str, **options: Any) -> AsyncWriteView:
        """Returns a column family; arguments as for ``Database.family``."""
        return AsyncWriteView(await self.call(self.sync.family, name, **options), self._pool)

    def transaction(self, **options: Any) -> AsyncTransaction:
        """Returns a transaction for ``async with``; arguments as for ``Database.transaction``."""
        return AsyncTransaction(self, options)

    async def run(
        self,
        work: Callable[[AsyncTransaction], Awaitable[_T]],
        *,
        retries: int = 100,
        **options: Any,
    ) -> _T:
        """Awaits ``work(transaction)``, commits and returns the result.

        After a conflict, ``work`` is called again in a new transaction, up to ``retries`` times;
        so it must not have other side effects.
        """
        attempt = 0
        while True:
            try:
                async with self.transaction(**options) as txn:
                    return await work(txn)
            except perigeedb.Conflict:
                if attempt == retries:
                    raise
                attempt += 1
                await asyncio.sleep(min(0.02, 0.00002 * 2**attempt))

    async def snapshot(self, **options: Any) -> AsyncView:
        """Returns a snapshot; arguments as for ``Database.snapshot``. Close ``snapshot.sync``."""
        return AsyncView(await self.call(self.sync.snapshot, **options), self._pool)

    async def changes(
        self, since: int = 0, *, timeout: float | None = 0
    ) -> AsyncIterator[perigeedb.Commit | perigeedb.FamilyChange]:
        """Iterates over the changes after a position; arguments as for ``Database.changes``.

        A wait takes one thread of the pool for at most 50 ms at a time.
        """
        loop = asyncio.get_running_loop()
        last = loop.time()
        feed = await self.call(self.sync.changes, since, timeout=0.05 if timeout != 0 else 0)
        while True:
            change = await self.call(next, feed, None)
            if change is not None:
                yield change
                last = loop.time()
            elif timeout is not None and loop.time() - last >= timeout:
                return


class Opening:
    """An open in progress: await it, or use it in ``async with``, which closes the database."""

    def __init__(self, path: Any, threads: int, options: dict[str, Any]) -> None:
        self._path = path
        self._threads = threads
        self._options = options
        self._database: AsyncDatabase | None = None

    async def _open(self) -> AsyncDatabase:
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="perigeedb")
        try:
            loop = asyncio.get_running_loop()
            opening = functools.partial(perigeedb.open, self._path, **self._options)
            return AsyncDatabase(await loop.run_in_executor(pool, opening), pool)
        except BaseException:
            pool.shutdown(wait=False)
            raise

    def __await__(self) -> Generator[Any, Any, AsyncDatabase]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncDatabase:
        self._database = await self._open()
        return self._database

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._database is not None:
            await self._database.close()


def open(path: Any, *, threads: int = 16, **options: Any) -> Opening:
    """Opens a database: ``db = await open(path)`` or ``async with open(path) as db``.

    ``threads`` is the largest number of calls that run at the same time. A transaction that waits
    for a lock takes one of them, so it must be greater than the number of such transactions. Other
    arguments are those of ``perigeedb.open``.
    """
    return Opening(path, threads, options)

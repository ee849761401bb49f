"""The asynchronous wrapper."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import perigeedb
import pytest
from perigeedb import aio

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, 300))


def test_reads_and_writes(path: Path) -> None:
    async def main() -> None:
        async with aio.open(path, durability="none") as db:
            await db.put("moon", "full", ttl=3600)
            assert await db.get("moon") == b"full" and await db.get("sun", b"?") == b"?"
            assert await db.contains("moon") and not await db.contains("sun")
            assert await db.get_many(["moon", "sun"]) == [b"full", None]
            assert 0 < (await db.ttl("moon") or 0) <= 3600
            assert await db.setdefault("tide", "high") == b"high"
            assert await db.pop("tide") == b"high" and await db.pop("tide", None) is None
            await db.update({f"{i:05}": str(i) for i in range(2000)})
            assert [k async for k in db.keys(prefix="0000")] == [b"%05d" % i for i in range(10)]
            assert [v async for v in db.values(start="01999", end="a")] == [b"1999"]
            items = [item async for item in db.items()]
            assert len(items) == 2001 and items == await db.items().list()
            assert len([k async for k in db]) == 2001
            await db.delete_range("0", "00999")
            await db.delete_prefix("01")
            await db.delete("moon")
            assert [k async for k in db] == [b"00999"]
            counters = await db.family("counters", merge_operator="counter")
            await counters.merge("n", 5)
            assert int.from_bytes(await counters.get("n"), "little") == 5
            assert await db.call(db.sync.families) == ["counters", "default"]

    run(main())
    perigeedb.open(path).close()


def test_transactions(path: Path) -> None:
    async def main() -> None:
        async with aio.open(path, durability="none") as db:
            tides = await db.family("tides")
            async with db.transaction() as txn:
                await txn.put("moon", "full")
                await txn.on(tides).put("06:12", "high")
                assert [k async for k in txn] == [b"moon"]
                assert not await db.contains("moon")
            assert await tides.get("06:12") == b"high"
            with pytest.raises(ZeroDivisionError):
                async with db.transaction() as txn:
                    await txn.delete("moon")
                    1 / 0
            async with db.transaction(lock=True) as txn:
                assert await txn.get_for_update("moon") == b"full"
                await txn.put("moon", "new")
                await txn.rollback()
            assert await db.get("moon") == b"full"
            async with db.transaction() as txn:
                await txn.put("moon", "new")
                assert await txn.commit() > 0
            assert await db.get("moon") == b"new"
            snapshot = await db.snapshot()
            await db.put("moon", "full")
            assert await snapshot.get("moon") == b"new"
            snapshot.sync.close()

    run(main())


def test_run_repeats_after_conflicts(path: Path) -> None:
    async def main() -> None:
        async with aio.open(path, durability="none") as db:

            async def increment(txn: aio.AsyncTransaction) -> int:
                n = int(await txn.get("n", b"0")) + 1
                await txn.put("n", str(n))
                return n

            results = await asyncio.gather(*(db.run(increment, retries=10_000) for _ in range(20)))
            assert sorted(results) == list(range(1, 21)) and await db.get("n") == b"20"

            async def collide(txn: aio.AsyncTransaction) -> None:
                await db.put("n", "7")
                await txn.put("n", "8")

            with pytest.raises(perigeedb.Conflict):
                await db.run(collide, retries=2)
            assert await db.get("n") == b"7"

    run(main())


def test_event_loop_runs_while_a_call_waits(path: Path) -> None:
    async def main() -> None:
        async with aio.open(path, durability="none") as db:
            holder = db.sync.transaction(lock=True)
            holder["k"] = "1"
            ticks = 0

            async def wait() -> None:
                options = {"lock": True, "lock_timeout": 300, "isolation": "read_committed"}
                async with db.transaction(**options) as txn:
                    await txn.put("k", "2")

            waiter = asyncio.create_task(wait())
            while ticks < 20:
                await asyncio.sleep(0.01)
                ticks += 1
            assert not waiter.done()
            holder.commit()
            await waiter
            assert await db.get("k") == b"2"

    run(main())


def test_changes_and_early_exit(path: Path) -> None:
    async def main() -> None:
        async with aio.open(path) as db:
            await db.update({f"{i:05}": "" for i in range(2000)})
            async for key in db:
                if key == b"00700":
                    break
            seen = [change async for change in db.changes()]
            assert len(seen) == 1

            async def next_change() -> object:
                return await anext(db.changes(seen[0].sequence, timeout=None))

            later = asyncio.create_task(next_change())
            await asyncio.sleep(0.1)
            await db.put("k", "v")
            change = await later
            assert isinstance(change, perigeedb.Commit) and change.operations[0].key == b"k"
            assert [c async for c in db.changes(change.sequence, timeout=0.1)] == []

    run(main())


def test_errors(path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ValueError):
            await aio.open(path, durability="sometimes")
        db = await aio.open(path)
        with pytest.raises(KeyError):
            await db.pop("none")
        with pytest.raises(TypeError):
            await db.put("a", 1)
        await db.close()

    run(main())

"""Concurrent transfers between accounts with asyncio. Usage: python asynchronous.py [directory]"""

from __future__ import annotations

import asyncio
import sys

from perigeedb import aio


async def transfer(db: aio.AsyncDatabase, source: str, target: str, amount: int) -> None:
    async def work(txn: aio.AsyncTransaction) -> None:
        left = int(await txn.get(source)) - amount
        if left < 0:
            raise ValueError(f"{source} has too little")
        await txn.put(source, str(left))
        await txn.put(target, str(int(await txn.get(target)) + amount))

    await db.run(work)


async def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else "accounts.db"
    async with aio.open(directory, memory_budget="32 MiB") as db:
        await db.update({"ann": "100", "bob": "100"})
        await asyncio.gather(
            *(transfer(db, "ann", "bob", 3) for _ in range(10)),
            *(transfer(db, "bob", "ann", 1) for _ in range(10)),
        )
        async for name, balance in db.items():
            print(name.decode(), balance.decode())


if __name__ == "__main__":
    asyncio.run(main())

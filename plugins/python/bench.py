"""Compares perigeedb with rocksdict (RocksDB), lmdb and sqlite3: puts, gets, scans.

    pip install perigeedb-*.whl rocksdict lmdb
    python bench.py --num 200000 --repetitions 5

Every engine gets the same keys (16 bytes, in random order) and values (100 bytes, half of them
compressible) and the same memory: a cache and, where there is one, a memtable of --memory MiB each.
LMDB reads through the page cache, which has no limit, and does all gets in one transaction.
Durability is equal: rows marked "synced" wait for the disk before each write returns, all others
leave syncing to the operating system.

The engines take turns, so that a disturbance affects all of them. The table shows the median of the
repetitions in operations per second, in parentheses the spread (largest / smallest), and the ratio
of perigeedb to the fastest other engine. The results of reads must be the same for all engines.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

BATCH = 1000
RANGE = 100


class Engine(ABC):
    """An open database of one engine."""

    name: str
    put: Callable[[bytes, bytes], Any]
    get: Callable[[bytes], Any]

    @abstractmethod
    def __init__(self, path: Path, memory: int, synced: bool) -> None: ...
    @abstractmethod
    def put_batch(self, entries: list[tuple[bytes, bytes]]) -> None: ...
    @abstractmethod
    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]: ...
    @abstractmethod
    def close(self) -> None: ...
    def settle(self) -> None:
        """Ends background work, so that reads are measured without it."""

    @contextmanager
    def reads(self) -> Iterator[Callable[[bytes], Any]]:
        """Returns the fastest function for many gets."""
        yield self.get

    @classmethod
    @abstractmethod
    def version(cls) -> str: ...


class Perigee(Engine):
    name = "perigeedb"

    def __init__(self, path: Path, memory: int, synced: bool) -> None:
        import perigeedb

        self.db = perigeedb.open(
            path,
            durability="full" if synced else "none",
            memory_budget=2 * memory,
            memtable_bytes=memory,
            latency_stats=True,
        )
        # Bound methods: no call in between.
        self.put = self.db.__setitem__
        self.get = self.db.get

    def put_batch(self, entries: list[tuple[bytes, bytes]]) -> None:
        self.db.update(entries)

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.db.items(start=start))

    def settle(self) -> None:
        self.db.flush()
        self.db.wait_idle()

    def close(self) -> None:
        self.db.close()

    @classmethod
    def version(cls) -> str:
        import perigeedb

        return perigeedb.__version__


class RocksDict(Engine):
    name = "rocksdict"

    def __init__(self, path: Path, memory: int, synced: bool) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(memory)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(memory))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.module = rocksdict
        self.db = rocksdict.Rdict(str(path), options)
        write = rocksdict.WriteOptions()
        write.sync = synced
        self.db.set_write_options(write)
        # Bound methods: no call in between.
        self.put = self.db.__setitem__
        self.get = self.db.get

    def put_batch(self, entries: list[tuple[bytes, bytes]]) -> None:
        batch = self.module.WriteBatch(raw_mode=True)
        for key, value in entries:
            batch.put(key, value)
        self.db.write(batch)

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        items: Any = self.db.items() if start is None else self.db.items(from_key=start)
        return iter(items)

    def settle(self) -> None:
        self.db.flush()

    def close(self) -> None:
        self.db.close()

    @classmethod
    def version(cls) -> str:
        from importlib.metadata import version

        return version("rocksdict")


class Lmdb(Engine):
    name = "lmdb"

    def __init__(self, path: Path, memory: int, synced: bool) -> None:
        import lmdb

        self.env = lmdb.open(str(path), map_size=16 << 30, sync=synced, metasync=synced)
        self.put = self.put_one
        self.get = self.get_one

    def put_one(self, key: bytes, value: bytes) -> None:
        with self.env.begin(write=True) as txn:
            txn.put(key, value)

    def put_batch(self, entries: list[tuple[bytes, bytes]]) -> None:
        with self.env.begin(write=True) as txn:
            txn.cursor().putmulti(entries)

    def get_one(self, key: bytes) -> bytes | None:
        with self.env.begin() as txn:
            value: bytes | None = txn.get(key)
            return value

    @contextmanager
    def reads(self) -> Iterator[Callable[[bytes], Any]]:
        with self.env.begin() as txn:
            yield txn.get

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        with self.env.begin() as txn:
            cursor = txn.cursor()
            if start is None or cursor.set_range(start):
                yield from cursor

    def close(self) -> None:
        self.env.close()

    @classmethod
    def version(cls) -> str:
        import lmdb

        return f"{lmdb.__version__} (LMDB {'.'.join(map(str, lmdb.version()))})"


class Sqlite(Engine):
    name = "sqlite3"

    def __init__(self, path: Path, memory: int, synced: bool) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute(f"PRAGMA synchronous={'FULL' if synced else 'OFF'}")
        self.db.execute(f"PRAGMA cache_size=-{memory // 1024}")
        self.db.execute("CREATE TABLE IF NOT EXISTS t(k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID")
        self.put = self.put_one
        self.get = self.get_one

    def put_one(self, key: bytes, value: bytes) -> None:
        self.db.execute("INSERT OR REPLACE INTO t VALUES(?, ?)", (key, value))

    def put_batch(self, entries: list[tuple[bytes, bytes]]) -> None:
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO t VALUES(?, ?)", entries)
        self.db.execute("COMMIT")

    def get_one(self, key: bytes) -> bytes | None:
        row = self.db.execute("SELECT v FROM t WHERE k = ?", (key,)).fetchone()
        found: bytes | None = row[0] if row else None
        return found

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        if start is None:
            return self.db.execute("SELECT k, v FROM t ORDER BY k")
        return self.db.execute("SELECT k, v FROM t WHERE k >= ? ORDER BY k", (start,))

    def close(self) -> None:
        self.db.close()

    @classmethod
    def version(cls) -> str:
        return sqlite3.sqlite_version


ENGINES: list[type[Engine]] = [Perigee, RocksDict, Lmdb, Sqlite]


def make_entries(num: int) -> list[tuple[bytes, bytes]]:
    rng = random.Random(1)
    tail = b"abcde" * 10
    return [(rng.randbytes(16), rng.randbytes(50) + tail) for _ in range(num)]


class Clock:
    """Measures operations per second, of elapsed time or of CPU time."""

    def __init__(self, cpu: bool) -> None:
        self.rates: dict[str, float] = {}
        self.now = time.process_time if cpu else time.perf_counter

    def measure(self, name: str, operations: int, work: Any) -> Any:
        gc.collect()
        gc.disable()
        start = self.now()
        result = work()
        self.rates[name] = operations / max(self.now() - start, 1e-9)
        gc.enable()
        return result


def run_once(
    engine: type[Engine], entries: list[tuple[bytes, bytes]], memory: int, cpu: bool, dir: Path
) -> tuple[dict[str, float], Any]:
    """Runs all workloads on one engine; returns rates and a digest of what was read."""
    clock, num = Clock(cpu), len(entries)
    keys = [key for key, _ in entries]
    random.Random(2).shuffle(keys)
    singles, synced = entries[: num // 4], entries[: max(num // 1000, 50)]

    db = engine(dir / "batches", memory, synced=False)

    def put_batches() -> None:
        for at in range(0, num, BATCH):
            db.put_batch(entries[at : at + BATCH])

    def get_all(keys: Iterable[bytes]) -> int:
        total = 0
        with db.reads() as get:
            for key in keys:
                value = get(key)
                total += len(value) if value is not None else 0
        return total

    def scan() -> tuple[int, int]:
        count = total = 0
        for key, value in db.items():
            count += 1
            total += len(key) + len(value)
        return count, total

    def ranges(starts: list[bytes]) -> int:
        return sum(len(list(islice(db.items(start), RANGE))) for start in starts)

    clock.measure(f"puts in batches of {BATCH}", num, put_batches)
    db.settle()
    read = clock.measure("gets", num, lambda: get_all(keys))
    missing = [key[:-1] + b"\0" + key[-1:] for key in keys[: num // 2]]
    read_missing = clock.measure("gets of missing keys", num // 2, lambda: get_all(missing))
    scanned = clock.measure("scan, entries", num, scan)
    starts = keys[: num // 100]
    ranged = clock.measure(f"ranges of {RANGE}", len(starts), lambda: ranges(starts))
    db.close()

    db = engine(dir / "singles", memory, synced=False)

    def put_singles(some: list[tuple[bytes, bytes]]) -> None:
        put = db.put
        for key, value in some:
            put(key, value)

    clock.measure("single puts", len(singles), lambda: put_singles(singles))
    db.close()
    db = engine(dir / "synced", memory, synced=True)
    clock.measure("single puts, synced", len(synced), lambda: put_singles(synced))
    db.close()
    return clock.rates, (read, read_missing, scanned, ranged)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--num", type=int, default=200_000, help="number of entries")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory", type=int, default=64, help="MiB of cache, and of memtable")
    parser.add_argument("--dir", type=Path, help="directory for the databases (default: temporary)")
    parser.add_argument(
        "--cpu", action="store_true", help="operations per second of CPU time, of all threads"
    )
    parser.add_argument("--engines", default=",".join(e.name for e in ENGINES))
    args = parser.parse_args()
    engines = [e for e in ENGINES if e.name in args.engines.split(",")]
    entries = make_entries(args.num)
    rates: dict[str, dict[str, list[float]]] = {}
    answers: set[Any] = set()
    load = [os.getloadavg()[0]]
    for repetition in range(args.repetitions):
        for engine in engines:
            dir = Path(tempfile.mkdtemp(dir=args.dir))
            try:
                measured, answer = run_once(engine, entries, args.memory << 20, args.cpu, dir)
            finally:
                shutil.rmtree(dir)
            answers.add(answer)
            for workload, rate in measured.items():
                rates.setdefault(workload, {}).setdefault(engine.name, []).append(rate)
        load.append(os.getloadavg()[0])
        print(f"repetition {repetition + 1} of {args.repetitions}", file=sys.stderr)
    if len(answers) != 1:
        sys.exit(f"the engines returned different results: {answers}")
    versions = ", ".join(f"{e.name} {e.version()}" for e in engines)
    print(f"Python {sys.version.split()[0]}; {versions}")
    print(
        f"{args.num} entries, memory {args.memory} MiB each for cache and memtable, "
        f"{args.repetitions} repetitions, {os.cpu_count()} processors, "
        f"load average {min(load):.1f} to {max(load):.1f}; operations per second of "
        f"{'CPU time of all threads' if args.cpu else 'elapsed time'}\n"
    )
    print(f"| workload | {' | '.join(e.name for e in engines)} | ratio |")
    print("|---|" + "---|" * (len(engines) + 1))
    for workload, by_engine in rates.items():
        print(format_row(workload, by_engine))


def format_rate(rate: float) -> str:
    return f"{rate / 1e6:.2f}M" if rate >= 1e6 else f"{rate / 1000:,.1f}k"


def format_row(workload: str, by_engine: dict[str, list[float]]) -> str:
    medians = {name: statistics.median(all) for name, all in by_engine.items()}
    cells = []
    for name, all in by_engine.items():
        shown = format_rate(medians[name])
        shown = f"**{shown}**" if medians[name] == max(medians.values()) else shown
        cells.append(f"{shown} ({max(all) / min(all):.1f})")
    others = [rate for name, rate in medians.items() if name != Perigee.name]
    own = medians.get(Perigee.name)
    ratio = f"{own / max(others):.2f}" if others and own else "-"
    return f"| {workload} | {' | '.join(cells)} | {ratio} |"


if __name__ == "__main__":
    main()

"""Options, errors, time to live, merges, bulk loads, backups, the change feed, statistics."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import perigeedb
import pytest
from perigeedb import Commit, Database, FamilyChange


def test_options(path: Path) -> None:
    with perigeedb.open(
        path,
        durability=timedelta(milliseconds=20),
        memory_budget=64 << 20,
        block_cache_bytes="8 MiB",
        isolation="serializable",
        background_rate=None,
        scrub_interval=timedelta(days=1),
        history="1000 operations",
        compression="zstd 3",
        filter_bits=17,
        families={"logs": {"compression": "none", "merge_operator": "append:,"}},
    ) as db:
        options = db.options()
        assert options["durability"] == "interval 20 ms" and options["memory_budget"] == "64 MiB"
        assert options["scrub_interval"] == "24 h" and options["history"] == "1000 operations"
        assert options["isolation"] == "serializable" and options["read_only"] is False
        assert options["families"]["default"]["compression"] == "zstd 3"
        assert options["families"]["logs"]["merge_operator"] == "append:,"
        assert db.families() == ["default", "logs"]
        logs = db.family("logs")
        assert logs.options()["compression"] == "none" and logs.name == "logs" and logs.id > 0
        logs.set_options(compression="lz4", block_bytes=8192)
        assert logs.options()["block_bytes"] == "8 KiB"
        assert logs.options()["merge_operator"] == "append:,", "others are unchanged"
        assert db.transaction().isolation == "serializable"
        with pytest.raises(perigeedb.InvalidArgument):
            logs.set_options(comparator="reverse")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"compresion": "lz4"}, TypeError, "did you mean 'compression'"),
        ({"zzz": 1}, TypeError, "the options are create_if_missing"),
        ({"durability": "sometimes"}, ValueError, "is not one of"),
        ({"durability": 5}, ValueError, "5 is not one of"),
        ({"memory_budget": "much"}, ValueError, "is not a size"),
        ({"memory_budget": -1}, ValueError, "negative"),
        ({"memory_budget": 1.5}, TypeError, "memory_budget must be int, bool or str, not float"),
        ({"memory_budget": 1}, ValueError, "out of range"),
        ({"read_only": "yes"}, ValueError, "not true or false"),
        ({"scrub_interval": -1}, ValueError, "negative"),
        ({"families": 5}, TypeError, "families must be a mapping"),
        ({"families": {"a": 5}}, TypeError, "families must be a mapping"),
        ({"families": {"a": {"b": 5}}}, TypeError, "families"),
        ({"families": {"default": {}}, "compression": "lz4"}, TypeError, "given twice"),
        ({"compression": "zip"}, ValueError, "is not one of"),
        ({"block_bytes": 1}, ValueError, "out of range"),
    ],
)
def test_wrong_options(
    path: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        perigeedb.open(path, **options)
    assert "[database]" not in str(raised.value)
    assert not path.exists(), "nothing was created"


def test_errors_of_open(path: Path, tmp_path: Path) -> None:
    with pytest.raises(perigeedb.NotFound) as raised:
        perigeedb.open(path, create_if_missing=False)
    assert isinstance(raised.value, perigeedb.Error) and raised.value.kind == "not found"
    perigeedb.open(path).close()
    with pytest.raises(perigeedb.AlreadyExists):
        perigeedb.open(path, error_if_exists=True)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("")
    with pytest.raises(perigeedb.InvalidArgument):
        perigeedb.open(tmp_path / "foreign")
    with pytest.raises(TypeError):
        perigeedb.open(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        perigeedb.open()  # type: ignore[call-arg]


def test_damage_is_reported(path: Path) -> None:
    with perigeedb.open(path, compression="none") as db:
        db.update({f"{i:05}": "v" * 100 for i in range(2000)})
        db.flush()
        table = path / db.files()[0]["file"]
    data = bytearray(table.read_bytes())
    for at in range(len(data) // 3, len(data) // 3 + 8):
        data[at] ^= 0xFF
    table.write_bytes(data)
    with perigeedb.open(path) as db:
        with pytest.raises(perigeedb.Corruption) as raised:
            list(db.items())
        assert raised.value.file == table.name and raised.value.offset is not None
        report = db.verify()
        assert report["errors"][0]["file"] == table.name
    report = perigeedb.repair(path, path.parent / "repaired")
    assert report["lost"] and report["lost"][0]["first_key"].startswith(b"0")
    with perigeedb.open(path.parent / "repaired") as db:
        assert 1000 < len(db) < 2000


def test_families(db: Database) -> None:
    logs = db.family("logs")
    assert db.family("logs", filter_bits=20).options()["filter_bits"] == 10, "it exists"
    with pytest.raises(TypeError, match="did you mean 'filter_bits'"):
        db.family("x", filter_bit=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="create=True"):
        db.family("x", create=False, filter_bits=1)
    with pytest.raises(perigeedb.InvalidArgument):
        db.family("")
    logs["a"] = "1"
    db.rename_family("logs", "journal")
    assert logs.name == "journal" and logs["a"] == b"1"
    db.drop_family("journal")
    with pytest.raises(perigeedb.NotFound):
        logs["a"]
    with pytest.raises(perigeedb.InvalidArgument):
        db.drop_family("default")
    assert db.families() == ["default"]


def test_time_to_live(db: Database) -> None:
    db.put("session", "ann", ttl=3600)
    db.put("short", "x", ttl=timedelta(0))
    db.put("long", "x", ttl=timedelta(days=2), durability="full")
    db["forever"] = "x"
    left = db.ttl("session")
    assert left is not None and 0 < left <= 3600
    assert db.ttl("forever") is None
    value, left = db.get_with_ttl("long") or (b"", None)
    assert value == b"x" and left is not None and left > 3600
    assert "short" not in db and db.get_with_ttl("short") is None
    with db.transaction() as txn:
        txn.put("t", "x", ttl=3600)
        assert txn.ttl("t") is not None
    assert db.ttl("t") is not None
    for wrong, error in ((-1, ValueError), (float("nan"), ValueError), ("1", TypeError)):
        with pytest.raises(error):
            db.put("session", "x", ttl=wrong)  # type: ignore[arg-type]
    assert db["session"] == b"ann"


def test_merges(db: Database) -> None:
    with pytest.raises(perigeedb.InvalidArgument):
        db.merge("a", "x")
    counters = db.family("counters", merge_operator="counter")
    for amount in (1, 2, -10):
        counters.merge("n", amount)
    assert int.from_bytes(counters["n"], "little", signed=True) == -7
    with pytest.raises(perigeedb.InvalidArgument):
        counters.merge("n", "1")
    with pytest.raises(OverflowError):
        counters.merge("n", 1 << 70)
    lists = db.family("lists", merge_operator="append:,")
    lists.merge("l", "a")
    lists.merge("l", b"b", durability="full")
    with db.transaction(isolation="read_committed") as txn:
        txn.on(lists).merge("l", "c")
    assert lists["l"] == b"a,b,c"


def test_compare_and_swap(db: Database) -> None:
    assert db.compare_and_swap("k", None, "1")
    assert not db.compare_and_swap("k", None, "2")
    assert db.compare_and_swap("k", "1", "2") and db["k"] == b"2"
    assert db.compare_and_swap("k", "2", None) and "k" not in db


def test_pop_gives_each_value_to_one_thread(db: Database) -> None:
    db.update({f"{i:04}": "x" for i in range(400)})
    taken: list[list[bytes]] = [[], [], [], []]

    def take(mine: list[bytes]) -> None:
        while True:
            try:
                mine.append(db.popitem(last=False)[0])
            except KeyError:
                return

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(k for mine in taken for k in mine) == [f"{i:04}".encode() for i in range(400)]


def test_pop_of_the_same_key_is_atomic(path: Path) -> None:
    # Synced writes take long enough for the threads to meet between a read and its delete.
    rounds, workers = 25, 4
    with perigeedb.open(path) as db:
        barrier = threading.Barrier(workers)
        taken: list[list[bytes]] = [[] for _ in range(workers)]

        def take(mine: list[bytes]) -> None:
            for i in range(rounds):
                if barrier.wait() == 0:
                    db[f"{i}"] = f"{i}"
                barrier.wait()
                value = db.pop(f"{i}", None)
                if value is not None:
                    mine.append(value)

        threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    values = sorted(int(value) for mine in taken for value in mine)
    assert values == list(range(rounds))


def test_bulk_load(db: Database) -> None:
    items = [(f"{i * 7919 % 10_000:05}", str(i)) for i in range(10_000)]
    report = db.bulk_load(iter(items))
    assert report["entries"] == 10_000 and len(db) == 10_000
    assert db["07919"] == b"1" and db.files()[0]["entries"] == 10_000

    def fails() -> Any:
        yield "a", "1"
        raise LookupError("source")

    with pytest.raises(LookupError):
        db.bulk_load(fails())
    with pytest.raises(TypeError):
        db.bulk_load(["a"])  # type: ignore[list-item]
    assert "a" not in db


def test_backup_restore_and_checkpoint(db: Database, tmp_path: Path) -> None:
    db["moon"] = "full"
    assert db.backup(tmp_path / "backups")["generation"] == 1
    db["moon"] = "new"
    db.family("tides")["06:12"] = "high"
    assert db.backup(str(tmp_path / "backups"), reread=True)["generation"] == 2
    db.checkpoint(tmp_path / "copy")
    backups = perigeedb.Backups(tmp_path / "backups")
    assert [b["generation"] for b in backups.list()] == [1, 2]
    assert backups.verify()["errors"] == [] and backups.verify(1)["generations"] == 1
    assert backups.restore(tmp_path / "first", generation=1)["generation"] == 1
    backups.restore(tmp_path / "second")
    with pytest.raises(perigeedb.AlreadyExists):
        backups.restore(tmp_path / "second")
    with pytest.raises(perigeedb.NotFound):
        backups.restore(tmp_path / "third", 9)
    assert backups.prune(1)["removed"] == [1]
    with perigeedb.open(tmp_path / "first") as first:
        assert dict(first) == {b"moon": b"full"}
    for name in ("second", "copy"):
        with perigeedb.open(tmp_path / name) as copy:
            assert copy["moon"] == b"new" and copy.family("tides")["06:12"] == b"high"
    with pytest.raises(perigeedb.NotFound):
        perigeedb.Backups(tmp_path / "none").list()
    assert repr(backups) == f'perigeedb.Backups("{tmp_path}/backups")'


def test_encryption(path: Path, tmp_path: Path) -> None:
    old, new = b"k" * 32, b"n" * 32
    with perigeedb.open(path, encryption_keys=old) as db:
        db["card"] = "4000 1234"
        db.flush()
        db.backup(tmp_path / "backups")
    assert all(b"4000 1234" not in f.read_bytes() for f in path.iterdir() if f.is_file())
    with pytest.raises(perigeedb.InvalidArgument, match="encrypted"):
        perigeedb.open(path)
    with pytest.raises(perigeedb.Error):
        perigeedb.open(path, encryption_keys=b"x" * 32)
    with perigeedb.open(path, encryption_keys=[old, new]) as db:
        assert db["card"] == b"4000 1234"
        db["later"] = "x"
    with perigeedb.open(path, encryption_keys=[old, new]) as db:
        assert len(db) == 2
    backups = perigeedb.Backups(tmp_path / "backups", encryption_keys=bytearray(old))
    backups.restore(tmp_path / "restored")
    report = perigeedb.repair(tmp_path / "restored", tmp_path / "repaired", encryption_keys=old)
    assert report["lost"] == []
    with perigeedb.open(tmp_path / "repaired", encryption_keys=old) as db:
        assert dict(db) == {b"card": b"4000 1234"}
    for wrong in (b"short", [], "k" * 32, 5, [5]):
        with pytest.raises((TypeError, ValueError), match="key"):
            perigeedb.open(path, encryption_keys=wrong)  # type: ignore[arg-type]


def test_change_feed(path: Path) -> None:
    with perigeedb.open(path, log_retention="64 MiB") as db:
        feed = db.changes()
        assert list(feed) == [] and feed.position == 0
        tides = db.family("tides", merge_operator="append:,")
        with db.batch() as batch:
            batch.put("moon", "full", ttl=3600)
            batch.on(tides)["06:12"] = "high"
            batch.on(tides).merge("06:12", "er")
            batch.delete("moon")
            batch.delete_range("a", "b")
        created, commit = list(feed)
        assert isinstance(created, FamilyChange) and isinstance(commit, Commit)
        assert (created.kind, created.name) == ("created", "tides")
        assert created.family_id == tides.id
        ops = commit.operations
        kinds = [(o.kind, o.family) for o in ops]
        assert kinds == [
            ("put", "default"),
            ("put", "tides"),
            ("merge", "tides"),
            ("delete", "default"),
            ("delete_range", "default"),
        ]
        assert (ops[0].key, ops[0].value) == (b"moon", b"full")
        assert ops[0].expires_at is not None and ops[1].expires_at is None
        assert (ops[2].key, ops[2].value) == (b"06:12", b"er")
        assert (ops[4].start, ops[4].start_inclusive) == (b"a", True)
        assert (ops[4].end, ops[4].end_inclusive) == (b"b", False)
        assert commit.first_sequence <= ops[0].sequence <= commit.sequence == db.sequence
        assert "put" in repr(ops[0]) and "Commit" in repr(commit) and "tides" in repr(created)
        position = feed.position
        db.rename_family("tides", "floods")
        db["later"] = "1"
        renamed, later = list(db.changes(position))
        assert isinstance(renamed, FamilyChange) and renamed.old_name == "tides"
        assert isinstance(later, Commit) and later.operations[0].key == b"later"
        with pytest.raises(perigeedb.InvalidArgument):
            db.changes(10**6)
    with perigeedb.open(path, log_retention="64 MiB") as db:
        assert len(list(db.changes(position))) == 2, "a feed continues after a restart"


def test_change_feed_waits(db: Database) -> None:
    feed = db.changes(timeout=300)
    threading.Timer(0.1, lambda: db.put("k", "v", durability="full")).start()
    change = next(feed)
    assert isinstance(change, Commit) and change.operations[0].key == b"k"
    assert list(db.changes(feed.position, timeout=0.01)) == []


def test_waiting_feed_ends_when_the_database_is_closed(path: Path) -> None:
    db = perigeedb.open(path)
    feed = db.changes(timeout=None)
    threading.Timer(0.1, db.close).start()
    with pytest.raises(perigeedb.Closed):
        next(feed)


def test_statistics(db: Database) -> None:
    db.update({f"{i:03}": "x" for i in range(100)})
    db.flush()
    stats = db.stats()
    assert stats["last_sequence"] == 100 and stats["families"][0]["name"] == "default"
    assert db.family("default").stats()["flush_tables"] == 1
    counters = db.counters()
    assert counters and all(isinstance(v, int) for v in counters.values())
    metrics = db.metrics()
    assert metrics["perigee_last_sequence"] == 100.0
    assert any(re.match(r'\w+\{.*family="default".*\}$', name) for name in metrics)
    text = db.metrics_text()
    assert text.endswith("# EOF\n") and "# TYPE perigee_last_sequence gauge" in text
    assert len(metrics) == sum(not line.startswith("#") for line in text.splitlines())
    file = db.files()[0]
    assert (file["first_key"], file["last_key"], file["entries"]) == (b"000", b"099", 100)
    assert db.estimate()["keys"] == 100
    assert db.estimate(start="050")["keys"] <= 100


def test_maintenance(db: Database) -> None:
    db.update({f"{i:03}": "x" for i in range(100)})
    db.flush()
    db.delete_range("000", "050")
    db.family("default").compact("000", "060")
    db.compact()
    db.purge()
    assert db.wait_idle() and db.wait_idle(60)
    assert db.verify()["errors"] == []
    assert len(db) == 50 and sum(f["entries"] for f in db.files()) == 50
    db.family("default").flush()
    db.family("default").purge()
    db.sync()


def test_durability_of_single_writes(db: Database) -> None:
    db.put("a", "1", durability="full")
    db.put("a", "1", durability="none")
    db.delete("a", durability=timedelta(seconds=1))
    with pytest.raises(perigeedb.InvalidArgument):
        db.put("a", "1", durability="maybe")
    with pytest.raises(TypeError, match="durability"):
        db.put("a", "1", durability=5)  # type: ignore[arg-type]

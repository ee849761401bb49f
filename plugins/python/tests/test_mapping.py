"""The mapping: compared with a dictionary, argument types, ranges."""

from __future__ import annotations

import array
import random
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import perigeedb
import pytest
from perigeedb import Database

LETTERS = "abcdefgh"


def test_behaves_like_a_dictionary_under_random_operations(db: Database) -> None:
    rng = random.Random(7)
    model: dict[bytes, bytes] = {}

    def key() -> bytes:
        return "".join(rng.choices(LETTERS, k=rng.randint(1, 3))).encode()

    for step in range(6000):
        k, v = key(), str(step).encode()
        match rng.randrange(12):
            case 0 | 1 | 2:
                db[k] = v
                model[k] = v
            case 3:
                if k in model:
                    del db[k]
                    del model[k]
                else:
                    with pytest.raises(KeyError):
                        del db[k]
            case 4:
                assert db.pop(k, None) == model.pop(k, None)
            case 5:
                assert db.setdefault(k, v) == model.setdefault(k, v)
            case 6:
                pairs = [(key(), v) for _ in range(rng.randint(0, 5))]
                db.update(pairs)
                model.update(pairs)
            case 7:
                a, b = sorted([key(), key()])
                db.delete_range(a, b)
                model = {x: y for x, y in model.items() if not a <= x < b}
            case 8:
                db.delete(k)
                model.pop(k, None)
            case 9:
                if model:
                    end = max(model) if rng.random() < 0.5 else min(model)
                    assert db.popitem(last=end == max(model)) == (end, model.pop(end))
            case 10:
                if step % 2:
                    rng.choice([db.flush, db.compact])()
            case _:
                pass
        assert (k in db) == (k in model)
        assert db.get(k) == model.get(k)
        if step % 50 == 0:
            check_equal(db, model, rng)
    check_equal(db, model, rng)
    db.clear()
    assert not db and len(db) == 0 and list(db) == []


def check_equal(db: Database, model: dict[bytes, bytes], rng: random.Random) -> None:
    """Compares contents, order and ranges in both directions."""
    entries = sorted(model.items())
    assert list(db.items()) == entries
    assert list(db) == list(db.keys()) == [k for k, _ in entries]
    assert list(db.values()) == [v for _, v in entries]
    assert list(reversed(db)) == [k for k, _ in reversed(entries)]
    assert dict(db) == model
    assert len(db) == len(model) and bool(db) == bool(model)
    low, high = sorted("".join(rng.choices(LETTERS, k=2)).encode() for _ in range(2))
    inside = [(k, v) for k, v in entries if low <= k < high]
    assert list(db[low:high]) == inside
    assert list(db[low:high:-1]) == inside[::-1]
    assert list(db.items(start=low, end=high, reverse=True)) == inside[::-1]
    assert list(reversed(db.items(start=low, end=high))) == inside[::-1]
    assert db[low:high].count() == len(inside)
    assert db.first(start=low, end=high) == (inside[0] if inside else None)
    assert db.last(start=low, end=high) == (inside[-1] if inside else None)
    prefix = rng.choice(LETTERS).encode()
    having = [(k, v) for k, v in entries if k.startswith(prefix)]
    assert list(db.items(prefix=prefix)) == having
    assert list(db.keys(prefix=prefix, reverse=True)) == [k for k, _ in having][::-1]
    assert list(db.items(prefix=prefix, start=low)) == [e for e in having if e[0] >= low]
    assert db.get_many([low, high, prefix]) == [model.get(k) for k in (low, high, prefix)]


def test_is_registered_as_a_mapping(db: Database) -> None:
    assert isinstance(db, MutableMapping)
    assert isinstance(db.snapshot(), Mapping)
    assert not isinstance(db.snapshot(), MutableMapping)
    match db:
        case {b"moon": _}:
            raise AssertionError("the key does not exist")
        case {}:
            pass


@pytest.mark.parametrize(
    "key",
    [
        b"k\x00\xff",
        bytearray(b"k\x00\xff"),
        memoryview(b"k\x00\xff"),
        memoryview(bytearray(b"-k\x00\xff-"))[1:-1],
        array.array("B", b"k\x00\xff"),
    ],
)
def test_accepts_bytes_like_objects(db: Database, key: bytes) -> None:
    db[key] = key
    assert db[b"k\x00\xff"] == b"k\x00\xff" == db.get(key)
    assert key in db
    assert list(db.items(prefix=key)) == [(b"k\x00\xff", b"k\x00\xff")]
    del db[key]
    assert key not in db


def test_strings_are_utf_8(db: Database) -> None:
    db["höhe"] = "∞"
    assert db["höhe".encode()] == "∞".encode()
    assert list(db) == ["höhe".encode()]
    with pytest.raises(UnicodeEncodeError):
        db["\ud800"] = "lone surrogate"


def test_strided_buffers_are_copied_in_order(db: Database) -> None:
    db["every second"] = memoryview(b"a-b-c-")[::2]
    assert db["every second"] == b"abc"
    numbers = array.array("i", [1, 2])
    db["numbers"] = numbers
    assert db["numbers"] == numbers.tobytes()


@pytest.mark.parametrize("wrong", [1, 1.5, None, ["a"], object()])
def test_other_types_are_refused(db: Database, wrong: object) -> None:
    for call in (
        lambda: db.get(wrong),  # type: ignore[call-overload]
        lambda: db[wrong],  # type: ignore[call-overload]
        lambda: db.put("k", wrong),  # type: ignore[arg-type]
        lambda: db.delete(wrong),  # type: ignore[arg-type]
        lambda: wrong in db,
        lambda: db.__setitem__(wrong, b""),  # type: ignore[index]
        lambda: db.update([(wrong, "v")]),  # type: ignore[list-item]
        lambda: db.get_many(["k", wrong]),  # type: ignore[list-item]
        lambda: db.delete_prefix(wrong),  # type: ignore[arg-type]
        lambda: list(db.keys(prefix=[1])),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="bytes-like object or str"):
            call()
    assert not db


def test_missing_keys_are_key_errors(db: Database) -> None:
    with pytest.raises(KeyError) as raised:
        db["moon"]
    assert raised.value.args == ("moon",)
    for call in (lambda: db.pop(b"moon"), lambda: db.ttl("moon"), db.popitem):
        with pytest.raises(KeyError):
            call()
    with pytest.raises(KeyError):
        del db["moon"]
    assert db.get("moon") is None and db.pop("moon", 7) == 7


def test_slices(db: Database) -> None:
    db.update({k: k for k in "abcde"})
    assert [k for k, _ in db["b":"d"]] == [b"b", b"c"]
    assert [k for k, _ in db["b":]] == [b"b", b"c", b"d", b"e"]
    assert [k for k, _ in db[:"c":-1]] == [b"b", b"a"]
    assert len(list(db[:])) == 5
    assert list(db["c":"c"]) == []
    for wrong in (slice("a", "b", 2), slice("a", "b", 0), slice("a", "b", "c")):
        with pytest.raises(ValueError, match="step"):
            db[wrong]
    with pytest.raises(ValueError, match="smaller key first"):
        db["d":"b":-1]
    with pytest.raises(TypeError):
        db[1:2]
    with pytest.raises(TypeError, match="update"):
        db["a":"b"] = b"x"  # type: ignore[index]
    assert list(db.items(start="d", end="b")) == []
    for delete in (db.delete_range, db.transaction().delete_range, db.batch().delete_range):
        with pytest.raises(perigeedb.InvalidArgument, match="smaller key first"):
            delete("d", "b")
    del db["b":"d"]
    assert list(db) == [b"a", b"d", b"e"]
    del db[:]
    assert not db


def test_membership_in_ranges(db: Database) -> None:
    db.update({"a": "1", "b": "2", "c": "3"})
    assert "b" in db.keys() and "b" in db.keys(start="b") and "b" not in db.keys(end="b")
    assert "b" not in db.keys(prefix="a")
    assert ("a", "1") in db.items() and ("a", "2") not in db.items()
    assert ("a", "1") not in db.items(start="b")
    assert b"3" in db.values() and b"4" not in db.values()
    with pytest.raises(TypeError):
        "a" in db.items()


def test_prefix_of_largest_bytes(db: Database) -> None:
    db.update([(b"\xff", b""), (b"\xff\xff\x01", b""), (b"\xfe", b"")])
    assert list(db.keys(prefix=b"\xff")) == [b"\xff", b"\xff\xff\x01"]
    assert list(db.keys(prefix=b"\xff\xff")) == [b"\xff\xff\x01"]
    assert list(db.keys(prefix=b"")) == list(db)


def test_other_comparators(db: Database) -> None:
    down = db.family("down", comparator="reverse")
    down.update({"a1": "", "a2": "", "b": ""})
    assert list(down) == [b"b", b"a2", b"a1"]
    assert list(down.keys(prefix="a")) == [b"a2", b"a1"]
    assert list(down.keys(prefix="a", reverse=True)) == [b"a1", b"a2"]
    assert list(down.keys(start="a2")) == [b"a2", b"a1"]
    assert down.first(prefix="a") == (b"a2", b"")
    assert "a1" in down.keys(prefix="a") and "b" not in down.keys(prefix="a")
    assert down.keys(prefix="a").count() == 2
    with pytest.raises(perigeedb.InvalidArgument, match="prefix"):
        list(down.keys(prefix="a", start="a2"))
    folded = db.family("folded", comparator="case-insensitive")
    folded["Moon"] = "full"
    assert folded["MOON"] == b"full"


def test_long_scans_with_long_values(db: Database) -> None:
    values = {f"{i:05}".encode(): bytes([i % 256]) * (i % 7000) for i in range(3000)}
    db.update(values)
    db.flush()
    assert dict(db.items()) == values
    assert list(db.values(reverse=True)) == [v for _, v in sorted(values.items(), reverse=True)]
    big = bytes(range(256)) * 20_000
    db["big"] = big
    assert db["big"] == big and db.last() == (b"big", big)


def test_update_takes_what_a_dictionary_takes(db: Database) -> None:
    db.update()
    db.update({"a": "1"}, b="2")
    db.update([("c", b"3")])
    db.update((k, v) for k, v in [(b"d", b"4")])
    other = db.family("other")
    other.update(db)
    other.update(db.snapshot())
    assert dict(other) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}

    class Pairs:
        def keys(self) -> list[str]:
            return ["e"]

        def __getitem__(self, key: str) -> str:
            return "5"

    db.update(Pairs())
    assert db["e"] == b"5"
    for wrong in (["abc"], [("a",)], 5, [("a", "b", "c")]):
        with pytest.raises(TypeError):
            db.update(wrong)  # type: ignore[arg-type]
    assert len(db) == 5


def test_failed_update_changes_nothing(db: Database) -> None:
    with pytest.raises(TypeError):
        db.update([("a", "1"), ("b", 2)])  # type: ignore[list-item]
    assert not db


def test_limits(db: Database) -> None:
    db[b"k" * 65536] = b""
    with pytest.raises(perigeedb.InvalidArgument) as raised:
        db[b"k" * 65537] = b""
    assert isinstance(raised.value, ValueError)
    db[b""] = b"the empty key is a key"
    assert db.first() == (b"", b"the empty key is a key")


def test_reopen(path: Path) -> None:
    with perigeedb.open(path) as db:
        db["moon"] = "full"
        db.family("tides")["06:12"] = "high"
    with perigeedb.open(path, create_if_missing=False) as db:
        assert dict(db) == {b"moon": b"full"}
        assert dict(db.family("tides", create=False)) == {b"06:12": b"high"}
        assert db.families() == ["default", "tides"]


def test_representations(db: Database, path: Path) -> None:
    assert repr(db) == f"<perigeedb.Database {str(path)!r}>"
    assert "'" not in repr(db.keys(prefix="a")) and 'prefix=b"a"' in repr(db.keys(prefix="a"))
    tides = db.family("tides")
    for view in (tides, db.snapshot(), db.transaction(), db.snapshot().on(tides)):
        assert str(path) in repr(view)
    with db.batch() as batch:
        batch["a"] = "b"
        assert "1 operations" in repr(batch)
    assert "ended" in repr(batch)


def test_range_is_generic_and_reiterable(db: Database) -> None:
    keys = db.keys()
    assert list(keys) == []
    db["a"] = "1"
    assert list(keys) == [b"a"]
    assert perigeedb.Range[bytes] is not None

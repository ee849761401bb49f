"""The types: stubs agree with the module, and programs that use them pass a strict check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).parent.parent


def check(*arguments: str) -> None:
    out = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stdout + out.stderr


def test_stubs_agree_with_the_module() -> None:
    check("mypy.stubtest", "perigeedb", "--allowlist", "tests/stubtest-allowlist.txt")


def test_docstrings_in_the_stub_are_current() -> None:
    out = subprocess.run(
        [sys.executable, str(ROOT / "stub_docs.py"), "--check"], capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr


def test_strict_check_of_package_tests_and_examples() -> None:
    check("mypy", "-p", "perigeedb")
    check("mypy", "tests", "examples", "stub_docs.py")


MISTAKES = [
    ("db.put(1, b'')", "Argument 1"),
    ("db.put('a', 5)", "Argument 2"),
    ("n: int = db['a']", "Incompatible types"),
    ("s: str | None = db.get('a')", "Incompatible types"),
    ("db.family('x', compresion='lz4')", "compresion"),
    ("perigeedb.open('x', compresion='lz4')", "compresion"),
    ("db.snapshot()['a'] = b''", "Unsupported target"),
    ("db.transaction(isolation='sloppy')", "isolation"),
]


def test_mistakes_are_found(tmp_path: Path) -> None:
    lines = ["import perigeedb", "db = perigeedb.open('x', durability='full')"]
    lines += [line for line, _ in MISTAKES]
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines) + "\n")
    out = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    for number, (line, message) in enumerate(MISTAKES, start=3):
        found = [text for text in out.stdout.splitlines() if f"program.py:{number}: error" in text]
        assert any(message in text for text in found), f"{line}\n{out.stdout}"
    assert out.stdout.count(" error: ") == len(MISTAKES), out.stdout

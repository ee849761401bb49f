"""Examples in docstrings and the README are tests; everything public has a docstring."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import perigeedb
import pytest
from perigeedb import aio

ROOT = Path(__file__).parent.parent


def docstrings() -> dict[str, str]:
    """Returns the docstrings of all public classes, methods and functions."""
    found = {"perigeedb": perigeedb.__doc__ or "", "perigeedb.aio": aio.__doc__ or ""}
    for name in perigeedb.__all__:
        thing = getattr(perigeedb, name)
        if isinstance(thing, str):
            continue
        found[name] = thing.__doc__ or ""
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and not isinstance(value, (str, int, type(None))):
                    found[f"{name}.{member}"] = getattr(value, "__doc__", None) or ""
    return found


DOCSTRINGS = docstrings()
EXAMPLES = sorted(name for name, text in DOCSTRINGS.items() if ">>>" in text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tmp_path: Path) -> None:
    with perigeedb.open(tmp_path / "db") as db:
        scope = {"db": db, "path": str(tmp_path), "perigeedb": perigeedb}
        if name == "TransactionView.get_for_update":
            db["seats"] = "5"
        test = doctest.DocTestParser().get_doctest(DOCSTRINGS[name], scope, name, None, None)
        output: list[str] = []
        result = doctest.DocTestRunner(verbose=False).run(test, out=output.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(output)


def test_everything_public_is_documented() -> None:
    missing = [name for name, text in DOCSTRINGS.items() if len(text.strip()) < 10]
    assert missing == []
    assert len(EXAMPLES) >= 30


def test_readme_examples(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    program = "\n".join(blocks)
    out = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert (out.returncode, out.stderr) == (0, "")
    assert out.stdout == "".join(re.findall(r"# prints (.*\n)", program))


@pytest.mark.parametrize("example", sorted(p.name for p in (ROOT / "examples").glob("*.py")))
def test_example_program(example: str, tmp_path: Path) -> None:
    out = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example), str(tmp_path / "db")],
        capture_output=True,
        text=True,
    )
    assert (out.returncode, out.stderr) == (0, "") and out.stdout

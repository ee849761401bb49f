"""Copies the docstrings of the native module into its stub, which editors show.

    python stub_docs.py            # rewrites python/perigeedb/_native.pyi
    python stub_docs.py --check    # fails if it is out of date

Needs the installed package. Types in the stub are written by hand; docstrings are not.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path

import perigeedb._native as native

STUB = Path(__file__).parent / "python" / "perigeedb" / "_native.pyi"

Definition = ast.ClassDef | ast.FunctionDef


def is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def definitions(tree: ast.Module) -> list[tuple[Definition, object]]:
    """Returns every class and public function of the stub with the object it describes."""
    found: list[tuple[Definition, object]] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or not hasattr(native, node.name):
            continue
        thing = getattr(native, node.name)
        found.append((node, thing))
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                    found.append((member, vars(thing).get(member.name)))
    return found


def remove_docstrings(text: str) -> str:
    lines = text.splitlines()
    for node, _ in reversed(definitions(ast.parse(text))):
        if not is_docstring(node.body[0]):
            continue
        doc = node.body[0]
        assert doc.end_lineno is not None
        del lines[doc.lineno - 1 : doc.end_lineno]
        if isinstance(node, ast.FunctionDef):
            line = lines[doc.lineno - 2]
            lines[doc.lineno - 2] = re.sub(r":(  #.*)?$", r": ...\1", line)
    return "\n".join(lines) + "\n"


def add_docstrings(text: str) -> str:
    lines = text.splitlines()
    described: set[object] = set()
    inserts: list[tuple[int, Definition, str]] = []
    for node, thing in definitions(ast.parse(text)):
        doc = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
        # Of overloads, the first one is described.
        if not doc or id(thing) in described:
            continue
        described.add(id(thing))
        assert node.end_lineno is not None
        first = node.body[0]
        start = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
        at = node.end_lineno if isinstance(node, ast.FunctionDef) else start - 1
        inserts.append((at, node, doc))
    for at, node, doc in sorted(inserts, key=lambda insert: -insert[0]):
        indent = " " * (node.col_offset + 4)
        raw = "r" if "\\" in doc else ""
        body = [f"{indent}{raw}\"\"\"{doc}\"\"\""] if "\n" not in doc else []
        if not body:
            body = [(indent + line).rstrip() for line in f'{raw}"""{doc}\n"""'.splitlines()]
        if isinstance(node, ast.FunctionDef):
            head, separator, comment = lines[at - 1].rpartition(": ...")
            assert separator, lines[at - 1]
            lines[at - 1] = f"{head}:{comment}"
        lines[at:at] = body
    return "\n".join(lines) + "\n"


def main() -> None:
    text = STUB.read_text()
    current = add_docstrings(remove_docstrings(text))
    if "--check" in sys.argv:
        if current != text:
            sys.exit(f"{STUB} is out of date: run python stub_docs.py")
    else:
        STUB.write_text(current)


if __name__ == "__main__":
    main()

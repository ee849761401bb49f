"""A notebook: notes in one column family, an index of their words in another, kept consistent by
transactions. Usage: python notes.py [directory]"""

from __future__ import annotations

import sys

import perigeedb
from perigeedb import Database, Transaction


def add_note(db: Database, title: str, text: str) -> None:
    """Stores a note and its words atomically."""

    def work(txn: Transaction) -> None:
        notes, words = txn.on("notes"), txn.on("words")
        old = notes.get(title, b"").decode()
        for word in set(old.lower().split()):
            words.delete(f"{word}/{title}")
        notes[title] = text
        for word in set(text.lower().split()):
            words[f"{word}/{title}"] = ""

    db.run(work)


def find(db: Database, word: str) -> list[str]:
    """Returns the titles of the notes with a word, in order."""
    prefix = f"{word.lower()}/"
    return [key.decode().removeprefix(prefix) for key in db.family("words").keys(prefix=prefix)]


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else "notes.db"
    with perigeedb.open(directory, memory_budget="32 MiB") as db:
        db.family("notes", compression="zstd 3")
        db.family("words")
        add_note(db, "monday", "spring tide at noon")
        add_note(db, "tuesday", "neap tide")
        add_note(db, "monday", "spring tide at one")
        print("tide:", find(db, "tide"))
        print("noon:", find(db, "noon"))
        for title, text in db.family("notes").items(reverse=True):
            print(title.decode(), "=", text.decode())


if __name__ == "__main__":
    main()

"""Backups under load: the restored server must have both engines at one point, and every earlier acknowledged transaction."""

import argparse
import os
import subprocess
import threading
import time

from mariadb_client import Connection, Error
from mariadb_server import Server

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(HERE, "..", "backup.sh")
ROWS = 50


class Writer(threading.Thread):
    """Adds 1 to a row in each engine, in one transaction, and appends to a journal in each."""

    def __init__(self, server, number):
        super().__init__()
        self.connection = server.connect("bank")
        self.number = number
        self.acknowledged = 0
        self.stopping = False
        self.failure = None

    def run(self):
        try:
            while not self.stopping:
                row = (self.acknowledged * 7 + self.number) % ROWS
                self.connection.query("BEGIN")
                self.connection.query("UPDATE p SET n = n + 1 WHERE id = %d" % row)
                self.connection.query("UPDATE i SET n = n + 1 WHERE id = %d" % row)
                self.connection.query("INSERT INTO pj VALUES (%d, %d)" % (self.number, self.acknowledged))
                self.connection.query("INSERT INTO ij VALUES (%d, %d)" % (self.number, self.acknowledged))
                self.connection.query("COMMIT")
                self.acknowledged += 1
        except Error as e:
            self.failure = e


def check(server, before):
    """Returns the violations of a restored server."""
    found = []
    connection = server.connect("bank")
    perigee = connection.query("SELECT id, n FROM p ORDER BY id")
    if perigee != connection.query("SELECT id, n FROM i ORDER BY id"):
        found.append("the tables of the two engines differ")
    journal = connection.query("SELECT w, COUNT(*), MAX(s) FROM pj GROUP BY w ORDER BY w")
    if journal != connection.query("SELECT w, COUNT(*), MAX(s) FROM ij GROUP BY w ORDER BY w"):
        found.append("the journals of the two engines differ")
    if sum(int(n) for _, n in perigee) != sum(int(count) for _, count, _ in journal):
        found.append("journal and rows differ")
    for writer, count, last in journal:
        if int(count) != int(last) + 1:
            found.append("writer %s: %s transactions up to number %s" % (writer, count, last))
        if int(count) < before[int(writer)]:
            found.append("writer %s: %s transactions, %d were acknowledged before the backup" % (writer, count, before[int(writer)]))
    for table in ("p", "pj"):
        for row in connection.query("CHECK TABLE %s EXTENDED" % table):
            if row[3] != "OK":
                found.append("CHECK TABLE %s: %s" % (table, row[3]))
    connection.query("INSERT INTO p VALUES (1000, 1)")
    connection.close()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default="/tmp/perigee-backup-%d" % os.getpid())
    arguments = parser.parse_args()
    server = Server(os.path.join(arguments.directory, "server"), binlog=True)
    server.install()
    server.start()
    connection = server.connect()
    connection.query("CREATE DATABASE bank")
    for name, engine in (("p", "PERIGEE"), ("i", "InnoDB")):
        connection.query("CREATE TABLE bank.%s (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=%s" % (name, engine))
        connection.query("CREATE TABLE bank.%sj (w INT, s INT, PRIMARY KEY (w, s), KEY (s)) ENGINE=%s" % (name, engine))
        connection.query("INSERT INTO bank.%s VALUES %s" % (name, ",".join("(%d, 0)" % i for i in range(ROWS))))
    writers = [Writer(server, number) for number in range(3)]
    violations = 0
    restored = None
    try:
        for writer in writers:
            writer.start()
        for round_number in range(arguments.rounds):
            time.sleep(1)
            before = [writer.acknowledged for writer in writers]
            target = os.path.join(arguments.directory, "backup%d" % round_number)
            subprocess.run([TOOL, "backup", target, "--no-defaults", "--user=root", "--socket=" + server.socket], check=True)
            during = sum(writer.acknowledged for writer in writers) - sum(before)
            restored = Server(os.path.join(arguments.directory, "restored%d" % round_number), binlog=True)
            os.makedirs(restored.directory)
            subprocess.run([TOOL, "restore", target, restored.data], check=True)
            restored.start()
            found = check(restored, before)
            restored.kill()
            violations += len(found)
            print("round %d: %d transactions before, %d during the backup, %d violations%s"
                  % (round_number + 1, sum(before), during, len(found), "".join("\n  " + text for text in found)))
            subprocess.run(["rm", "-rf", target, restored.directory])
        for writer in writers:
            writer.stopping = True
        for writer in writers:
            writer.join()
            if writer.failure:
                violations += 1
                print("writer %d failed: %s" % (writer.number, writer.failure))
    finally:
        for writer in writers:
            writer.stopping = True
        if restored:
            restored.kill()
        server.kill()
    subprocess.run(["rm", "-rf", arguments.directory])
    print("backup: %d rounds, %d violations" % (arguments.rounds, violations))
    raise SystemExit(1 if violations else 0)


if __name__ == "__main__":
    main()

"""Inserts at the head of a table while deletes remove its tail, with queries at the deleted end.

A table of constant size with three secondary indexes, like a queue or a log with retention. An engine that keeps
tombstones reads more of them the more was deleted: the times of the queries at the tail must not grow. The idea is that
of the insert benchmark with deletes (iibench).
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import threading
import time

import benchmark_report as report
import benchmark_server as servers_of
from mariadb_client import RETRY, Error

TABLE = """CREATE TABLE sales (id BIGINT NOT NULL AUTO_INCREMENT, created DATETIME(6) NOT NULL, customer INT NOT NULL, product INT NOT NULL,
price DECIMAL(8,2) NOT NULL, note VARCHAR(100) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL,
PRIMARY KEY (id), KEY by_created (created), KEY by_customer (customer, created), KEY by_product (product, price))"""
INDEXES = ("PRIMARY", "by_created", "by_customer", "by_product")
CUSTOMERS, PRODUCTS = 1000, 10000

# Each is a function of the oldest known id. The rows that are deleted first are those that each of these reads first,
# except for `newest id` and `product range`.
QUERIES = {
    "MIN(id)": lambda oldest: "SELECT MIN(id) FROM sales",
    "oldest row": lambda oldest: "SELECT id, price, note FROM sales ORDER BY id LIMIT 1",
    "oldest by time": lambda oldest: "SELECT id, created FROM sales ORDER BY created LIMIT 1",
    "10 rows from the oldest known id": lambda oldest: "SELECT id, price FROM sales WHERE id >= %d ORDER BY id LIMIT 10" % oldest,
    "10 oldest of a customer": lambda oldest: "SELECT id, created FROM sales WHERE customer = %d ORDER BY created LIMIT 10" % random.randint(1, CUSTOMERS),
    "product range": lambda oldest: "SELECT product, price, id FROM sales WHERE product >= %d ORDER BY product, price LIMIT 10" % random.randint(1, PRODUCTS),
    "newest id": lambda oldest: "SELECT MAX(id) FROM sales",
}


def log(text):
    print(time.strftime("%H:%M:%S ") + text, file=sys.stderr, flush=True)


class Run:
    """The state that the threads of one run share."""

    def __init__(self, server, arguments):
        self.server = server
        self.arguments = arguments
        self.start = time.time()
        self.end = self.start + arguments.seconds
        self.lock = threading.Lock()
        self.inserted = self.deleted = self.retries = 0
        self.oldest = 0
        self.rates = [] # (seconds, inserted, deleted, CPU seconds, disk bytes)
        self.times = {name: [] for name in QUERIES} # (seconds, milliseconds)
        self.failures = []

    def over(self):
        return time.time() >= self.end or self.failures

    def guarded(self, action):
        def work():
            try:
                action(self.server.connect("bench"))
            except (Error, AssertionError) as error:
                self.failures.append("%s: %s" % (action.__name__, error))
        return threading.Thread(target=work, daemon=True)

    def retry(self, connection, statement):
        """Repeats a statement after a deadlock or lock wait timeout; returns the number of rows."""
        while True:
            try:
                return connection.query(statement)
            except Error as error:
                if error.number not in RETRY:
                    raise
                with self.lock:
                    self.retries += 1

    def insert(self, connection):
        number = random.Random(threading.get_ident())
        batch, rate = self.arguments.batch, self.arguments.rate / max(1, self.arguments.writers)
        sent = 0
        while not self.over():
            # The deletes keep up, so that the size of the table is constant and the rates are comparable.
            if self.inserted - self.deleted > 10 * batch * self.arguments.writers:
                time.sleep(0.0005)
                continue
            if rate and sent > rate * (time.time() - self.start):
                time.sleep(0.001)
                continue
            self.retry(connection, insert_statement(number, batch))
            sent += batch
            with self.lock:
                self.inserted += batch

    def delete(self, connection):
        batch = self.arguments.batch
        while not self.over():
            if self.inserted - self.deleted < batch:
                time.sleep(0.0005)
                continue
            if self.arguments.delete == "limit":
                gone = self.retry(connection, "DELETE FROM sales ORDER BY id LIMIT %d" % batch)
            else:
                first = int(connection.value("SELECT MIN(id) FROM sales"))
                gone = self.retry(connection, "DELETE FROM sales WHERE id >= %d AND id < %d" % (first, first + batch))
            with self.lock:
                self.deleted += gone

    def query(self, connection):
        while not self.over():
            for name, statement in QUERIES.items():
                text = statement(self.oldest)
                begin = time.time()
                rows = connection.query(text)
                now = time.time()
                self.times[name].append((now - self.start, (now - begin) * 1000))
                assert rows and rows[0][0] is not None, "no row: " + text
                if name == "MIN(id)":
                    found = int(rows[0][0])
                    assert found >= self.oldest, "MIN(id) went from %d back to %d" % (self.oldest, found)
                    self.oldest = found
            time.sleep(self.arguments.pause)

    def sample(self):
        after = self.start
        while not self.over():
            after += self.arguments.interval
            time.sleep(max(0, min(after, self.end) - time.time()))
            with self.lock:
                self.rates.append((time.time() - self.start, self.inserted, self.deleted, self.server.counters()["cpu"], self.server.disk_bytes()))


def insert_statement(number, batch):
    uniform = number.random
    now = time.time()
    rows = []
    for _ in range(batch):
        now += 1e-6
        rows.append("(FROM_UNIXTIME(%.6f),%d,%d,%.2f,'%032x%032x')" % (now, 1 + int(uniform() * CUSTOMERS), 1 + int(uniform() * PRODUCTS),
                                                                  uniform() * 10000, number.getrandbits(128), number.getrandbits(128)))
    return "INSERT INTO sales (created, customer, product, price, note) VALUES " + ",".join(rows)


def run_engine(engine, arguments):
    server = servers_of.BenchmarkServer(os.path.join(arguments.directory, engine), engine, arguments.memory, arguments.binlog, arguments.limit,
                                        ["--transaction-isolation=" + arguments.isolation])
    server.install()
    try:
        server.start()
        empty = server.disk_bytes()
        connection = server.connect()
        connection.query("CREATE DATABASE bench")
        connection.query("USE bench")
        connection.query(TABLE)
        number = random.Random(1)
        started = time.time()
        for _ in range(0, arguments.rows, 1000):
            connection.query(insert_statement(number, 1000))
        loaded = time.time() - started
        connection.query("ANALYZE TABLE sales")
        server.wait_idle(60)
        log("%s: loaded %d rows in %.1f s" % (engine, arguments.rows, loaded))
        run = Run(server, arguments)
        before = server.counters()
        threads = [run.guarded(run.insert) for _ in range(arguments.writers)] + [run.guarded(run.delete), run.guarded(run.query)]
        for thread in threads:
            thread.start()
        run.sample()
        for thread in threads:
            thread.join()
        server.wait_idle(arguments.settle)
        after = server.counters()
        counts = [int(connection.value("SELECT COUNT(*) FROM sales FORCE INDEX (%s) WHERE %s" % (index, condition)))
                  for index, condition in zip(INDEXES, ("id > 0", "created > 0", "customer > 0", "product > 0"))]
        if len(set(counts)) != 1:
            run.failures.append("the indexes have different numbers of rows: %s" % counts)
        expected = (arguments.rows + 999) // 1000 * 1000 + run.inserted - run.deleted
        if counts[0] != expected:
            run.failures.append("%d rows expected, %d found" % (expected, counts[0]))
        status = connection.query("CHECK TABLE sales")
        if status[-1][-1] != "OK":
            run.failures.append("CHECK TABLE: %s" % status)
        connection.close()
        server.wait_idle(60)
        server.stop()
        disk = server.disk_bytes() - empty
    finally:
        server.kill()
    shutil.rmtree(server.directory, ignore_errors=True)
    seconds = run.rates[-1][0] if run.rates else arguments.seconds
    result = {"engine": engine, "inserts_per_second": run.inserted / seconds, "deletes_per_second": run.deleted / seconds, "retries": run.retries,
              "cpu_per_1000_rows": (after["cpu"] - before["cpu"]) * 1000 / max(1, run.inserted),
              "bytes_written_per_row": (after["written"] - before["written"]) / max(1, run.inserted),
              "disk_bytes": disk, "rates": run.rates, "times": run.times, "failures": run.failures, "queries": {}}
    for name, times in run.times.items():
        thirds = [[ms for at, ms in times if third * seconds / 3 <= at < (third + 1) * seconds / 3] for third in range(3)]
        medians = [statistics.median(third) if third else 0.0 for third in thirds]
        values = sorted(ms for _, ms in times) or [0.0]
        result["queries"][name] = {"thirds": medians, "median": statistics.median(values), "p99": values[int(len(values) * 0.99)], "max": values[-1],
                                   "growth": medians[2] / medians[0] if medians[0] else 0.0, "count": len(times)}
    log("%s: %.0f inserts/s, %.0f deletes/s, %s" % (engine, result["inserts_per_second"], result["deletes_per_second"], "; ".join(run.failures) or "consistent"))
    return result


def series(result, name, arguments):
    """Medians of each interval, for a chart."""
    buckets = {}
    for at, ms in result["times"][name]:
        buckets.setdefault(int(at / arguments.interval), []).append(ms)
    return [((bucket + 0.5) * arguments.interval, statistics.median(values)) for bucket, values in sorted(buckets.items())]


def rate_series(result, column):
    points, before, at_before = [], 0, 0.0
    for sample in result["rates"]:
        if sample[0] > at_before:
            points.append((sample[0], (sample[column] - before) / (sample[0] - at_before)))
        before, at_before = sample[column], sample[0]
    return points


def main():
    parser = argparse.ArgumentParser(prog="insert_benchmark.sh")
    servers_of.add_common_arguments(parser, settle=10)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--rows", type=int, default=200000, help="of the table, which keeps this size")
    parser.add_argument("--batch", type=int, default=50, help="rows of each INSERT and DELETE, which are a transaction each")
    parser.add_argument("--writers", type=int, default=1, help="connections that insert; one more deletes, one more queries")
    parser.add_argument("--rate", type=int, default=0, help="rows inserted per second; 0: as many as possible")
    parser.add_argument("--delete", default="range", choices=("range", "limit"),
                        help="range: SELECT MIN(id), DELETE of the ids from there; limit: DELETE ... ORDER BY id LIMIT n")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between rounds of the queries")
    parser.add_argument("--interval", type=float, default=5, help="seconds of a point of the charts")
    parser.add_argument("--binlog", action="store_true")
    parser.add_argument("--isolation", default="REPEATABLE-READ", choices=("READ-COMMITTED", "REPEATABLE-READ"))
    arguments = servers_of.parse_arguments(parser)
    machine = servers_of.machine()
    log("%d engines for %d s each" % (len(arguments.engines), arguments.seconds))
    try:
        results = [run_engine(engine, arguments) for engine in arguments.engines]
    finally:
        shutil.rmtree(arguments.directory, ignore_errors=True)

    title = ("%d rows, batches of %d, %d writer(s), %s, delete by %s, %d s, %s, %d MiB%s, commits synced, binary log %s"
             % (arguments.rows, arguments.batch, arguments.writers, "%d rows/s" % arguments.rate if arguments.rate else "unlimited rate",
                arguments.delete, arguments.seconds, arguments.isolation, arguments.memory,
                " of %d MiB with the page cache" % arguments.limit if arguments.limit else "", "on" if arguments.binlog else "off"))
    header = [""] + [result["engine"] for result in results]
    rows = [["inserts/s"] + ["%.0f" % r["inserts_per_second"] for r in results], ["deletes/s"] + ["%.0f" % r["deletes_per_second"] for r in results],
            ["repeated statements"] + ["%d" % r["retries"] for r in results],
            ["CPU s for 1,000 rows inserted and deleted"] + ["%.3f" % r["cpu_per_1000_rows"] for r in results],
            ["bytes written for each row"] + ["%.0f" % r["bytes_written_per_row"] for r in results],
            ["disk at the end, MB"] + ["%.1f" % (r["disk_bytes"] / 1e6) for r in results],
            ["consistency"] + ["; ".join(r["failures"]) or "consistent" for r in results]]
    time_rows = []
    for name in QUERIES:
        cells = [result["queries"][name] for result in results]
        time_rows.append([name] + ["%s / %.2f / %.2f (x %.2f)" % (" ".join("%.3f" % ms for ms in c["thirds"]), c["p99"], c["max"], c["growth"]) for c in cells])
    time_header = ["query: medians of the thirds of the run / p99 / max, ms (last third to first)"] + header[1:]
    print("\n%s\n\n%s\n\n%s\n" % (title, report.markdown(header, rows), report.markdown(time_header, time_rows)))
    if arguments.output:
        with open(arguments.output, "w") as file:
            json.dump({"machine": machine, "arguments": vars(arguments), "results": results}, file)
    if arguments.html:
        charts = ["<h2>Inserts/s</h2>" + report.lines([(r["engine"], rate_series(r, 1)) for r in results], "rows/s")]
        for name in QUERIES:
            charts.append("<h2>%s</h2>" % report.escape(name) + report.lines([(r["engine"], series(r, name, arguments)) for r in results], "ms, median of an interval"))
        with open(arguments.html, "w") as file:
            file.write(report.page("Inserts with deletes: " + ", ".join(header[1:]), machine, [title],
                                   [report.table(header, rows), report.table(time_header, time_rows)] + charts))
    return 1 if any(result["failures"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Compares SQL statements in Perigee and DuckDB over the same data, and checks that the answers are equal.

Perigee runs as `perigee serve --pg`, each statement as text over one connection of the loopback interface; DuckDB runs in
this process, with its table on disk. Both have two processors and their default durability. The limit of memory is the
same number, but not the same thing: in DuckDB it includes the cache of the table, in Perigee only sorts, joins and aggregates. The
statements of both are run in turn, and the median of the rounds is shown: wall-clock time, and the CPU time of the process
(all threads), which other programs on the machine disturb less.

DuckDB is a column store for analytics, Perigee a row store: neither is a replacement for the other. docs/sql.md shows
results.

Examples:
  pip install duckdb
  python3 sql_benchmark.py --perigee target/perf/perigee
  python3 sql_benchmark.py --rows 100000 --rounds 3 --json result.json
  python3 sql_benchmark.py --only count,join
"""
import argparse
import csv
import json
import os
import random
import resource
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCHEMA = """
CREATE TABLE customers (id BIGINT PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT NOT NULL, placed BIGINT NOT NULL, amount BIGINT NOT NULL,
    status TEXT NOT NULL, note TEXT);
"""
COUNTRIES = ["at", "br", "ca", "de", "es", "fr", "in", "jp", "ke", "us"]
STATUSES = ["new", "open", "paid", "sent", "void"]
# Rows of the large insert.
BATCH = 10_000
# Statements of a measurement, for those that take well below a millisecond to a few milliseconds.
REPEATED = 20


class Perigee:
    """A server, and a connection with the simple query protocol."""

    name = "Perigee"

    def __init__(self, program, path, memory_mib, cpus):
        self.program, self.path = program, path
        self.arguments = [program, "serve", path, "--pg", "--listen", "127.0.0.1:0", "--memory", str(memory_mib), "--json"]
        self.cpus = cpus
        self.server = None

    def load(self, directory):
        run = lambda *arguments: subprocess.run([self.program, *arguments], check=True, stdout=subprocess.DEVNULL)
        run("sql", self.path, "--create", "-c", SCHEMA)
        for table in ("customers", "orders"):
            run("import", self.path, f"{directory}/{table}.csv", "--table", table, "--append")
        run("sql", self.path, "-c", "CREATE INDEX orders_customer ON orders (customer)")

    def open(self):
        pin = lambda: os.sched_setaffinity(0, self.cpus)
        self.server = subprocess.Popen(self.arguments, stdout=subprocess.PIPE, text=True, preexec_fn=pin)
        port = int(json.loads(self.server.stdout.readline())["listening"].rsplit(":", 1)[1])
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")
        body = struct.pack("!i", 196608) + b"user\0any\0database\0perigee\0\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self._read()

    def _read(self):
        """Reads messages until the server is ready; returns the rows, each a list of texts."""
        rows, error = [], None
        while True:
            kind, length = struct.unpack("!ci", self.stream.read(5))
            body = self.stream.read(length - 4)
            if kind == b"D":
                row, position = [], 2
                for _ in range(struct.unpack_from("!h", body)[0]):
                    size = struct.unpack_from("!i", body, position)[0]
                    position += 4
                    row.append(None if size < 0 else body[position:position + size].decode())
                    position += max(size, 0)
                rows.append(row)
            elif kind == b"E":
                error = body.replace(b"\0", b" ").decode()
            elif kind == b"Z":
                if error:
                    raise RuntimeError(error)
                return rows

    def run(self, sql):
        text = sql.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)
        return self._read()

    def cpu_seconds(self):
        # The clock of another process on Linux: `clock_getcpuclockid` in C. It counts nanoseconds, /proc hundredths.
        return time.clock_gettime((~self.server.pid << 3) | 2)

    def close(self):
        if self.server:
            self.socket.close()
            self.server.terminate()
            self.server.wait()

    def version(self):
        return subprocess.run([self.program, "--version"], capture_output=True, text=True).stdout.strip()


class DuckDB:
    """DuckDB in this process."""

    name = "DuckDB"

    def __init__(self, path, memory_mib, threads):
        import duckdb
        self.duckdb, self.path = duckdb, path
        self.settings = {"memory_limit": f"{memory_mib}MiB", "threads": threads}

    def load(self, directory):
        with self.duckdb.connect(self.path, config=self.settings) as connection:
            connection.execute(SCHEMA)
            for table in ("customers", "orders"):
                connection.execute(f"COPY {table} FROM '{directory}/{table}.csv' (HEADER)")
            connection.execute("CREATE INDEX orders_customer ON orders (customer)")

    def open(self):
        self.connection = self.duckdb.connect(self.path, config=self.settings)

    def run(self, sql):
        rows = self.connection.execute(sql).fetchall()
        return [[None if value is None else str(value) for value in row] for row in rows]

    def cpu_seconds(self):
        return time.process_time()

    def close(self):
        self.connection.close()

    def version(self):
        return f"duckdb {self.duckdb.__version__}"


def write_csv(directory, rows, customers, source):
    """Writes the same data for both."""
    with open(f"{directory}/customers.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "name", "country"])
        writer.writerows((i, f"customer {i}", source.choice(COUNTRIES)) for i in range(customers))
    with open(f"{directory}/orders.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "customer", "placed", "amount", "status", "note"])
        writer.writerows(order(i, customers, source) for i in range(rows))


def order(i, customers, source):
    placed = 1_767_225_600_000_000 + i * 31_000_000
    note = f"note {source.randrange(1 << 40):x} of order {i}"
    return (i, source.randrange(customers), placed, source.randrange(100_000), source.choice(STATUSES), note)


def values(orders):
    quoted = lambda value: f"'{value}'" if isinstance(value, str) else str(value)
    return ", ".join(f"({', '.join(map(quoted, row))})" for row in orders)


def workloads(rows, customers):
    """Returns name and a function from round and random numbers to the statements of a measurement. Statements that write
    leave as many rows as they found, and those of a round are run by both systems."""
    many = lambda make: lambda n, r: [make(r) for _ in range(REPEATED)]
    new = lambda n: rows + n * 1000
    return {
        "get": ("row by primary key", many(lambda r: f"SELECT * FROM orders WHERE id = {r.randrange(rows)}")),
        "range": ("100 rows by primary key", many(lambda r: "SELECT * FROM orders WHERE id BETWEEN {0} AND {0} + 99 ORDER BY id"
                                                  .format(r.randrange(rows - 100)))),
        "index": ("rows of a customer, by index", many(lambda r: "SELECT id, amount FROM orders WHERE customer = "
                                                       f"{r.randrange(customers)} ORDER BY id")),
        "count": ("count(*)", lambda n, r: ["SELECT count(*) FROM orders"]),
        "filter": ("count and sum with a condition", lambda n, r: [
            f"SELECT count(*), sum(amount) FROM orders WHERE status = 'open' AND amount < {r.randrange(40_000, 60_000)}"]),
        "group": ("group by, 5 groups", lambda n, r: [
            "SELECT status, count(*), sum(amount), min(placed) FROM orders GROUP BY status ORDER BY status"]),
        "groups": ("group by, 10,000 groups, first 10", lambda n, r: [
            "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer ORDER BY total DESC, customer LIMIT 10"]),
        "top": ("first 10 of all by another column", lambda n, r: [
            "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 10"]),
        "join": ("join with customers, group by", lambda n, r: [
            "SELECT c.country, count(*), sum(o.amount) FROM orders o JOIN customers c ON o.customer = c.id "
            "GROUP BY c.country ORDER BY c.country"]),
        "lookup_join": ("join of one customer's rows", many(lambda r: "SELECT c.name, o.id FROM customers c JOIN orders o ON "
                                                            f"o.customer = c.id WHERE c.id = {r.randrange(customers)} ORDER BY o.id")),
        "insert": ("insert of a row, one commit each", lambda n, r: [
            f"INSERT INTO orders VALUES {values([order(new(n) + i, customers, r)])}" for i in range(REPEATED)]),
        "update": ("update of a row by key, one commit each", many(lambda r: "UPDATE orders SET amount = amount + 1 WHERE id = "
                                                                   f"{r.randrange(rows)}")),
        "delete": ("delete of a row by key, one commit each", lambda n, r: [
            f"DELETE FROM orders WHERE id = {new(n) + i}" for i in range(REPEATED)]),
        "insert_many": ("insert of 10,000 rows", lambda n, r: [
            f"INSERT INTO orders VALUES {values([order(10 * rows + n * BATCH + i, customers, r) for i in range(BATCH)])}"]),
        "delete_many": ("delete of 10,000 rows by a range of keys", lambda n, r: [
            "DELETE FROM orders WHERE id BETWEEN {0} AND {0} + {1}".format(10 * rows + n * BATCH, BATCH - 1)]),
        "update_many": ("update of 10 % of the rows", lambda n, r: [
            f"UPDATE orders SET amount = amount + 1 WHERE id % 10 = {n % 10}"]),
    }


def is_read(sql):
    return sql.startswith("SELECT")


def measure(system, statements):
    """Returns rows, and milliseconds of wall-clock and CPU time for each statement."""
    cpu, started = system.cpu_seconds(), time.perf_counter()
    answers = [system.run(sql) for sql in statements]
    wall, cpu = time.perf_counter() - started, system.cpu_seconds() - cpu
    # Perigee returns no rows for a change, DuckDB their number.
    answers = [answer if is_read(sql) else None for sql, answer in zip(statements, answers)]
    return answers, 1000 * wall / len(statements), 1000 * cpu / len(statements)


def directory_bytes(path):
    path = Path(path)
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def progress(text):
    print(text, file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--perigee", default="target/perf/perigee", help="the program, built with the feature sql")
    parser.add_argument("--dir", help="where the databases are written (default: a temporary directory, removed at the end)")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--customers", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="for sorts, joins and caches of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="names of workloads, separated by commas; see --list")
    parser.add_argument("--list", action="store_true", help="list the workloads")
    parser.add_argument("--json", metavar="FILE", help="write all measurements; - for stdout instead of the table")
    args = parser.parse_args()
    chosen = workloads(args.rows, args.customers)
    if args.list:
        for name, (meaning, _) in chosen.items():
            print(f"{name:12} {meaning}")
        return
    if args.rows < 1000 or args.customers < 1 or args.rounds < 1:
        parser.error("at least 1,000 rows, a customer and a round")
    if args.only:
        unknown = set(args.only.split(",")) - set(chosen)
        if unknown:
            parser.error(f"no workloads {', '.join(sorted(unknown))}; --list shows them")
        chosen = {name: chosen[name] for name in args.only.split(",")}
    if not os.access(args.perigee, os.X_OK):
        parser.error(f"{args.perigee} is no program: build it with\n  cargo build --profile perf -p perigeedb-cli --features sql")
    try:
        import duckdb  # noqa: F401
    except ImportError:
        parser.error("Python lacks duckdb: pip install duckdb")
    directory = args.dir or tempfile.mkdtemp(prefix="perigee-sql-benchmark-")
    os.makedirs(directory, exist_ok=True)
    try:
        result = benchmark(args, chosen, directory)
    finally:
        if not args.dir:
            shutil.rmtree(directory)
    if args.json:
        text = json.dumps(result, indent=1)
        print(text) if args.json == "-" else Path(args.json).write_text(text + "\n")
    if args.json != "-":
        print_table(result)


def benchmark(args, chosen, directory):
    cpus = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cpus)
    systems = [
        Perigee(os.path.abspath(args.perigee), f"{directory}/perigee", args.memory, cpus),
        DuckDB(f"{directory}/orders.duckdb", args.memory, len(cpus)),
    ]
    result = {"rows": args.rows, "customers": args.customers, "rounds": args.rounds, "memory_mib": args.memory,
              "cpus": len(cpus), "versions": [system.version() for system in systems], "load": {}, "workloads": []}
    progress(f"writing {args.rows} rows as CSV")
    write_csv(directory, args.rows, args.customers, random.Random(args.seed))
    used = lambda who: sum(resource.getrusage(who)[:2])
    for system in systems:
        progress(f"loading {system.name}")
        cpu, started = used(resource.RUSAGE_SELF) + used(resource.RUSAGE_CHILDREN), time.perf_counter()
        system.load(directory)
        result["load"][system.name] = {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": used(resource.RUSAGE_SELF) + used(resource.RUSAGE_CHILDREN) - cpu}
    for system in systems:
        system.open()
    try:
        measured = {name: [] for name in chosen}
        # A round without measurement first, so that caches are warm.
        for n in range(args.rounds + 1):
            progress(f"round {n} of {args.rounds}" if n else "warming up")
            for name, (_, make) in chosen.items():
                statements = make(n, random.Random(f"{args.seed} {name} {n}"))
                answers, both = [], []
                for system in systems if n % 2 else reversed(systems):
                    answer, wall, cpu = measure(system, statements)
                    answers.append(answer)
                    both.append((system.name, wall, cpu))
                if answers[0] != answers[1]:
                    raise SystemExit(f"{name}: the answers differ:\n{statements[0]}\n{answers[0][0]}\n{answers[1][0]}")
                if n:
                    measured[name].append({system: {"ms": wall, "cpu_ms": cpu} for system, wall, cpu in both})
        sums = [system.run("SELECT count(*), sum(id), sum(amount), min(note), max(note) FROM orders") for system in systems]
        if sums[0] != sums[1]:
            raise SystemExit(f"the tables differ at the end: {sums}")
    finally:
        for system in systems:
            system.close()
    for system in systems:
        result["load"][system.name]["bytes_at_end"] = directory_bytes(system.path)
    for name, (meaning, make) in chosen.items():
        median = lambda system, unit: statistics.median(m[system][unit] for m in measured[name])
        row = {"name": name, "meaning": meaning}
        for system in systems:
            row[system.name] = {unit: median(system.name, unit) for unit in ("ms", "cpu_ms")}
        row["measurements"] = measured[name]
        result["workloads"].append(row)
    return result


def print_table(result):
    print(f"{result['rows']} orders, {result['customers']} customers; medians of {result['rounds']} rounds; "
          f"{result['cpus']} processors, {result['memory_mib']} MiB; {'; '.join(result['versions'])}")
    for name, load in result["load"].items():
        print(f"load {name}: {load['seconds']:.1f} s, {load['cpu_seconds']:.1f} s of CPU time; "
              f"{load['bytes_at_end'] / 1e6:.0f} MB on disk at the end")
    print()
    print("| statement | Perigee ms | CPU | DuckDB ms | CPU | Perigee/DuckDB | CPU |")
    print("|---|---|---|---|---|---|---|")
    number = lambda x: f"{x:.2f}" if x < 10 else f"{x:.0f}"
    ratio = lambda a, b: f"{a / b:.2f}" if b > 0 else "-"
    for row in result["workloads"]:
        p, d = row["Perigee"], row["DuckDB"]
        cells = [row["meaning"], *map(number, (p["ms"], p["cpu_ms"], d["ms"], d["cpu_ms"])),
                 ratio(p["ms"], d["ms"]), ratio(p["cpu_ms"], d["cpu_ms"])]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

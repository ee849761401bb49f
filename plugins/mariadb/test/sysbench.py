"""sysbench over InnoDB, PERIGEE, ROCKSDB and TIDESDB: interleaved runs, medians, CPU time, disk space, ratios to InnoDB.

Every engine has its own server with the same memory and synced commits. Each round visits every engine for every
workload; the servers that are not measured are stopped with SIGSTOP, so that their background work takes no CPU from the
one that is. The CPU time of a measurement includes the background work that it leaves, up to --settle seconds.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

import benchmark_report as report
import benchmark_server as servers_of

WORKLOADS = {
    "point select": "oltp_point_select",
    "read only": "oltp_read_only",
    "read write": "oltp_read_write",
    "write only": "oltp_write_only",
    "update index": "oltp_update_index",
    "update non-index": "oltp_update_non_index",
    "delete": "oltp_delete",
    "insert": "oltp_insert",
}
READS = ("point select", "read only")
# These change the number of rows. They run on a copy of the tables that is made again before each measurement, so that
# a faster engine does not find other tables in the next round; tables of more rows than this are not copied.
SCRATCH = ("delete", "insert")
SCRATCH_ROWS = 1000000
# Conflicts and duplicates, which sysbench answers with a new transaction.
IGNORED = "1213,1205,1020,1180,1062"


def log(text):
    print(time.strftime("%H:%M:%S ") + text, file=sys.stderr, flush=True)


def sysbench(server, script, database, threads, seconds, arguments, events=0):
    run = subprocess.run(
        ["sysbench", script, "--db-driver=mysql", "--mysql-socket=" + server.socket, "--mysql-user=root", "--mysql-db=" + database,
         "--mysql-ignore-errors=" + IGNORED, "--rand-type=" + arguments.distribution, "--table-size=%d" % arguments.rows,
         "--tables=%d" % arguments.tables, "--threads=%d" % threads, "--time=%d" % seconds, "--events=%d" % events,
         "--report-interval=0", "--percentile=95", "run"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if run.returncode:
        raise SystemExit("sysbench %s with %s failed:\n%s" % (script, server.engine, run.stdout))
    count, rate = re.search(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec", run.stdout).groups()
    return {"transactions": int(count), "per_second": float(rate),
            "p95_ms": float(re.search(r"95th percentile:\s+([\d.]+)", run.stdout).group(1)),
            "average_ms": float(re.search(r"avg:\s+([\d.]+)", run.stdout).group(1)),
            "ignored_errors": int(re.search(r"ignored errors:\s+(\d+)", run.stdout).group(1))}


def write_rows(path, rows, seed):
    """Rows as sysbench makes them, for LOAD DATA: the same for each engine."""
    numbers = random.Random(seed)
    bits, uniform = numbers.getrandbits, numbers.random
    with open(path, "w", buffering=1 << 20) as file:
        block = []
        for row in range(1, rows + 1):
            # c is 10 and pad 5 groups of 11 digits, as the updates of sysbench write them.
            digits = str(bits(560) | 1 << 560)[-165:]
            groups = [digits[at:at + 11] for at in range(0, 165, 11)]
            block.append("%d\t%d\t%s\t%s\n" % (row, 1 + int(uniform() * rows), "-".join(groups[:10]), "-".join(groups[10:])))
            if len(block) == 10000:
                file.write("".join(block))
                block = []
        file.write("".join(block))


def create_tables(connection, tables, index):
    for table in range(1, tables + 1):
        connection.query("CREATE TABLE sbtest%d (id INT NOT NULL AUTO_INCREMENT, k INT NOT NULL DEFAULT 0, c CHAR(120) NOT NULL DEFAULT '', "
                         "pad CHAR(60) NOT NULL DEFAULT '', PRIMARY KEY (id)%s)" % (table, ", KEY k_%d (k)" % table if index else ""))


def load_tables(server, files):
    connection = server.connect()
    connection.query("CREATE DATABASE sbtest")
    connection.query("USE sbtest")
    create_tables(connection, len(files), index=False)
    # What a user would set for a load: no checks that the data is known to pass, and MyRocks' direct writes of files.
    connection.query("SET unique_checks = 0, foreign_key_checks = 0")
    for number, path in enumerate(files, 1):
        if server.engine == "ROCKSDB":
            connection.query("SET rocksdb_bulk_load = 1")
        connection.query("LOAD DATA INFILE '%s' INTO TABLE sbtest%d CHARACTER SET binary" % (path, number))
        if server.engine == "ROCKSDB":
            connection.query("SET rocksdb_bulk_load = 0")
        connection.query("ALTER TABLE sbtest%d ADD KEY k_%d (k)" % (number, number))
        connection.query("ANALYZE TABLE sbtest%d" % number)
    connection.close()


def prepare(arguments):
    """Loads each engine once; returns {engine: (directory, facts)}."""
    files, prepared = [], {}
    name = "sysbench_%dx%d" % (arguments.tables, arguments.rows)
    try:
        for engine in arguments.engines:
            def load(server):
                load_tables(server, files)
            target = os.path.join(arguments.keep, "%s_%s" % (engine.lower(), name))
            if not files and not os.path.exists(os.path.join(target, "facts.json")):
                os.makedirs(arguments.directory, exist_ok=True)
                for table in range(1, arguments.tables + 1):
                    path = os.path.join(arguments.directory, "rows_%d.txt" % table)
                    write_rows(path, arguments.rows, table)
                    files.append(path)
                log("rows written to %s" % arguments.directory)
            prepared[engine] = servers_of.prepare(arguments.keep, name, engine, arguments.memory, load)
            facts = prepared[engine][1]
            log("%s: loaded in %.1f s (%.1f s of CPU), %.1f MB on disk" % (engine, facts["load_seconds"], facts["load_cpu_seconds"], facts["bytes"] / 1e6))
    finally:
        for path in files:
            os.unlink(path)
    return prepared


def make_scratch(server, tables):
    connection = server.connect()
    connection.query("DROP DATABASE IF EXISTS sbscratch")
    connection.query("CREATE DATABASE sbscratch")
    connection.query("USE sbscratch")
    create_tables(connection, tables, index=True)
    for table in range(1, tables + 1):
        connection.query("INSERT INTO sbtest%d SELECT * FROM sbtest.sbtest%d" % (table, table))
    connection.close()
    server.wait_idle(30)


def measure(server, workload, threads, arguments):
    database, events = "sbtest", 0
    server.resume()
    if workload in SCRATCH and arguments.rows <= SCRATCH_ROWS:
        make_scratch(server, arguments.tables)
        database = "sbscratch"
    if workload == "delete":
        # Each measurement deletes the same number of keys: half of a copy (39 % of its rows), or 1 % of large tables.
        share = 2 if arguments.rows <= SCRATCH_ROWS else 100
        events = max(1, arguments.rows * arguments.tables // share)
    before = server.counters()
    result = sysbench(server, WORKLOADS[workload], database, threads, arguments.seconds, arguments, events)
    result["idle"] = server.wait_idle(arguments.settle)
    after = server.counters()
    server.pause()
    transactions = max(1, result["transactions"])
    result["cpu_per_1000"] = (after["cpu"] - before["cpu"]) * 1000 / transactions
    result["written_per_transaction"] = (after["written"] - before["written"]) / transactions
    result["read_per_transaction"] = (after["read"] - before["read"]) / transactions
    return result


def run_mode(binlog, prepared, arguments, results):
    """All rounds with or without binary log; returns the facts of the disk at the end."""
    running, disk = {}, {}
    options = ["--max-binlog-size=1G", "--expire-logs-days=0"] if binlog else []
    try:
        for engine in arguments.engines:
            server = servers_of.copy_of(prepared[engine][0], os.path.join(arguments.directory, "run", engine), engine, arguments.memory,
                                        binlog, arguments.limit, options)
            running[engine] = server
            server.start()
            sysbench(server, "oltp_read_only", "sbtest", 4, arguments.warm_up, arguments)
            server.pause()
        for round_number in range(arguments.rounds):
            for threads in arguments.threads:
                for workload in arguments.workloads:
                    order = arguments.engines if round_number % 2 == 0 else arguments.engines[::-1]
                    for engine in order:
                        result = measure(running[engine], workload, threads, arguments)
                        results.append(dict(result, binlog=binlog, threads=threads, workload=workload, engine=engine, round=round_number + 1))
                        log("round %d, binary log %s, %d threads, %s, %s: %.0f/s, p95 %.2f ms, %.3f s of CPU for 1,000, %d conflicts"
                            % (round_number + 1, "on" if binlog else "off", threads, workload, engine, result["per_second"], result["p95_ms"],
                               result["cpu_per_1000"], result["ignored_errors"]))
        for engine in arguments.engines:
            server = running[engine]
            server.resume()
            resident = server.resident_bytes()
            connection = server.connect()
            connection.query("DROP DATABASE IF EXISTS sbscratch")
            connection.close()
            server.wait_idle(60)
            server.stop()
            disk[engine] = {"bytes": server.disk_bytes() - prepared[engine][1]["empty_bytes"], "resident_bytes": resident}
    finally:
        for server in running.values():
            server.kill()
    shutil.rmtree(os.path.join(arguments.directory, "run"), ignore_errors=True)
    return disk


def summarize(results, arguments):
    """Medians: {(binlog, threads, workload, engine): {...}}."""
    summary = {}
    for result in results:
        summary.setdefault((result["binlog"], result["threads"], result["workload"], result["engine"]), []).append(result)
    keys = ("per_second", "p95_ms", "cpu_per_1000", "written_per_transaction", "read_per_transaction", "ignored_errors")
    return {case: dict({key: statistics.median(run[key] for run in runs) for key in keys}, runs=[run["per_second"] for run in runs])
            for case, runs in summary.items()}


def ratio(value, base):
    return "%.2f" % (value / base) if base else "-"


def describe(binlog, threads, arguments):
    return ("%d threads, %d s, %d table(s) of %d rows, %s distribution, %d MiB%s, commits synced, binary log %s, median of %d rounds"
            % (threads, arguments.seconds, arguments.tables, arguments.rows, arguments.distribution, arguments.memory,
               " of %d MiB with the page cache" % arguments.limit if arguments.limit else "", "on" if binlog else "off", arguments.rounds))


def tables_of(summary, binlog, threads, arguments):
    """(header, rows) of throughput and of CPU for one mode and number of threads."""
    engines = arguments.engines
    base = "InnoDB" if "InnoDB" in engines else None
    others = [engine for engine in engines if engine != base] if base else []
    rates, costs = [], []
    for workload in arguments.workloads:
        cases = {engine: summary[(binlog, threads, workload, engine)] for engine in engines}
        rates.append([workload] + ["%.0f (%.2f)" % (cases[e]["per_second"], cases[e]["p95_ms"]) for e in engines]
                     + [ratio(cases[e]["per_second"], cases[base]["per_second"]) for e in others])
        costs.append([workload] + ["%.3f / %.1f" % (cases[e]["cpu_per_1000"], cases[e]["written_per_transaction"] / 1024) for e in engines]
                     + [ratio(cases[e]["cpu_per_1000"], cases[base]["cpu_per_1000"]) for e in others])
    ratios = [engine + "/InnoDB" for engine in others]
    return (["transactions/s (p95 ms)"] + engines + ratios, rates), (["CPU s for 1,000 transactions / KiB written for each"] + engines + ratios, costs)


def disk_table(prepared, disk, arguments):
    engines = arguments.engines
    base = "InnoDB" if "InnoDB" in engines else None
    others = [engine for engine in engines if engine != base] if base else []
    facts = {engine: prepared[engine][1] for engine in engines}

    def row(label, values, form):
        return [label] + [form % values[e] for e in engines] + [ratio(values[e], values[base]) for e in others]

    rows = [row("load, s", {e: facts[e]["load_seconds"] for e in engines}, "%.1f"),
            row("load, CPU s", {e: facts[e]["load_cpu_seconds"] for e in engines}, "%.1f"),
            row("disk after load, MB", {e: facts[e]["bytes"] / 1e6 for e in engines}, "%.1f")]
    for binlog, ends in disk.items():
        rows.append(row("disk at the end, MB (binary log %s)" % binlog, {e: ends[e]["bytes"] / 1e6 for e in engines}, "%.1f"))
        rows.append(row("resident memory at the end, MB (binary log %s)" % binlog, {e: ends[e]["resident_bytes"] / 1e6 for e in engines}, "%.0f"))
    return [""] + engines + [engine + "/InnoDB" for engine in others], rows


def parse_arguments():
    parser = argparse.ArgumentParser(prog="sysbench.sh")
    parser.add_argument("threads", help="number, or list as 1,4,16")
    parser.add_argument("seconds", type=int, help="of each measurement")
    parser.add_argument("rows", type=int, help="of each table")
    servers_of.add_common_arguments(parser, settle=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--binlog", nargs="?", const="on", default="off", choices=("on", "off", "both"))
    parser.add_argument("--workloads", help="comma-separated, default: all")
    parser.add_argument("--distribution", default="uniform", choices=("uniform", "pareto", "zipfian", "special", "gaussian"))
    parser.add_argument("--warm-up", type=int, default=5, help="seconds of reads of each engine before the first round")
    parser.add_argument("--keep", help="directory of loaded data directories, which later runs use again")
    arguments = servers_of.parse_arguments(parser)
    arguments.threads = [int(number) for number in arguments.threads.split(",")]
    arguments.workloads = arguments.workloads.split(",") if arguments.workloads else list(WORKLOADS)
    for workload in arguments.workloads:
        if workload not in WORKLOADS:
            raise SystemExit("unknown workload %s; known: %s" % (workload, ", ".join(WORKLOADS)))
    arguments.keep = os.path.abspath(arguments.keep or os.path.join(arguments.directory, "keep"))
    return arguments


def main():
    arguments = parse_arguments()
    modes = {"off": [False], "on": [True], "both": [False, True]}[arguments.binlog]
    machine = servers_of.machine()
    count = len(modes) * arguments.rounds * len(arguments.threads) * len(arguments.workloads) * len(arguments.engines)
    log("%d measurements of %d s: about %.0f minutes without the load" % (count, arguments.seconds, count * (arguments.seconds + 3) / 60))
    results, disk = [], {}
    try:
        prepared = prepare(arguments)
        for binlog in modes:
            disk["on" if binlog else "off"] = run_mode(binlog, prepared, arguments, results)
    finally:
        shutil.rmtree(arguments.directory, ignore_errors=True)

    summary = summarize(results, arguments)
    body = []
    for binlog in modes:
        for threads in arguments.threads:
            title = describe(binlog, threads, arguments)
            throughput, costs = tables_of(summary, binlog, threads, arguments)
            print("\n%s\n\n%s\n\n%s" % (title, report.markdown(*throughput), report.markdown(*costs)))
            body += ["<h2>%s</h2>" % report.escape("%d threads, binary log %s" % (threads, "on" if binlog else "off")), "<p>%s</p>" % report.escape(title)]
            if "InnoDB" in arguments.engines:
                groups = [(w, {e: summary[(binlog, threads, w, e)]["per_second"] / max(1e-9, summary[(binlog, threads, w, "InnoDB")]["per_second"])
                               for e in arguments.engines}) for w in arguments.workloads]
                body.append("<p class=note>throughput, ratio to InnoDB</p>" + report.bars(groups, arguments.engines, "InnoDB"))
            body += [report.table(*throughput), report.table(*costs)]
    space = disk_table(prepared, disk, arguments)
    print("\n" + report.markdown(*space))
    body += ["<h2>Load and space</h2>", report.table(*space)]
    if arguments.output:
        cases = [dict(values, binlog=case[0], threads=case[1], workload=case[2], engine=case[3]) for case, values in summary.items()]
        with open(arguments.output, "w") as file:
            json.dump({"machine": machine, "arguments": vars(arguments), "load": {e: facts for e, (_, facts) in prepared.items()},
                       "disk_at_end": disk, "medians": cases, "measurements": results}, file, indent=1)
    if arguments.html:
        notes = ["Servers that are not measured are stopped meanwhile. CPU is of the server, with the background work after the measurement "
                 "(at most %d s)." % arguments.settle]
        with open(arguments.html, "w") as file:
            file.write(report.page("sysbench: " + ", ".join(arguments.engines), machine, notes, body))


if __name__ == "__main__":
    main()

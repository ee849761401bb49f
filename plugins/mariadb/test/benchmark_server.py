"""Servers for benchmarks: equal memory and durability for each engine, kept data directories, counters of the process."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

from mariadb_server import Server

# As SHOW ENGINES spells them; the command lines accept any case.
ENGINES = {"INNODB": "InnoDB", "PERIGEE": "PERIGEE", "ROCKSDB": "ROCKSDB", "TIDESDB": "TIDESDB"}

# Of every server. Only the engine under test gets memory; a commit is synced before it is acknowledged.
COMMON_OPTIONS = ["--max-connections=200", "--table-open-cache=2000", "--key-buffer-size=8M", "--aria-pagecache-buffer-size=8M",
                  "--query-cache-type=0", "--secure-file-priv=", "--skip-name-resolve"]

LOCK_WAIT_SECONDS = 10

CGROUP_V1 = "/sys/fs/cgroup/memory"
CGROUP_V2 = "/sys/fs/cgroup"
TICKS = os.sysconf("SC_CLK_TCK")

# A benchmark that is terminated ends its servers, also those that are stopped at the moment.
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def engine_name(name):
    """The engine as the server spells it; ends the program with a message if it cannot be tested here."""
    engine = ENGINES.get(name.upper())
    if not engine:
        raise SystemExit("unknown engine %s; known: %s" % (name, ", ".join(ENGINES.values())))
    if engine == "TIDESDB" and not os.path.exists(os.path.join(os.environ.get("TIDESDB_PLUGIN_DIR", ""), "ha_tidesdb.so")):
        raise SystemExit("TIDESDB: set TIDESDB_PLUGIN_DIR to a directory with ha_tidesdb.so and links to the plugins of the system")
    if engine == "ROCKSDB" and not any(os.path.exists(d + "/ha_rocksdb.so") for d in ("/usr/lib/mysql/plugin", "/usr/lib64/mysql/plugin")):
        raise SystemExit("ROCKSDB: apt-get install mariadb-plugin-rocksdb")
    return engine


def add_common_arguments(parser, settle):
    """Adds the arguments of all benchmarks. `settle`: default of --settle."""
    name = parser.prog.rsplit(".", 1)[0].replace("_", "-")
    parser.add_argument("engines", nargs="*", default=["InnoDB", "PERIGEE"],
                        help="InnoDB, PERIGEE, ROCKSDB, TIDESDB; $PERIGEE_OPTIONS, $INNODB_OPTIONS and so on: more options of the server")
    parser.add_argument("--memory", type=int, default=256, help="MiB of caches and write buffers of each engine")
    parser.add_argument("--limit", type=int, default=0, help="MiB of each server with its page cache (memory cgroup; needs root); 0: none")
    parser.add_argument("--settle", type=int, default=settle,
                        help="seconds at most in which a server ends its background work after a measurement")
    parser.add_argument("--json", dest="output")
    parser.add_argument("--html")
    parser.add_argument("--directory", default="/tmp/perigee-%s-%d" % (name, os.getpid()), help="deleted at the end")


def parse_arguments(parser):
    """Parses the command line; ends the program if an engine cannot be tested here."""
    arguments = parser.parse_args()
    arguments.engines = [engine_name(engine) for engine in arguments.engines]
    arguments.directory = os.path.abspath(arguments.directory)
    return arguments


def engine_options(engine, memory_mb, data):
    """Options that give the engine `memory_mb` MiB for caches and write buffers together, synced commits, detection of deadlocks."""
    memory = memory_mb << 20
    if engine == "InnoDB":
        # A redo log as large as the pool (at least 512 MiB), so that checkpoints do not limit the writes.
        return ["--innodb-buffer-pool-size=%d" % memory, "--innodb-log-file-size=%d" % max(512 << 20, memory),
                "--innodb-flush-log-at-trx-commit=1", "--innodb-lock-wait-timeout=%d" % LOCK_WAIT_SECONDS, "--innodb-flush-method=O_DIRECT", "--innodb-flush-neighbors=0",
                "--innodb-io-capacity=2000", "--innodb-io-capacity-max=4000",
                "--innodb-buffer-pool-load-at-startup=0", "--innodb-buffer-pool-dump-at-shutdown=0"]
    small = ["--innodb-buffer-pool-size=8M", "--innodb-log-file-size=16M"]
    if engine == "PERIGEE":
        return small + ["--perigee-memory-budget=%d" % memory, "--perigee-flush-log-at-trx-commit=1",
                        "--perigee-lock-wait-timeout=%d" % LOCK_WAIT_SECONDS]
    if engine == "ROCKSDB":
        # Indexes and filters outside the block cache: a large filter does not fit into one of its up to 64 shards, and would be
        # read again for each key. This gives MyRocks a little more memory than the others (about 2 bytes for each row and index).
        return small + ["--rocksdb-cache-index-and-filter-blocks=0", "--rocksdb-block-cache-size=%d" % (memory * 3 // 4),
                        "--rocksdb-db-write-buffer-size=%d" % (memory // 4), "--rocksdb-flush-log-at-trx-commit=1",
                        "--rocksdb-lock-wait-timeout=%d" % LOCK_WAIT_SECONDS, "--rocksdb-deadlock-detect=1"]
    # TIDESDB: its data is outside the data directory and its log level is DEBUG by default.
    return small + ["--plugin-dir=" + os.environ["TIDESDB_PLUGIN_DIR"], "--plugin-load-add=ha_tidesdb.so",
                    "--tidesdb-data-home-dir=" + os.path.join(data, "#tidesdb"), "--tidesdb-log-level=WARN",
                    "--tidesdb-block-cache-size=%d" % (memory * 3 // 4),
                    "--tidesdb-unified-memtable-write-buffer-size=%d" % (memory // 4),
                    "--tidesdb-unified-memtable-sync-mode=FULL", "--tidesdb-lock-wait-timeout-ms=%d" % (LOCK_WAIT_SECONDS * 1000)]


def more_options(engine):
    """Options of the environment, as INNODB_OPTIONS: the last of two options with the same name counts."""
    return os.environ.get(engine.upper() + "_OPTIONS", "").split()


class BenchmarkServer(Server):
    def __init__(self, directory, engine, memory_mb, binlog=False, memory_limit_mb=0, options=()):
        engine = engine_name(engine)
        data = os.path.join(os.path.abspath(directory), "data")
        super().__init__(directory, engine, memory_mb=memory_mb, binlog=binlog,
                         options=COMMON_OPTIONS + engine_options(engine, memory_mb, data) + more_options(engine) + list(options))
        self.memory_limit_mb = memory_limit_mb
        self.paused = False
        self.cgroup = None

    def start(self, port=0, timeout=600):
        super().start(port, timeout)
        if self.memory_limit_mb:
            self.limit_memory()

    def limit_memory(self):
        """Limits the process and its page cache. Without this, engines that read through the page cache have all of the
        machine's memory, and InnoDB, which bypasses it, only its buffer pool."""
        version_1 = os.path.exists(CGROUP_V1 + "/cgroup.procs")
        parent = CGROUP_V1 if version_1 else CGROUP_V2
        self.cgroup = os.path.join(parent, "perigee_benchmark_%d" % self.process.pid)
        try:
            os.mkdir(self.cgroup)
            with open(os.path.join(self.cgroup, "memory.limit_in_bytes" if version_1 else "memory.max"), "w") as file:
                file.write(str(self.memory_limit_mb << 20))
            with open(os.path.join(self.cgroup, "cgroup.procs"), "w") as file:
                file.write(str(self.process.pid))
        except OSError as error:
            raise SystemExit("cannot limit the memory of the server (%s); run as root, or without --limit" % error)

    def remove_cgroup(self):
        if self.cgroup:
            for _ in range(50):
                try:
                    os.rmdir(self.cgroup)
                    break
                except OSError:
                    time.sleep(0.1)
            self.cgroup = None

    def pause(self):
        """Stops the process, so that its background work takes no CPU from the server under test."""
        if not self.paused and self.process:
            self.process.send_signal(signal.SIGSTOP)
            self.paused = True

    def resume(self):
        if self.paused and self.process:
            self.process.send_signal(signal.SIGCONT)
            self.paused = False

    def kill(self):
        super().kill()
        self.paused = False
        self.remove_cgroup()

    def stop(self, timeout=600):
        self.resume()
        status = super().stop(timeout)
        self.remove_cgroup()
        if status:
            raise SystemExit("the server of %s ended with status %s; log: %s" % (self.engine, status, self.log))

    def counters(self):
        """CPU seconds of the process, and bytes read from and written to the disk of its data directory since the machine
        started, its journal included. The other servers are stopped meanwhile. (The counters of the process count whole
        folios of the page cache, up to 64 KiB for a record of 200 bytes.)"""
        with open("/proc/%d/stat" % self.process.pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / TICKS
        device = os.stat(self.data).st_dev
        try:
            with open("/sys/dev/block/%d:%d/stat" % (os.major(device), os.minor(device))) as file:
                disk = file.read().split()
            return {"cpu": cpu, "read": int(disk[2]) * 512, "written": int(disk[6]) * 512}
        except FileNotFoundError:  # a file system without a block device
            with open("/proc/%d/io" % self.process.pid) as file:
                io = dict(line.split(": ") for line in file.read().splitlines())
            return {"cpu": cpu, "read": int(io["read_bytes"]), "written": int(io["write_bytes"])}

    def wait_idle(self, limit):
        """Waits until flushes, compactions and purges have ended: less than 4 % of a core twice in a row, at most `limit` seconds."""
        deadline = time.time() + limit
        quiet = 0
        before = self.counters()["cpu"]
        while time.time() < deadline and quiet < 2:
            time.sleep(0.5)
            now = self.counters()["cpu"]
            quiet = quiet + 1 if now - before < 0.02 else 0
            before = now
        return quiet >= 2

    def resident_bytes(self):
        with open("/proc/%d/status" % self.process.pid) as file:
            for line in file:
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) << 10
        return 0

    def disk_bytes(self):
        """Bytes of tables and of the logs of LSM engines. Left out: InnoDB's redo log, which has a fixed size, its undo and
        temporary files, and binary logs."""
        total = 0
        for directory, _, files in os.walk(self.data):
            for name in files:
                if name.startswith(("ib_logfile", "binlog", "ibtmp", "undo", "ib_buffer_pool")):
                    continue
                try:
                    status = os.stat(os.path.join(directory, name))
                    # Neither the holes of a file nor the blocks that an engine allocates before it writes them.
                    total += min(status.st_size, status.st_blocks * 512)
                except OSError:
                    pass # deleted by a compaction in the meantime
        return total


def prepare(keep, name, engine, memory_mb, load):
    """Returns the directory with a loaded, compacted and cleanly stopped data directory for `engine`, made by
    `load(server)` if `keep` does not contain it yet, and what is known of it."""
    target = os.path.join(keep, "%s_%s" % (engine.lower(), name))
    facts = os.path.join(target, "facts.json")
    if not os.path.exists(facts):
        shutil.rmtree(target, ignore_errors=True)
        server = BenchmarkServer(target, engine, memory_mb)
        server.install()
        try:
            server.start()
            empty = server.disk_bytes()
            before, started = server.counters(), time.time()
            load(server)
            seconds = time.time() - started
            idle = server.wait_idle(600)
            after = server.counters()
            server.stop()
        finally:
            server.kill()
        known = {"engine": engine, "load_seconds": round(seconds, 2), "load_cpu_seconds": round(after["cpu"] - before["cpu"], 2),
                 "load_bytes_written": after["written"] - before["written"], "idle": idle, "empty_bytes": empty,
                 "bytes": server.disk_bytes() - empty}
        with open(facts + ".new", "w") as file:
            json.dump(known, file, indent=1)
        os.rename(facts + ".new", facts)
    with open(facts) as file:
        return target, json.load(file)


def copy_of(prepared, directory, engine, memory_mb, binlog=False, memory_limit_mb=0, options=()):
    """A server, not started, over a copy of a prepared data directory."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    subprocess.run(["cp", "-a", "--reflink=auto", os.path.join(prepared, "data"), os.path.join(directory, "data")], check=True)
    # The new pages are written now and not during the first measurement.
    subprocess.run(["sync"], check=True)
    return BenchmarkServer(directory, engine, memory_mb, binlog, memory_limit_mb, options)


def machine():
    """Facts of the machine and the server, for the head of a report."""
    version = subprocess.run([shutil.which("mariadbd") or "/usr/sbin/mariadbd", "--no-defaults", "--version"],
                             stdout=subprocess.PIPE, universal_newlines=True).stdout
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) >> 10
    return {"server": version.split("Ver ", 1)[-1].split(" for ")[0], "processors": os.cpu_count(), "memory_mb": memory,
            "kernel": os.uname().release, "date": time.strftime("%Y-%m-%d %H:%M"), "load_average": os.getloadavg()[0]}

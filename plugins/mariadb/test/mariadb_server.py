"""Private MariaDB servers for tests: their own data directory, socket and plugin directory."""

import os
import re
import shutil
import signal
import subprocess
import time

from mariadb_client import Connection, Error

HERE = os.path.dirname(os.path.abspath(__file__))


def server_command():
    return shutil.which("mariadbd") or "/usr/sbin/mariadbd"


def plugin_directory():
    """Directory that contains ha_perigee.so: PERIGEE_PLUGIN_DIR, or that of the build for the installed server."""
    chosen = os.environ.get("PERIGEE_PLUGIN_DIR")
    if not chosen:
        text = subprocess.run([server_command(), "--no-defaults", "--version"], stdout=subprocess.PIPE, universal_newlines=True).stdout
        version = re.search(r"Ver (\d+\.\d+\.\d+)", text).group(1)
        chosen = os.path.join(HERE, "..", "build", version, "plugin-dir")
    if os.path.exists(os.path.join(chosen, "ha_perigee.so")):
        return os.path.abspath(chosen)
    raise SystemExit("ha_perigee.so not found in %s; run plugins/mariadb/build.sh or set PERIGEE_PLUGIN_DIR" % chosen)


def run(main, servers):
    """Ends the program with the result of `main`, and kills the servers that it has added to the list."""
    try:
        raise SystemExit(main())
    finally:
        for server in servers:
            server.kill()


class Server:
    def __init__(self, directory, engine="PERIGEE", memory_mb=256, server_id=1, binlog=False, options=()):
        self.directory = os.path.abspath(directory)
        self.data = os.path.join(self.directory, "data")
        # Socket paths are limited to 107 bytes.
        self.socket = os.path.join(self.directory, "s")
        self.log = os.path.join(self.directory, "error.log")
        self.engine = engine
        self.port = 0
        self.process = None
        upper = engine.upper()
        self.options = ["--no-defaults", "--user=root", "--datadir=" + self.data, "--socket=" + self.socket,
                        "--log-error=" + self.log, "--server-id=%d" % server_id, "--character-set-server=utf8mb4",
                        "--performance-schema=0", "--max-allowed-packet=64M", "--core-file=0",
                        "--default-storage-engine=" + engine]
        if upper == "PERIGEE":
            self.options += ["--plugin-dir=" + plugin_directory(), "--plugin-load-add=ha_perigee.so",
                             "--perigee-memory-budget=%d" % (memory_mb << 20), "--innodb-buffer-pool-size=8M"]
        elif upper == "ROCKSDB":
            self.options += ["--plugin-load-add=ha_rocksdb.so", "--rocksdb-block-cache-size=%d" % (memory_mb << 19),
                             "--rocksdb-db-write-buffer-size=%d" % (memory_mb << 18), "--innodb-buffer-pool-size=8M"]
        else:
            self.options += ["--innodb-buffer-pool-size=%dM" % memory_mb, "--innodb-log-file-size=256M"]
        if binlog:
            self.options += ["--log-bin=" + os.path.join(self.data, "binlog"), "--binlog-format=row", "--sync-binlog=1",
                             "--log-slave-updates"]
        self.options += list(options)

    def install(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        path = os.path.join(self.directory, "install.log")
        with open(path, "w") as log:
            status = subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", "--datadir=" + self.data,
                                     "--auth-root-authentication-method=normal", "--skip-test-db"],
                                    stdout=log, stderr=subprocess.STDOUT).returncode
        if status:
            with open(path) as log:
                raise SystemExit("mariadb-install-db failed:\n" + log.read()[-3000:])

    def start(self, port=0, timeout=120, address="127.0.0.1"):
        self.port = port
        network = ["--bind-address=" + address, "--port=%d" % port] if port else ["--skip-networking"]
        with open(os.path.join(self.directory, "stdout.log"), "a") as log:
            self.process = subprocess.Popen([server_command()] + self.options + network, stdout=log, stderr=log)
        deadline = time.time() + timeout
        while True:
            if self.process.poll() is not None:
                raise SystemExit("the server ended with status %s; log: %s" % (self.process.returncode, self.log))
            try:
                self.connect().close()
                return
            except Error:
                if time.time() > deadline:
                    raise SystemExit("the server did not start within %d s; log: %s" % (timeout, self.log))
                time.sleep(0.05)

    def connect(self, database=None):
        return Connection(self.socket, database)

    def kill(self):
        """SIGKILL to this server only."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.process = None

    def stop(self, timeout=120):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise SystemExit("the server did not stop within %d s; log: %s" % (timeout, self.log))
        status = self.process.returncode if self.process else 0
        self.process = None
        return status

# Two commands for a fresh machine: `make demo` runs the main functions on real input, `make test` runs all checks.
# The sizes of the simulation runs can be changed: `make prove CRASH_CASES=1000000 SEED=7`, `FLIP_CASES=1000000` for
# damage to every byte.

CARGO  ?= cargo
SEED   ?= 1
JOBS   ?= 2
CRASH_CASES ?= 8000
TXN_CASES   ?= 800
MODEL_OPS   ?= 1000000
FLIP_CASES  ?= 30000
KILL_CASES  ?= 60
PREPARED_CASES ?= 30
RECOVERY_CASES ?= 150
ISOLATION_CASES ?= 2000
SIM     = target/proof/perigee-sim
# Features that are off by default and tested.
FEATURES = perigeedb-cli/lmdb,perigeedb/bytes,perigeedb/serde

.PHONY: all demo test prove lint unit check-platforms tools bench clean fuzz install uninstall install-tidesdb-compat \
	uninstall-tidesdb-compat deb deb-test mariadb mariadb-quick mariadb-demo mariadb-tools sql python node reach publish-check \
	maintenance

all:
	$(CARGO) build --release -p perigeedb-cli

# Packages that a minimal Debian lacks: a linker for Rust, C++ and pkg-config for the tests of the C library, and strace
# for kills at chosen system calls (without it they are skipped, with a message).
tools:
	@command -v cc >/dev/null || (apt-get update -qq && apt-get install -y -qq gcc libc6-dev)
	@command -v c++ >/dev/null && command -v pkg-config >/dev/null || (apt-get update -qq && apt-get install -y -qq g++ pkg-config)
	@command -v strace >/dev/null || (apt-get update -qq && apt-get install -y -qq strace) || echo "strace cannot be installed: kills at chosen system calls will be skipped"

demo: tools
	$(CARGO) build --release -p perigeedb-cli
	target/release/perigee demo $(if $(DEMO_DIR),--dir $(DEMO_DIR))

# Runs the quick suite beside LMDB, SQLite, fjall and redb: prints a table and writes report.html (about six minutes).
bench: tools
	$(CARGO) build --release -p perigeedb-bench
	target/release/perigee-bench suite quick --json target/bench.json --html report.html

test: tools lint check-platforms unit prove mariadb-quick
	@echo "make test: all passed"

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --exclude perigeedb-sql --features $(FEATURES) --all-targets --profile proof -- -D warnings

# Unit, integration, documentation and architecture tests, and smoke fuzzing of the decoders. Includes the LMDB import of
# the command-line tool, because the benchmark compiles LMDB anyway. Examples are compiled by `lint`.
unit:
	$(CARGO) test --workspace --exclude perigeedb-sql --features $(FEATURES) --profile proof --lib --bins --tests
	$(CARGO) test --workspace --exclude perigeedb-sql --features $(FEATURES) --profile proof --doc

# Checks the engine for the platforms on which it is not tested (docs/platforms.md), where the standard library of the target is
# installed: rustup target add aarch64-apple-darwin x86_64-pc-windows-gnu. Neither a linker nor a C compiler for them is needed.
PLATFORMS = aarch64-apple-darwin x86_64-pc-windows-gnu
PLATFORM_PACKAGES = -p perigeedb -p perigeedb-tables -p perigeedb-learned -p perigeedb-tokio
check-platforms:
	@for target in $(PLATFORMS); do \
		if ls "$$(rustc --print target-libdir --target $$target)"/libstd-*.rlib > /dev/null 2>&1; then \
			echo "check-platforms: $$target"; \
			$(CARGO) clippy $(PLATFORM_PACKAGES) --target $$target -- -D warnings || exit 1; \
		else \
			echo "check-platforms: skipped $$target, its standard library is not installed: rustup target add $$target"; \
		fi; \
	done

# Built with the features of `unit`, so that nothing is compiled twice.
prove:
	$(CARGO) build --workspace --exclude perigeedb-sql --features $(FEATURES) --profile proof --bin perigee-sim
	$(SIM) crash --cases $(CRASH_CASES) --transactions $(TXN_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) model --cases 100 --ops $(MODEL_OPS) --seed $(SEED) --jobs $(JOBS)
	$(SIM) faults --cases 1 --seed $(SEED) --jobs $(JOBS)
	$(SIM) flips --limit $(FLIP_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) safety --cases 100 --seed $(SEED) --jobs $(JOBS)
	$(SIM) prepared --cases $(PREPARED_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) recovery --cases $(RECOVERY_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) isolation --cases $(ISOLATION_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) kill --cases $(KILL_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) bugs --seed $(SEED) --jobs $(JOBS)

# SQL over tables, record batches and Parquet files: lint, tests and the clients that are installed (psql, Python, Java). Not part of `make test`, because
# DataFusion takes many minutes to compile.
# Each step names the same packages, so that nothing is compiled twice.
SQL_PACKAGES = -p perigeedb-sql -p perigeedb-cli --features perigeedb-cli/sql --profile sql
SQL_TESTS = --lib --bins --test files --test catalog_queries --test push_down --test returning --test sqlite_answers --test statements --test transactions --test sql --test parquet_tables
sql: tools
	$(CARGO) clippy $(SQL_PACKAGES) --all-targets -- -D warnings
	$(CARGO) test $(SQL_PACKAGES) $(SQL_TESTS)
	$(CARGO) test -p perigeedb-tables --features parquet --profile sql --lib --test record_batches
	$(CARGO) test -p perigeedb-sql --profile sql --doc
	$(CARGO) build $(SQL_PACKAGES)
	crates/sql/tests/clients/run.sh target/sql/perigee

# The Python package: builds the wheel, installs it in a new virtual environment, and tests it there.
python:
	plugins/python/build.sh
	plugins/python/test.sh

# The npm package: builds the native module, installs the packed package in a new project, and tests it there.
NODE_MODULE = cd plugins/node && npm install --silent --no-audit --no-fund && ./build.sh
node:
	$(NODE_MODULE)
	plugins/node/test.sh

# Installs each package as its users do, in an empty place; `make reach IN=TREE` in a Debian tree (tools/reach.sh).
REACH = target/reach
IN ?=
reach:
	rm -rf $(REACH) target/package && mkdir -p $(REACH)/crates
	$(CARGO) package --allow-dirty --no-verify $(LIBRARY_PACKAGES)
	for crate in target/package/*.crate; do tar -xzf $$crate -C $(REACH)/crates; done
	plugins/python/build.sh $(REACH)
	$(NODE_MODULE) && npm pack --silent --pack-destination ../../$(REACH)
	$(MAKE) --no-print-directory install PREFIX=$(CURDIR)/$(REACH)/c DESTDIR=
	$(MAKE) --no-print-directory deb && cp $(TARGET_DIR)/perigee_*.deb $(REACH)/
	tools/reach.sh $(if $(IN),--in $(IN))

# What would be published: packages every crate that users install and compiles the packages of the library, as on a machine
# that has nothing else. The tool and SQL are only packaged, because DataFusion takes many minutes to compile.
LIBRARY_PACKAGES = -p perigeedb $(patsubst %,-p perigeedb-%,base env file tree engine tables-derive tables learned tokio)
publish-check:
	$(CARGO) publish --dry-run --allow-dirty $(LIBRARY_PACKAGES)
	$(CARGO) publish --dry-run --allow-dirty --no-verify $(LIBRARY_PACKAGES) \
		-p perigeedb-compaction-sim -p perigeedb-sql -p perigeedb-cli

# For releases: the oldest compiler, licences and advisories of the dependencies (cargo-deny), and changes of the public API since
# the revision BASELINE (cargo-semver-checks). Both tools are installed with `cargo install`.
MSRV = 1.89.0
BASELINE ?=
maintenance:
	$(CARGO) +$(MSRV) check -p perigeedb -p perigeedb-tables -p perigeedb-tokio
	$(CARGO) +$(MSRV) check -p perigeedb --features full,bytes,serde,tracing
	cargo deny check
	$(if $(BASELINE),cargo semver-checks --baseline-rev $(BASELINE) -p perigeedb -p perigeedb-tables -p perigeedb-tokio)

# Coverage-guided fuzzing of every decoder for FUZZ_SECONDS each (needs a nightly toolchain and cargo-fuzz).
FUZZ_SECONDS ?= 60
fuzz:
	cd fuzz && for t in $$($(CARGO) +nightly fuzz list); do $(CARGO) +nightly fuzz run $$t -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

# Installs the tool, the C library with its headers, manual pages and completions:
#
#     make install PREFIX=/opt/perigee LIBDIR=/opt/perigee/lib64 DEBUG_SYMBOLS=1
#
# Packagers add DESTDIR. PROFILE is the cargo profile to build. `make uninstall`, with the same variables, removes what was
# installed: it is listed in MANIFEST. The two targets for TidesDB install the library that programs built for TidesDB 9 load
# (docs/c-api.md); they do not overwrite the files of a real TidesDB, unless FORCE=1.
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
DESTDIR ?=
FORCE   ?= 0
PROFILE ?= release
DEBUG_SYMBOLS ?= 0
INSTALL_ENV = PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" FORCE="$(FORCE)" DEBUG_SYMBOLS="$(DEBUG_SYMBOLS)"
TARGET_DIR ?= $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
BUILT = $(TARGET_DIR)/$(PROFILE)
install:
	$(CARGO) build --profile $(PROFILE) -p perigeedb-cli -p perigeedb-c
	$(INSTALL_ENV) tools/install.sh perigee $(BUILT)

uninstall:
	$(INSTALL_ENV) tools/install.sh --remove perigee

install-tidesdb-compat:
	$(CARGO) build --profile $(PROFILE) -p perigeedb-capi
	$(INSTALL_ENV) tools/install.sh tidesdb-compat $(BUILT)

uninstall-tidesdb-compat:
	$(INSTALL_ENV) tools/install.sh --remove tidesdb-compat

# Builds target/perigee_VERSION_ARCH.deb with everything that `make install` installs.
deb:
	$(CARGO) build --profile $(PROFILE) -p perigeedb-cli -p perigeedb-c
	tools/deb.sh $(BUILT) $(TARGET_DIR)

# Installs, uses and removes the package in a minimal Debian system (root; downloads it with debootstrap).
deb-test: deb
	command -v debootstrap >/dev/null || (apt-get update -qq && apt-get install -y -qq debootstrap)
	tools/test-deb.sh "$$(ls -t $(TARGET_DIR)/perigee_*.deb | head -n 1)"

# The storage engine for the installed MariaDB server. A server is installed if there is none, in the newest version that has
# a source package.
mariadb-tools:
	@{ command -v mariadbd || [ -x /usr/sbin/mariadbd ]; } >/dev/null && [ -d /usr/include/mariadb/server ] && \
		[ -d /usr/share/mysql/mysql-test -o -d /usr/share/mariadb/mariadb-test ] \
		|| (apt-get update -qq && plugins/mariadb/install.sh)

# Build, suite, crash runs, index builds under load, backups, replication, XA over two servers.
mariadb: mariadb-tools
	@command -v mariadb-backup > /dev/null || (apt-get update -qq && plugins/mariadb/install.sh mariadb-backup)
	plugins/mariadb/build.sh
	plugins/mariadb/mysql-test/run.sh
	plugins/mariadb/test/crash.sh 3 nobinlog
	plugins/mariadb/test/crash.sh 3 binlog
	plugins/mariadb/test/crash.sh 3 xa
	plugins/mariadb/test/online_ddl.sh
	plugins/mariadb/test/backup.sh
	plugins/mariadb/test/replication.sh
	plugins/mariadb/test/xa_two_servers.sh 5
	@echo "make mariadb: all passed"

# The part of it in `make test`: the plugin with the code of the other tests, and 24 tests of the suite. Skipped where no
# server can be installed (not Debian, or not root).
MARIADB_QUICK = pk_clustered pk_hidden pk_descending secondary_nullable unique_nulls unique_per_row type_decimal \
	type_varchar_unicode type_json covering_reads autoinc_basic statement_atomicity savepoints rollback_bulk_insert_select \
	iso_repeatable_read iso_phantom_locking_read lock_deadlock lock_skip_locked alter_instant_add alter_online_writes \
	xa_recover_kill crash_binlog partition_range truncate
mariadb-quick:
	@if $(MAKE) --no-print-directory mariadb-tools > target/mariadb-tools.log 2>&1; then \
		plugins/mariadb/build.sh --profile proof && plugins/mariadb/mysql-test/run.sh $(MARIADB_QUICK); \
	else \
		echo "no MariaDB server can be installed (target/mariadb-tools.log): its storage engine is not tested"; \
	fi

# A private server: loads a listing of the files of this machine, shows EXPLAIN, is killed with SIGKILL under load.
mariadb-demo: mariadb-tools
	plugins/mariadb/build.sh
	plugins/mariadb/test/demo.sh

clean:
	$(CARGO) clean

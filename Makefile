# Two commands for a fresh machine: `make demo` does the main job on real input, `make test` passes everything.
# The proofs' sizes can be changed: `make prove CRASH_CASES=1000000 SEED=7`.

CARGO  ?= cargo
SEED   ?= 1
JOBS   ?= 2
CRASH_CASES ?= 20000
TXN_CASES   ?= 2000
MODEL_OPS   ?= 1000000
KILL_CASES  ?= 100
PREPARED_CASES ?= 60
RECOVERY_CASES ?= 60
SIM     = target/proof/perigee-sim

.PHONY: all demo test prove lint unit tools bench clean fuzz install

all:
	$(CARGO) build --release -p perigee-cli

# What a bare Debian needs: a linker for Rust, C++ and pkg-config for the C library's proof, and strace for kills at chosen system calls (skipped, and said, without).
tools:
	@command -v cc >/dev/null || (apt-get update -qq && apt-get install -y -qq gcc libc6-dev)
	@command -v c++ >/dev/null && command -v pkg-config >/dev/null || (apt-get update -qq && apt-get install -y -qq g++ pkg-config)
	@command -v strace >/dev/null || (apt-get update -qq && apt-get install -y -qq strace) || echo "strace is not to be had: kills at chosen system calls will be skipped"

demo: tools
	$(CARGO) build --release -p perigee-cli
	target/release/perigee demo $(if $(DEMO_DIR),--dir $(DEMO_DIR))

# The quick suite beside LMDB, SQLite, fjall and redb: a table here, all of it in report.html (about six minutes).
bench: tools
	$(CARGO) build --release -p perigee-bench
	target/release/perigee-bench suite quick --json target/bench.json --html report.html

test: tools lint unit prove
	@echo "make test: all passed"

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --features perigee-cli/lmdb --all-targets --profile proof -- -D warnings

# Unit, integration and documentation tests, examples, the house rules, the decoders' smoke fuzzing. LMDB, which the benchmark
# compiles anyway, with the tool's door to it.
unit:
	$(CARGO) test --workspace --features perigee-cli/lmdb --profile proof

prove:
	$(CARGO) build --profile proof -p perigee-sim
	$(SIM) crash --cases $(CRASH_CASES) --transactions $(TXN_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) model --cases 100 --ops $(MODEL_OPS) --seed $(SEED) --jobs $(JOBS)
	$(SIM) faults --cases 1 --seed $(SEED) --jobs $(JOBS)
	$(SIM) flips --seed $(SEED) --jobs $(JOBS)
	$(SIM) safety --cases 100 --seed $(SEED) --jobs $(JOBS)
	$(SIM) prepared --cases $(PREPARED_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) recovery --cases 300 --seed $(SEED) --jobs $(JOBS)
	$(SIM) recovery --cases $(RECOVERY_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) isolation --cases 4000 --seed $(SEED) --jobs $(JOBS)
	$(SIM) kill --cases $(KILL_CASES) --seed $(SEED) --jobs $(JOBS)
	$(SIM) bugs --seed $(SEED) --jobs $(JOBS)

# Coverage-guided fuzzing of every decoder, so many seconds each (nightly toolchain and cargo-fuzz).
FUZZ_SECONDS ?= 60
fuzz:
	cd fuzz && for t in $$($(CARGO) +nightly fuzz list); do $(CARGO) +nightly fuzz run $$t -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

# The C library, as programs built for TidesDB 9 find it: `make install PREFIX=/opt/perigee`; packagers add DESTDIR.
PREFIX  ?= /usr/local
DESTDIR ?=
install:
	$(CARGO) build --release -p perigee-capi
	crates/capi/install.sh target/release $(PREFIX) $(DESTDIR)

clean:
	$(CARGO) clean

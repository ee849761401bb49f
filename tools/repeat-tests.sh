#!/usr/bin/env bash
# Runs the whole test suite repeatedly beside busy processes, to find tests that depend on time or load.
#
#   tools/repeat-tests.sh [RUNS] [BUSY]      default: 20 runs beside 8 busy processes
#
# PROFILE   the cargo profile (default: proof)
# TESTS     what to run (default: the workspace, all targets but benchmarks), for example TESTS="-p perigeedb --test main log_listener"
#
# Builds everything once, before the busy processes start. Documentation tests are left to `make unit`, because they are
# compiled on every run. Prints every failure with its run, then the number of failures of each test, then the totals
# "N passed, M failed"; the output of failed runs stays in target/repeat-tests. Exit code 1 if anything failed.
set -u
cd "$(dirname "$0")/.." || exit 2
runs=${1:-20}
busy=${2:-8}
profile=${PROFILE:-proof}
read -r -a tests <<< "${TESTS:---workspace --features perigeedb-cli/lmdb --lib --bins --tests --examples}"
logs=target/repeat-tests
rm -rf "$logs"
mkdir -p "$logs"

cargo test --profile "$profile" "${tests[@]}" --no-run || exit 2

pids=()
stop() {
    [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2> /dev/null
    pids=()
}
trap stop EXIT
trap 'exit 130' INT TERM
for ((i = 0; i < busy; i++)); do
    sh -c 'while :; do :; done' &
    pids+=($!)
done

passed=0
failed=0
for ((run = 1; run <= runs; run++)); do
    log=$logs/$run.log
    started=$SECONDS
    # A run that takes two hours has hung.
    timeout 7200 cargo test --profile "$profile" "${tests[@]}" --no-fail-fast > "$log" 2>&1
    code=$?
    # Lists failed tests with their target, and targets that ended in another way (a signal, a hang).
    failures=$(awk '
        / Running / { target = $0; sub(/^ *Running /, "", target); sub(/\(.*\//, "(", target); sub(/-[0-9a-f]*\)/, ")", target) }
        /^test .* \.\.\. FAILED/ { print target ": " $2; seen = 1 }
        /^error: test failed, to rerun pass/ { if (!seen) print "a target that did not finish: " $0; seen = 0 }
    ' "$log")
    [ $code -ne 124 ] || failures="${failures:+$failures$'\n'}the run did not finish within two hours"
    [ $code -eq 0 ] || [ -n "$failures" ] || failures="cargo test ended with exit code $code"
    ok=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$log")
    bad=0
    [ -z "$failures" ] || bad=$(wc -l <<< "$failures")
    passed=$((passed + ok))
    failed=$((failed + bad))
    echo "run $run: $ok passed, $bad failed, $((SECONDS - started)) s"
    if [ -n "$failures" ]; then
        sed 's/^/    /' <<< "$failures"
        printf '%s\n' "$failures" >> "$logs/failures"
    else
        rm "$log"
    fi
done
stop

if [ -s "$logs/failures" ]; then
    echo "failures of each test in $runs runs:"
    sort "$logs/failures" | uniq -c | sort -rn
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

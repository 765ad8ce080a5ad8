#!/bin/sh
# Runs packed targets (`./x fuzz --pack DIR`) on a machine without a compiler.
#
#   ./run.sh TARGET|all SECONDS [JOBS]     run each target for SECONDS, JOBS at a time (default: one for each processor)
#   ./run.sh TARGET FILE                   run one input again
#
# Inputs that reach new code are kept in corpora/, inputs that fail in crashes/, the output of libFuzzer in logs/.
# Exits with 1 if anything failed.
set -u
cd "$(dirname "$0")" || exit 1
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
[ $# -ge 2 ] || usage

# one TARGET ARGUMENTS...
one() {
    target=$1
    shift
    BOLERO_TEST_NAME=$target BOLERO_LIBTEST_HARNESS=1 BOLERO_LIBFUZZER_ARGS="$*" \
        exec ./targets "$target" --exact --nocapture --quiet --test-threads 1
}

if [ "$1" = --one ]; then
    target=$2
    name=$(echo "$target" | sed 's/::/__/')
    mkdir -p "corpora/$name" "crashes/$name" "seeds/$name/corpus"
    TMPDIR=$(mktemp -d "${FUZZ_TMP:-/tmp}/$name.XXXXXX")
    export TMPDIR
    (one "$target" "corpora/$name" "seeds/$name/corpus" "-artifact_prefix=crashes/$name/" -timeout=25 -rss_limit_mb=4096 \
        -print_final_stats=1 "-max_total_time=$3") >"logs/$name" 2>&1
    status=$?
    rm -rf "$TMPDIR"
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "logs/$name" | tail -1)
    # A run that fails prints no figures; the last line of progress has the count.
    [ -n "$executions" ] || executions=$(sed -n 's/^#\([0-9]*\).*/\1/p' "logs/$name" | tail -1)
    coverage=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "logs/$name" | tail -1)
    result=PASS
    [ $status = 0 ] || result="FAIL $(ls -t "crashes/$name" | head -1)"
    printf '%-26s %12s executions, %6s edges  %s\n' "$target" "${executions:-0}" "${coverage:-0}" "$result"
    exit $status
fi

if [ -f "$2" ]; then
    one "$1" "$2"
fi
mkdir -p logs
[ -d /dev/shm ] && FUZZ_TMP=/dev/shm && export FUZZ_TMP
if [ "$1" = all ]; then cat list; else echo "$1"; fi |
    xargs -P "${3:-$(nproc)}" -I{} "./$(basename "$0")" --one {} "$2" || exit 1

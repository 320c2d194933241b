# shellcheck shell=bash
# What the scripts have in common that bring up a machine of their own (scripts/test-cluster, scripts/test-vm,
# cluster/check): where things are, steps and jobs that end with the script, the program of the checks, and xtask, which
# does what is more than a list of commands.
#
# They source it with the tier's name in `tier`; it changes to the repository. They define `tidy STATUS`, which runs at
# the end, and may fail.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

: "${tier:?}"
target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$PWD/$target
logs=$target/test
results=$logs/$tier.results
mkdir -p "$logs"
failed=0

say() { echo "=== $*"; }
die() { echo "test-$tier: $*" >&2; exit 1; }

# A command that ends with this script, with everything that it started. It runs in the background, as bash handles a
# signal at once only while it is in `wait`.
job=
run() {
    local status=0
    set -m
    # Even if this script gets a kill that it cannot handle.
    setpriv --pdeathsig TERM -- "$@" </dev/null 8>&- &
    job=$!
    set +m
    wait "$job" || status=$?
    job=
    return "$status"
}

# step WORDS COMMAND…
step() {
    local words=$1 begun=$SECONDS
    shift
    say "$words"
    "$@"
    [[ $((SECONDS - begun)) -lt 2 ]] || echo "    $((SECONDS - begun)) s"
}

# One run at a time, whatever its command. Who comes second must not tidy up.
lock() {
    exec 8>"$1"
    flock -n 8 || { trap - EXIT && die "another run of the $tier tier is at work"; }
}

# The program of the checks, so that it can be stopped as one process; the binary itself is built with it.
build_checks() {
    run cargo test --locked --features testing --test "$tier" --no-run >"$logs/$tier.build" 2>&1 || { cat "$logs/$tier.build" >&2; return 1; }
}

checks_program() {
    sed -n "s|^ *Executable .*tests/$tier/main.rs (\(.*\))\$|\1|p" "$logs/$tier.build"
}

# Cargo does not run it, as its variables would cause half of the dependencies to be built again.
xtask=$target/debug/xtask
build_xtask() {
    run cargo build --quiet --locked --package xtask
}

# Lines of results: outcome, seconds, check, why.
summarize() {
    "$xtask" results "$results"
    [[ -s $results ]] || die "no check has run"
    [[ $failed == 0 ]] || die "something failed; the logs are in $logs"
}

finish() {
    local status=$?
    trap '' INT TERM HUP
    [[ -z $job ]] || kill -TERM -- "-$job" 2>/dev/null || true
    tidy "$status" || status=1
    exit "$status"
}

tidy_at_the_end() {
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# shellcheck shell=bash
# tap.sh: TAP for shell tests: `check NAME COMMAND...` is one sub-test; `plan` comes last.
#
# A test begins alike, whoever started it: a shell can neither trap nor reset what was ignored when it started, as nohup does, and
# scripts with what they start in the background; a closed stdin would be the number of the next file; and the words and the order
# that tests look for are those of C. It starts the test anew for that, so it has to come before any shift.
if [ "${TAP_START:-}" != plain ]; then
    [ -e "/proc/$$/fd/0" ] || exec < /dev/null
    TAP_START=plain LC_ALL=C exec env --default-signal bash "$0" "$@"
fi
unset TAP_START
count=0
check() {
    local name=$1 log
    shift
    count=$((count + 1))
    if log=$("$@" 2>&1); then
        echo "ok $count - $name"
    else
        echo "not ok $count - $name"
        printf '%s\n' "$log" | sed 's/^/# /'
    fi
}
# skip NAME WHY: one for which something is not there. skip_all WHY: the whole test.
skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}
skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}
# A child of this shell ends by itself, with status 0, when told to.
check_stops() {
    local name=$1 process=$2
    kill -TERM "$process"
    wait "$process"
    check "$name" [ $? = 0 ]
}
# Has $perf wait for its peer nearly as long as tests wait for it: how long a connection takes is the machine's affair, in the VM above
# all. Needs $work.
patient_perf() {
    # shellcheck disable=SC2016,SC2154 # what is printed is for the other shell; $work is the test's
    printf '#!/bin/sh\nrole=$1\nshift\nexec "%s" "$role" --timeout 50 "$@"\n' "$perf" > "$work/copyrpc-perf"
    chmod +x "$work/copyrpc-perf"
    perf=$work/copyrpc-perf
}
# Runs a program that gives its peer the 5 s that are the default. On a busy machine, in the VM above all, they may pass: then once more.
patiently() { # COMMAND...
    local output status
    for _ in $(seq 10); do
        output=$(timeout 60 "$@" 2>&1)
        status=$?
        [[ $status != 0 && $output = *"no connection within"* ]] || break
    done
    [ -z "$output" ] || printf '%s\n' "$output"
    return $status
}
plan() { echo "1..$count"; }

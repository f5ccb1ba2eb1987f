# shellcheck shell=bash disable=SC2034
# queues.sh PERF: what the tests of copyrpc-perf's queues share: where they run, a folder, and what is asked of a client. Port 7477.
device=${TEST_DEVICE:-rxe0} address=${TEST_ADDRESS:-10.99.0.1} driver=${TEST_DRIVER:-verbs}
perf=$1
. "$(dirname "$0")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"; kill $(jobs -p) 2>/dev/null' EXIT
patient_perf

says() { for _ in $(seq 600); do grep -q -- "$2" "$1" && return 0; sleep 0.1; done; cat "$1"; return 1; }
listening() { says "$1" '^listening'; }
json() { python3 -I -S -c "import json; r = json.load(open('$work/json')); rows = r['results']; assert $1, r"; }
measure() { timeout 60 "$perf" client "$address:7477" --warmup 0 --json "$@" > "$work/json"; }
fails() { # WORDS COMMAND...
    local words=$1 output
    shift
    output=$(timeout 60 "$@" 2>&1) && { echo "exit status 0"; return 1; }
    grep -qi -- "$words" <<< "$output" || { echo "$output"; return 1; }
}

all_right="all(row['lost'] == row['wrong'] == 0 for row in rows)"
in_order="all(0 < row['latency_ns']['p50'] <= row['latency_ns']['p99'] <= row['latency_ns']['max'] for row in rows)"

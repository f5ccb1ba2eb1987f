#!/usr/bin/env bash
# tag_exchange_test.sh PROGRAM: processes exchange their borders by tags, and one that is gone ends the others. Prints TAP.
host=${TEST_ADDRESS:-127.0.0.1}
program=$1
. "$(dirname "$0")/../../tools/tests/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"; kill $(jobs -p) 2>/dev/null' EXIT

start() { # COUNT STEPS: each rank, the last one first. Its files are gone before: a job empties them only once it runs.
    local rank
    addresses=() ranks=()
    rm -f "$work"/*
    for ((rank = 0; rank < $1; rank++)); do addresses+=("$host:$((7480 + rank))"); done
    for ((rank = $1 - 1; rank >= 0; rank--)); do
        "$program" "$rank" "$2" "${addresses[@]}" > "$work/$rank" 2> "$work/$rank.err" &
        ranks[rank]=$!
    done
}
end() { # waits, which checks cannot: they are subshells
    local rank
    codes=()
    for rank in "${!ranks[@]}"; do
        wait "${ranks[rank]}"
        codes+=($?)
    done
}
ended() { [ "${codes[*]}" = "$*" ] || { echo "${codes[*]}"; tail "$work"/*; return 1; }; }
expected() { # COUNT STEPS: the same in one process, in the same order
    awk -v cells=$((100 * $1)) -v steps="$2" 'BEGIN {
        now[1] = 1000
        for (step = 0; step < steps; step++) {
            now[0] = now[1]; now[cells + 1] = now[cells]
            for (i = 1; i <= cells; i++) { after[i] = now[i] + (now[i - 1] - 2 * now[i] + now[i + 1]) / 4 }
            for (i = 1; i <= cells; i++) { now[i] = after[i] }
        }
        for (i = 1; i <= cells; i++) { sum += now[i]; largest = now[i] > largest ? now[i] : largest }
        printf "sum %.6f, largest %.6f\n", sum, largest
    }'
}
# Each step has two messages for each border. A result counts if it has come before rank 0 counts.
all_counted() { # COUNT STEPS
    awk -v others=$(($1 - 1)) -v steps="$2" '/found their receive/ { sum = $1 + $6 + $10; expected = 2 * others * steps }
        END { exit !expected || sum < expected || sum > expected + others }' "$work/0.err" || { cat "$work/0.err"; return 1; }
}
right() { diff <(expected "$1" "$2") "$work/0"; }

usage() { ! "$program" 0 1 "$host:7480" 2> "$work/usage" && grep -q '^usage' "$work/usage"; }
check "it says what it takes" usage
start 2 1000
end
check "two processes end" ended 0 0
check "and have computed what one would" right 2 1000
check "with each message received once" all_counted 2 1000
start 4 1000
end
check "four processes end" ended 0 0 0 0
check "and have computed what one would" right 4 1000
check "with each message received once" all_counted 4 1000
start 3 1000000000
all_there() { [ "$(cat "$work"/[0-2].err | grep -c '^all are there')" = 3 ]; }
for _ in $(seq 600); do all_there && break; sleep 0.1; done
sleep 0.5
{ kill -9 "${ranks[1]}"; end; } 2> /dev/null
check "a process that is gone ends the others" ended 1 137 1
check "which say so" bash -c "grep -q 'a process is gone' '$work/0.err' && grep -q 'a process is gone' '$work/2.err'"
plan

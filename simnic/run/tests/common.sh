# shellcheck shell=bash
# common.sh: what the shell tests of simnic share, besides tap.sh. The first argument of each is the program.
simnic=$(realpath "$1")
export simnic
# shellcheck source-path=SCRIPTDIR source=../../../tools/tests/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/tests/tap.sh"
unset SIMNIC_SESSION SIMNIC_SESSION_NAME SIMNIC_FAULT
# With sanitizers, the shim's place in LD_PRELOAD is before theirs.
export ASAN_OPTIONS=verify_asan_link_order=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}

soon() { # waits up to a minute for a command to succeed
    local end=$((SECONDS + 60))
    while [ $SECONDS -lt $end ]; do
        "$@" > /dev/null 2>&1 && return 0
        sleep 0.02
    done
    echo "not in a minute: $*"
    return 1
}
listens() { # PORT: a process listens there, by TCP
    grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6
}
export -f soon listens # for scripts that run in a session
same() { [ "$1" = "$2" ] || { echo "$1"; echo "is not"; echo "$2"; return 1; }; }
status_is() {
    local expected=$1 status
    shift
    "$@"
    status=$?
    [ $status = "$expected" ] || { echo "status $status"; return 1; }
}
# The command fails with this status and one line that has these words.
complains() {
    local expected=$1 words=$2 output status
    shift 2
    output=$("$@" 2>&1 > /dev/null)
    status=$?
    echo "status $status: $output"
    [ $status = "$expected" ] && [ "$(wc -l <<< "$output")" = 1 ] && grep -qi -- "$words" <<< "$output" && [[ $output = simnic:* ]]
}

# shellcheck shell=bash
# check.sh: what the tests of copyrpc-check share. Needs tap.sh and $TEST_SIMNIC.
# shellcheck disable=SC2034 # the tests use them
work=$(mktemp -d)
trap 'rm -rf "$work"; "$TEST_SIMNIC" ctl fault none' EXIT
export XDG_STATE_HOME=$work/state
quirk() { "$TEST_SIMNIC" ctl fault "$1"; }
# What may be not here. fake_cuda is a GPU; and Ethernet has no partitions.
may_lack=" "
grep -q Ethernet /sys/class/infiniband/mlx5_0/ports/1/link_layer && may_lack=" partition "

json() { python3 -c "import json; r = json.load(open('$work/json')); c = {x['check']: x for x in r['checks']}; assert $1, r"; }
ends_with() { # STATUS COMMAND...
    local status=$1 output
    shift
    output=$(timeout 300 "$@" 2>&1)
    [ $? = "$status" ] || { printf '%s\n' "$output"; return 1; }
}
complains() { # WORDS COMMAND...
    local words=$1 output
    shift
    output=$("$@" 2>&1)
    if [ $? != 2 ] || ! grep -qF -- "$words" <<< "$output"; then
        printf "%s\n" "$output"
        return 1
    fi
}

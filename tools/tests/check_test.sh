#!/usr/bin/env bash
# check_test.sh CHECK SOURCE_ROOT: copyrpc-check on simnic: every check passes on a device that does as drivers expect, and each fails on
# one that breaks what it is about, and says so. Prints TAP.
check=$1 root=$2
. "$(dirname "$0")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"; "$TEST_SIMNIC" ctl fault none' EXIT
export XDG_STATE_HOME=$work/state
quirk() { "$TEST_SIMNIC" ctl fault "$1"; }
# What may be not here on simnic, which has neither a GPU nor another host.
may_lack=" dma-buf "

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
    [ $? = 2 ] && grep -qF -- "$words" <<< "$output" || { printf '%s\n' "$output"; return 1; }
}

names=$("$check" --list | cut -d' ' -f1)
check "each check has a quirk of simnic, and each quirk a check" [ "$(sort <<< "$names")" = "$(sed -n 's/^ *Q([A-Z_0-9]*, "\([a-z0-9-]*\)").*/\1/p' "$root/simnic/fabric/quirk.h" | sort)" ]

check "all checks pass, within seconds" ends_with 0 "$check" --quick --json "$work/json" mlx5_0 mlx5_1
check "the report has each, with what was seen" json "list(c) == '''$names'''.split() and all(x['seen'] and x['assumed'] for x in c.values())"
check "nothing failed" json "all(x['verdict'] != 'FAILED' for x in c.values())"
check "nothing is left out but what simnic lacks" json "[n for n, x in c.items() if x['verdict'] != 'ok' and ' ' + n + ' ' not in '$may_lack'] == []"
check "the report says of which device and versions it is" json "r['devices'][0]['device'] == 'mlx5_0' and len(r['devices']) == 2 and r['firmware'] and r['kernel'] and r['libmlx5'].startswith('libmlx5.so') and r['copyrpc']"
check "the report has nothing else, such as who and where" json "set(r) == set('report format devices driver firmware kernel libmlx5 copyrpc quick hunt_seconds checks'.split()) and {k for d in r['devices'] for k in d} == set('device link mtu_bytes link_mbps vendor_id vendor_part_id active'.split())"
check "no GUID, GID or address is in it" bash -c "! grep -v libmlx5 '$work/json' | grep -E '[0-9a-f]{4}:[0-9a-f]{4}|[0-9a-f]{16}|[0-9]+(\.[0-9]+){3}'"

for name in $names; do
    case $may_lack in *" $name "*) continue ;; esac
    check "$name: simnic breaks it" quirk "quirk=$name"
    check "$name: is found to fail" ends_with 1 "$check" --quick --patience 1 --only "$name" --json "$work/json" mlx5_0 mlx5_1
    check "$name: and nothing else was tried" json "list(c) == ['$name'] and c['$name']['verdict'] == 'FAILED' and c['$name']['seen']"
done
check "simnic does as drivers expect" quirk none

check "a device that is not there" complains "there is no device 'mlx5_9'" "$check" mlx5_9
check "a check that is not there" complains "there is no check 'nothing': see --list" "$check" --only nothing
check "a third device" complains "two devices at most" "$check" mlx5_0 mlx5_1 mlx5_0
check "no time at all" complains "--seconds must be more than 0" "$check" --seconds 0
check "a report that cannot be written" complains "cannot write '$work/none/json': No such file" "$check" --only doorbell --json "$work/none/json"
check "the report on stdout" bash -c "'$check' --quick --only doorbell --json - 2> '$work/lines' | python3 -c 'import json, sys; json.load(sys.stdin)'"
check "has the lines on stderr" grep -q '^ok  *doorbell ' "$work/lines"
check "a quirk that is not there" bash -c "! '$TEST_SIMNIC' ctl fault quirk=nothing 2> '$work/lines' && grep -q 'the name of a check' '$work/lines'"
plan

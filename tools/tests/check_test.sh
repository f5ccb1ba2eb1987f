#!/usr/bin/env bash
# check_test.sh CHECK SOURCE_ROOT: copyrpc-check on simnic, which does as drivers expect: every check passes; and its report and its
# options. check_quirks_test.sh is about devices that break what is checked. Prints TAP.
check=$1 root=$2
. "$(dirname "$0")/tap.sh"
. "$(dirname "$0")/check.sh"

names=$("$check" --list | cut -d' ' -f1)
check "each check has a quirk of simnic, and each quirk a check" [ "$(sort <<< "$names")" = "$(sed -n 's/^ *Q([A-Z_0-9]*, "\([a-z0-9-]*\)").*/\1/p' "$root/simnic/fabric/quirk.h" | sort)" ]

check "all checks pass, within seconds" ends_with 0 "$check" --quick --json "$work/json" mlx5_0 mlx5_1
check "the report has each, with what was seen" json "list(c) == '''$names'''.split() and all(x['seen'] and x['assumed'] for x in c.values())"
check "nothing failed" json "all(x['verdict'] != 'FAILED' for x in c.values())"
check "nothing is left out but what simnic lacks" json "[n for n, x in c.items() if x['verdict'] != 'ok' and ' ' + n + ' ' not in '$may_lack'] == []"
check "it has the speed by both drivers" json "[f['figure'] for f in r['speed']] == ['write-latency', 'read-latency', 'write-rate', 'write-bandwidth'] and all(f[d] > 0 and f['unit'] for f in r['speed'] for d in ('mlx5', 'verbs'))"
check "the report says of which device and versions it is" json "r['devices'][0]['device'] == 'mlx5_0' and len(r['devices']) == 2 and r['firmware'] and r['kernel'] and r['libmlx5'].startswith('libmlx5.so') and r['copyrpc']"
check "the report has nothing else, such as who and where" json "set(r) == set('report format devices driver firmware kernel libmlx5 copyrpc quick hunt_seconds checks speed'.split()) and {k for d in r['devices'] for k in d} == set('device link mtu_bytes link_mbps vendor_id vendor_part_id active'.split())"
check "no GUID, GID or address is in it" bash -c "! grep -v libmlx5 '$work/json' | grep -E '[0-9a-f]{4}:[0-9a-f]{4}|[0-9a-f]{16}|[0-9]+(\.[0-9]+){3}'"

check "a device that is not there" complains "there is no device 'mlx5_9'" "$check" mlx5_9
check "a check that is not there" complains "there is no check 'nothing': see --list" "$check" --only nothing
check "a third device" complains "two devices at most" "$check" mlx5_0 mlx5_1 mlx5_0
check "no time at all" complains "--seconds must be more than 0" "$check" --seconds 0
check "a report that cannot be written" complains "cannot write '$work/none/json': No such file" "$check" --only doorbell --json "$work/none/json"
check "the report on stdout" bash -c "'$check' --quick --only doorbell --json - 2> '$work/lines' | python3 -c 'import json, sys; json.load(sys.stdin)'"
check "has the lines on stderr" grep -q '^ok  *doorbell ' "$work/lines"
check "a quirk that is not there" bash -c "! '$TEST_SIMNIC' ctl fault quirk=nothing 2> '$work/lines' && grep -q 'the name of a check' '$work/lines'"
plan

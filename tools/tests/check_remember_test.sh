#!/usr/bin/env bash
# check_remember_test.sh CHECK INFO PERF: what copyrpc-check finds to fail is left out by programs that name no driver, and by no others, until
# it works again or the user says so. Prints TAP.
check=$1 info=$2 perf=$3
. "$(dirname "$0")/tap.sh"
. "$(dirname "$0")/check.sh"
unset COPYRPC_DRIVER
file=$XDG_STATE_HOME/copyrpc/mlx5_0.leave-out
export COPYRPC_LOG=warning

finds() { # QUIRK: the check of this name fails; what it says is in $work/found
    quirk "quirk=$1"
    "$check" --quick --patience 0.3 --only "$@" mlx5_0 > "$work/found"
    [ $? = 1 ] && quirk none
}
# A server that is at once told to stop; what it says is in $work/server.
serves() { # ARGUMENT...
    : > "$work/server" # or what the last one said would count
    "$perf" server "$@" 127.0.0.1:7478 > "$work/server" 2>&1 &
    local server=$! status
    for _ in $(seq 200); do
        grep -q '^listening' "$work/server" && break
        sleep 0.05
    done
    "$perf" client --json -n 100 127.0.0.1:7478 > "$work/client" 2> "$work/why"
    status=$?
    kill -TERM $server
    wait $server
    [ $status = 0 ] || { cat "$work/server" "$work/why"; return 1; }
}
driver_is() { python3 -c "import json; r = json.load(open('$work/client')); assert r['driver'] == '$1', r"; }
says() { grep -qF -- "$1" "$work/server" || { cat "$work/server"; return 1; }; }
says_nothing() { ! grep -F "copyrpc-check" "$work/server"; }
info_says() { "$info" --json | python3 -c "import json, sys; r = [d['left_out'] for d in json.load(sys.stdin)['devices'] if d['device'] == 'mlx5_0'][0]; assert $1, r"; }

check "programs use all there is" serves
check "and say nothing" says_nothing
check "info has nothing that is left out" info_says "r is None"

check "BlueFlame fails" finds blueflame
check "the check says which file remembers it, and how to undo it" grep -qF "leave out of mlx5_0: BlueFlame; delete $file to have them use it again" "$work/found"
check "the file has it" grep -qx "leave-out blueflame" "$file"
check "info says so" info_says "r == {'what': 'BlueFlame', 'file': '$file'}"
check "info says so to people" bash -c "'$info' | grep -qF 'left out BlueFlame: copyrpc-check found it to fail; delete $file to use it'"
check "programs work without it" serves
check "and say so" says "mlx5_0: left out, as copyrpc-check found it to fail: BlueFlame; delete $file to use it"
check "by the mlx5 driver all the same" driver_is mlx5

check "a WQE fails" finds doorbell
check "the file has both" bash -c "grep -qx 'leave-out blueflame' '$file' && grep -qx 'leave-out mlx5' '$file'"
check "programs work without the mlx5 driver" serves
check "and say so" says "the mlx5 driver, BlueFlame"
check "by verbs" driver_is verbs
COPYRPC_DRIVER=mlx5 check "who names the driver gets it" serves
check "and is told nothing" says_nothing
check "it is the mlx5 driver" driver_is mlx5

check "DC fails" finds dynamic
check "compression fails" finds compressed-sends
check "the file has all" [ "$(grep -c '^leave-out ' "$file")" = 4 ]

chmod 666 "$file"
check "a file that others can write to is not heeded" serves
check "and that is said" says "is no plain file that only its user can write to"
check "all is used" driver_is mlx5
printf 'rubbish' > "$file"
chmod 600 "$file"
check "nor is rubbish" serves
check "which is said, too" says "is not understood: line 1"

check "another check that passes leaves the file alone" ends_with 0 "$check" --quick --only mtu mlx5_0
check "--no-remember writes nothing" bash -c "rm '$file'; '$TEST_SIMNIC' ctl fault quirk=blueflame; '$check' --quick --patience 0.3 --only blueflame --no-remember mlx5_0; [ \$? = 1 ] && [ ! -e '$file' ]"
check "BlueFlame fails again" finds blueflame
check "it is there" [ -e "$file" ]
check "all checks pass" ends_with 0 "$check" --quick mlx5_0
check "then the file goes" [ ! -e "$file" ]
check "a place that cannot be written to" bash -c "'$TEST_SIMNIC' ctl fault quirk=blueflame; XDG_STATE_HOME=/proc '$check' --quick --patience 0.3 --only blueflame mlx5_0 2>&1 | grep -qF \"cannot write '/proc/copyrpc/mlx5_0.leave-out': No such file or directory\""
plan

#!/usr/bin/env bash
# fan_out_test.sh PUBLISHER SUBSCRIBER: one DCI sends to a thousand DCTs of several programs, one of which dies. Prints TAP.
address=${TEST_ADDRESS:-127.0.0.1}:7474
publisher_program=$1 subscriber_program=$2
. "$(dirname "$0")/../../tools/tests/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"; kill $(jobs -p) 2>/dev/null' EXIT

soon() { for _ in $(seq 600); do "$@" && return 0; sleep 0.1; done; tail "$work"/*; return 1; }
said() { grep -qx -- "$2" "$work/$1"; } # FILE LINE
says() { soon said "$@"; }
subscribe() { # NAME MEMBERS
    "$subscriber_program" "$address" "$2" > "$work/$1" 2>&1 9>&- & # or the feed would not end with us
    subscribers[$1]=$!
}
declare -A subscribers

listens_not() { ! timeout 60 "$subscriber_program" "$address" 1 > "$work/nobody" 2>&1 && grep -q 'listens' "$work/nobody"; }
check "a subscriber says that nobody listens" listens_not
check "and what it takes" bash -c "! '$subscriber_program' '$address' 8001 2> '$work/usage' && grep -q 'up to 8000' '$work/usage'"
mkfifo "$work/feed"
"$publisher_program" "$address" < "$work/feed" > "$work/publisher" 2>&1 &
publisher=$!
exec 9> "$work/feed"
check "the publisher listens" soon grep -q '^listening' "$work/publisher"

for name in 1 2 3 4; do
    subscribe "$name" 250
    check "250 members of program $name join" says "$name" "250 members"
done
check "a thousand are there" says publisher "1000 members"
echo "the first update" >&9
check "all have the first update" says publisher "update 1: 1000 members have it, 0 are gone"
for name in 1 2 3 4; do
    check "program $name has read it" says "$name" "update 1: 250 members have it, 0 too late: the first update"
done

# Some die: each is gone by an op of its own, and what was flushed with it arrives.
subscribe mortal 3
check "three more join" says mortal "3 members"
echo "for all" >&9
check "all have the next" says publisher "update 2: 1003 members have it, 0 are gone"
{ kill -9 "${subscribers[mortal]}"; wait "${subscribers[mortal]}"; } 2> /dev/null
echo "for those that are left" >&9
check "those that have died are gone, and the others have the next" says publisher "update 3: 1000 members have it, 3 are gone"
for name in 1 2 3 4; do
    check "program $name has read it, too" says "$name" "update 3: 250 members have it, 0 too late: for those that are left"
done
subscribe late 1
check "another joins" says late "1 members"
echo "again" >&9
check "it gets what comes then" says late "update 4: 1 members have it, 0 too late: again"
for i in $(seq 20); do echo "line $i"; done >&9
check "many updates come one after the other" says publisher "update 24: 1001 members have it, 0 are gone"
exec 9>&-
wait "$publisher"
check "the publisher ends with its input" [ $? = 0 ]
for name in 1 2 3 4 late; do
    wait "${subscribers[$name]}"
    check "program $name hears of it" [ $? = 0 ]
done
all_came() { # NAME FIRST MEMBERS: each update, in its order; who is too late has read the next but one
    awk -v number="$2" -v members="$3" '/^update/ { good = $2 == (number++ ":") && $3 + $7 == members; if (!good) exit }
        END { exit !good || number != 26 }' "$work/$1" || { cat "$work/$1"; return 1; }
}
check "each update has come once" all_came 1 1 250
check "also to who came later" all_came late 4 1
plan

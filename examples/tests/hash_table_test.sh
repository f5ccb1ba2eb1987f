#!/usr/bin/env bash
# hash_table_test.sh SERVER CLIENT [OTHER...]: the hash table of the examples on a device, with several clients at once, and with clients
# that die in the middle. OTHER: clients in other languages, each a program. Prints TAP.
address=${TEST_ADDRESS:-127.0.0.1}:7473
server_program=$1 client=$2
. "$(dirname "$0")/../../tools/tests/tap.sh"
shift 2
others=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"; kill $(jobs -p) 2>/dev/null' EXIT
entries=$((256 + 1024)) # of a table of 256 slots

soon() { for _ in $(seq 600); do "$@" && return 0; sleep 0.1; done; tail "$work/server"; return 1; }
prints() { # WORDS COMMAND...: exactly that, with success
    local words=$1 output
    shift
    output=$(patiently "$@") || { echo "status $?: $output"; return 1; }
    [ "$output" = "$words" ] || { echo "$output"; return 1; }
}
fails() { # STATUS WORDS COMMAND...
    local status=$1 words=$2 output
    shift 2
    output=$(patiently "$@")
    { [ $? = "$status" ] && grep -q -- "$words" <<< "$output"; } || { echo "$output"; return 1; }
}
get() { patiently "$client" "$address" get "$1"; }
# The server has looked through the table when nobody used it: so many keys, each found where a search comes to it, and nothing is lost.
# Whoever has just left may have been the last, or not yet: so one more comes, until the server has collected everything.
looked() { get none > /dev/null 2>&1; tail -n 1 "$work/server" | grep -qx "$1 keys, $((entries - $1)) entries free, 0 collected, 0 damaged"; }
collected() { awk '/ collected, / { sum += $6 } END { exit sum != '"$1"' }' "$work/server"; }
clean() { ! grep -v ' 0 damaged$' "$work/server" | grep -v '^listening'; }

# storm NAME COMMAND ROUNDS: in the background; those in $names check each other's entries. The status comes by a file: bash's wait has
# returned too early, with -1, while processes of other commands ended.
storm() {
    local others=() name
    for name in "${names[@]}"; do
        [ "$name" = "$1" ] || others+=("$name")
    done
    (
        for _ in 1 2 3; do # as patiently does
            timeout 120 "$2" "$address" storm "$1" "$3" "${others[@]}" > "$work/$1" 2>&1
            status=$?
            grep -q "no connection within" "$work/$1" || break
        done
        echo "$status" > "$work/$1.status"
    ) &
    storm=$!
}
status_is() { # waits as long as the storm may last
    until [ -s "$work/$1.status" ]; do sleep 0.1; done
    [ "$(cat "$work/$1.status")" = "$2" ] || { cat "$work/$1.status" "$work/$1"; return 1; }
}
end_well() {
    local name failed=0
    for name; do
        status_is "$name" 0 || failed=1
    done
    return $failed
}
sums_are() { # SUM: of all counters
    local sum=0 i
    for i in 0 1 2 3; do
        sum=$((sum + $(get "counter-$i")))
    done
    [ $sum = "$1" ] || { echo "$sum, not $1"; return 1; }
}
dies() { # MOMENT KEY VALUE
    patiently "$client" "$address" crash "$@" > "$work/crash" 2>&1
    [ $? = 137 ] || { cat "$work/crash"; return 1; }
}

check "a client says that nobody listens" fails 1 listens "$client" "$address" get a
"$server_program" "$address" 256 > "$work/server" 2>&1 &
server=$!
check "the server listens" soon grep -q '^listening' "$work/server"

number=0
for language in "$client" "${others[@]}"; do
    name=language-$((number++))
    check "$name: what is not there" fails 2 "it is not there" "$language" "$address" get "$name"
    check "$name: insert" prints "" "$language" "$address" put "$name" first
    check "$name: update" prints "" "$language" "$address" put "$name" "the second value"
    for reader in "$client" "${others[@]}"; do
        check "$name has put there what ${reader##*/} finds" prints "the second value" "$reader" "$address" get "$name"
    done
    check "$name: add" prints 5 "$language" "$address" add "sum-$name" 5
    check "$name: add again" prints 12 "$language" "$address" add "sum-$name" 7
    check "$name: add to what is no number" fails 1 "no number" "$language" "$address" add "$name" 1
    check "$name: the longest value" prints "" "$language" "$address" put long "$(printf %0104d 7)"
    check "$name: which is found" prints "$(printf %0104d 7)" "$language" "$address" get long
    check "$name: one that is too long" fails 1 "108 at most" "$language" "$address" put long "$(printf %0105d 7)"
    check "$name: wrong words" fails 1 usage "$language" "$address" put "$name"
done
keys=$((1 + 2 * (1 + ${#others[@]})))
check "the server finds all of that, and nothing lost" soon looked $keys

# In the middle of inserts and updates that nobody else does.
check "what a client inserts that dies is not there" dies 1 unborn x
check "nor half of it" dies 2 unborn x
check "nor all of it, without the swap" dies 3 unborn x
check "so it is not found" fails 2 "it is not there" "$client" "$address" get unborn
check "and others can insert it" prints "" "$client" "$address" put unborn "born after all"
for moment in 1 2 3; do
    check "an update that dies at moment $moment" dies $moment unborn x
    check "has changed nothing" prints "born after all" "$client" "$address" get unborn
done
check "one that dies swapping" dies 4 unborn swapped
check "has either changed it, or not" bash -c "'$client' $address get unborn | grep -qxE 'swapped|born after all'"
check "one that dies after that" dies 5 unborn swapped
check "has changed it" prints swapped "$client" "$address" get unborn
keys=$((keys + 1))
check "the server finds the keys" soon looked $keys
check "and has collected an entry for each that died" soon collected 8

# A reader stops when it knows which entry it will read. Then another client replaces it, and begins to write to it.
check "a value" prints "" "$client" "$address" put torn "$(printf %0104d 1)"
stopped() { grep -q '^State:.T' "/proc/$reader/status"; }
for moment in 2 3; do
    "$client" "$address" pause torn > "$work/paused" 2>&1 &
    reader=$!
    check "a reader stops in the middle" soon stopped
    check "its entry becomes another's, who writes to it up to moment $moment" dies $moment torn "$(printf %0104d $moment)" somebody "$(printf %0100d 9)"
    kill -CONT $reader
    check "the reader notices it, and finds the present value" soon grep -qx "$(printf %0104d $moment)" "$work/paused"
done
keys=$((keys + 1))
check "the server finds that key, and nothing lost" soon looked $keys

# Three at once, and others that die in the middle of updates of what all of them change.
names=(one two three)
storm one "$client" 1000
storm two "${others[0]:-$client}" 400
storm three "${others[1]:-$client}" 400
# Until one of them has come so far; after that it is there, and not inserted.
soon get counter-0 > /dev/null 2>&1
for moment in 1 2 3 1 2 3; do
    check "a client dies among the others, at moment $moment" dies $moment counter-0 1000000
done
check "all of these find each other's entries whole, and in order" end_well one two three
check "no addition is lost or done twice" sums_are 1800
keys=$((keys + 4 + 3 * 8))
check "the server finds each key once, and nothing lost" soon looked $keys
check "and has collected an entry for each that died, again" soon collected 16

# One that is killed wherever it is, while the others look at its entries.
names=(four five victim)
storm victim "$client" 1000000
victim=$storm
storm four "$client" 2000
storm five "${others[0]:-$client}" 300
soon get victim-7 > /dev/null 2>&1
victim=$(pgrep -P "$(pgrep -P $victim)")
check "a client is killed in its storm" kill -KILL "$victim"
check "and ends" status_is victim 137
check "the others find its entries whole" end_well four five
check "and the server does, too" soon looked $((keys + 3 * 8))

check "no look at the table has found damage" clean
names=(six)
storm six "$client" 1000000
soon get six-7 > /dev/null 2>&1
check_stops "the server ends on SIGTERM" $server
check "and the client that uses the table fails" status_is six 1
check "and says why" grep -q '^hash_table_client: ' "$work/six"
plan

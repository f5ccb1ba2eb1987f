#!/usr/bin/env bash
# programs_test.sh GO SIMNIC BUILD: the programs in Go of docs/queues.md and docs/lanes.md, exactly as printed, with those in C as their peers.
# Builds first, then runs itself on simnic.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
. "$source/bindings/go/go_folders.sh"

if [ "${1:-}" != inside ]; then
    go=$1 simnic=$2 build=$3
    export_go_build "$source" "$go" "$build"
    work=$(mktemp -dt "a test.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    readme_block "In Go" sh > "$work/commands" # of the README: they make the program `hello`
    check "the README says how to build a program" test -s "$work/commands"
    # build NAME FILE HEADING: the first program in Go below the heading, and the first in C, as $work/NAME and NAME_c.
    build() {
        local name=$1 heading=$3
        export readme=$source/docs/$2
        mkdir "$work/$name.go"
        readme_block "$heading" go > "$work/$name.go/main.go"
        readme_block "$heading" c > "$work/$name.c"
        check "in Go, '$heading' builds as printed" bash -c "cd '$work/$name.go' && sh -e ../commands && mv hello '../$name'"
        check "and in C" cc -I"$source/capi" -o "$work/${name}_c" "$work/$name.c" -L"$build/capi" -lcopyrpc
        unset readme
    }
    build rc queues.md "RC: memory for others to read"
    build srq queues.md "SRQ: receives that connections share"
    build ud queues.md "UD: datagrams to many"
    build dc queues.md "DCI and DCT: reliable, to many"
    build tags queues.md "TM-SRQ: messages that find their buffer"
    build lanes lanes.md "A grant, a WRITE, a call"
    "$simnic" run --session "programs_go.$$" -- bash "$0" inside "$work" "$count"
    exit
fi

work=$2 count=$3
address=127.0.0.1
trap 'kill $(jobs -p) 2>/dev/null' EXIT
# start NAME COMMAND...: what it prints goes to $work/NAME.output, and its process to $process.
start() {
    local name=$1
    shift
    "$@" > "$work/$name.output" &
    process=$!
}
end() { kill "$process" && wait "$process" 2>/dev/null; }
# until_done COMMAND...: again and again, until its peer listens.
until_done() {
    for _ in $(seq 600); do
        timeout 60 "$@" > "$work/output" && break
        sleep 0.1
    done
    cat "$work/output"
}
lines() { # NAME COUNT
    for _ in $(seq 600); do
        [ "$(wc -l < "$work/$1.output")" -ge "$2" ] && return
        sleep 0.1
    done
    return 1
}

start rc "$work/rc_c" $address:7485
reads() {
    for _ in $(seq 600); do # until it listens: the program's status is 0 before, too
        timeout 60 "$work/rc" $address:7485 | tr -d '\0' > "$work/output"
        ! grep -q listens "$work/output" && break
        sleep 0.1
    done
    cat "$work/output"
    [ "$(cat "$work/output")" = "whoever connects may read this, <nil>" ]
}
check "Go reads what C has opened" reads
end

start srq "$work/srq" $address:7486
shares() { [ "$(until_done "$work/srq_c" $address:7486 "$1")" = CRPC_OK ]; }
for text in one two three; do
    check "C sends to receives in Go that are shared: $text" shares $text
done
comes() {
    lines srq 3
    cat "$work/srq.output"
    [ "$(cat "$work/srq.output")" = "$(printf '%s\n' one two three)" ]
}
check "all have come" comes
end

start ud "$work/ud_c"
asks() {
    lines ud 1
    timeout 60 "$work/ud" "$(cat "$work/ud.output")" > "$work/output"
    cat "$work/output"
    [ "$(cat "$work/output")" = "whoever knows the key may ask this" ]
}
check "Go asks C by a datagram" asks
end

# Its address is the first line that a receiver prints.
start dct0 "$work/dc_c"
in_c=$process
start dct1 "$work/dc"
fans_out() { # PROGRAM, and what it says of what is sent, of an error, and before the number of messages that came until then
    lines dct0 $((1 + $4)) && lines dct1 $((1 + $4)) || return
    local first second
    first=$(head -1 "$work/dct0.output") second=$(head -1 "$work/dct1.output")
    timeout 60 "$1" "$first" "${first:0:8}ffff0000${first:16}" "$second" | sort > "$work/output"
    cat "$work/output"
    [ "$(sed -n '1p;3p' "$work/output")" = "$(printf '%s\n' "0: $2" "2: $2")" ] && sed -n 2p "$work/output" | grep -q "^1: $3" &&
        lines dct0 $((2 + $4)) && lines dct1 $((2 + $4)) &&
        [ "$(tail -n 1 "$work/dct0.output")$(tail -n 1 "$work/dct1.output")" = "you are number 0you are number 2" ]
}
check "Go sends to DCTs in C and Go, and not to one that there is not" fans_out "$work/dc" "<nil>" "copyrpc: send: " 0
check "and so does C" fans_out "$work/dc_c" CRPC_OK CRPC_E_DISCONNECTED 1
end
process=$in_c
end

start tags "$work/tags" $address:7487
sends() { [ "$(until_done "$work/tags_c" $address:7487 "$1" "$2")" = CRPC_OK ]; }
check "C sends a message with a tag to Go" sends 1 moon
check "and one with another tag" sends 300 "384400 km"
check "and one that nobody waits for" sends 7 sun
finds() {
    lines tags 3
    cat "$work/tags.output"
    [ "$(cat "$work/tags.output")" = "$(printf '%s\n' "word: moon" "number: 384400 km" "tag 7: sun")" ]
}
check "each finds its buffer" finds
wait "$process"
check "and the program ends" [ $? = 0 ]

start lanes "$work/lanes_c" $address:7488
writes() { [ "$(until_done "$work/lanes" $address:7488)" = "written by the client" ]; }
check "Go writes what C has granted, and calls behind it" writes
end
plan

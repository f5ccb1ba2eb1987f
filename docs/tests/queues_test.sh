#!/usr/bin/env bash
# queues_test.sh LIBRARY_FOLDER ADDRESS: builds the programs in docs/queues.md exactly as printed, and runs them over the device that has
# the address. Prints TAP.
library=$1 address=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
export readme=$source/docs/queues.md
work=$(work_folder) || exit 1
server=
shared=
datagrams=
dcts=()
tags=
trap '[ -n "$server" ] && kill $server $shared $datagrams $tags "${dcts[@]}" 2>/dev/null; rm -rf "$work"' EXIT

section="RC: memory for others to read"
readme_block "$section" c > "$work/server.c"
readme_block "$section" c 2 > "$work/client.c"
section="SRQ: receives that connections share"
readme_block "$section" c > "$work/shared.c"
section="UD: datagrams to many"
readme_block "$section" c > "$work/datagrams.c"
section="DCI and DCT: reliable, to many"
readme_block "$section" c > "$work/dc.c"
section="TM-SRQ: messages that find their buffer"
readme_block "$section" c > "$work/tags.c"
sanitize=
nm -D "$library/libcopyrpc.so" | grep -q __asan_init && sanitize=-fsanitize=address,undefined
for program in server client shared datagrams dc tags; do
    check "the $program builds as printed, as C99 with every warning" \
        cc $sanitize -std=c99 -Wall -Wextra -Werror -I"$source/capi" -o "$work/$program" "$work/$program.c" -L"$library" -lcopyrpc \
        -Wl,-rpath,"$library"
done
# It ends without closing anything, as programs do that have nothing more to say.
unanswered() {
    ! ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 timeout 60 "$work/client" "$address" > "$work/output" &&
        grep -q 'nobody listens' "$work/output"
}
check "where nobody listens, the client says so" unanswered
"$work/server" "$address" &
server=$!
reads() {
    for _ in {1..600}; do
        timeout 60 "$work/client" "$address" > "$work/output" && break
        sleep 0.1
    done
    cat "$work/output"
    [ "$(cat "$work/output")" = "CRPC_OK: whoever connects may read this" ]
}
check "the client reads what the server has opened" reads
check "and another one, too" reads

# What a program says, when it says as many lines.
says() { # FILE LINES
    for _ in {1..600}; do
        [ "$(wc -l < "$1")" -ge "$2" ] && return
        sleep 0.1
    done
    return 1
}
where=${address%:*}:7474
"$work/shared" "$where" > "$work/came" &
shared=$!
shares() { # TEXT
    for _ in {1..600}; do
        timeout 60 "$work/shared" "$where" "$1" > "$work/output" && break
        sleep 0.1
    done
    cat "$work/output"
    [ "$(cat "$work/output")" = CRPC_OK ]
}
for text in one two three four five; do
    check "a message is sent to receives that are shared: $text" shares $text
done
comes() {
    says "$work/came" 5
    cat "$work/came"
    [ "$(cat "$work/came")" = "$(printf '%s\n' one two three four five)" ]
}
check "all have come, and receives are given again" comes
too_long() {
    ! timeout 60 "$work/shared" "$where" "$(printf '%61d' 0)" > "$work/output" && grep -qx CRPC_E_TOO_BIG "$work/output"
}
check "what is longer than inline payloads is refused" too_long
kill $shared

"$work/datagrams" > "$work/address" &
datagrams=$!
answers() {
    for _ in {1..600}; do
        [ -s "$work/address" ] && break
        sleep 0.1
    done
    for _ in {1..6}; do # one that comes before the receive is given again is lost
        timeout 10 "$work/datagrams" "$(cat "$work/address")" > "$work/output" && break
    done
    cat "$work/output"
    [ "$(cat "$work/output")" = "whoever knows the key may ask this" ]
}
check "a datagram is answered" answers
check "and another one, of another program" answers
check "what is no address is refused" bash -c "! timeout 60 '$work/datagrams' 00"
kill $datagrams

for number in 0 1; do
    "$work/dc" > "$work/dct$number" &
    dcts+=($!)
done
fans_out() {
    says "$work/dct0" 1 && says "$work/dct1" 1 || return
    local first second
    first=$(head -1 "$work/dct0") second=$(head -1 "$work/dct1")
    timeout 60 "$work/dc" "$first" "${first:0:8}ffff0000${first:16}" "$second" > "$work/output"
    sort "$work/output"
    [ "$(sort "$work/output")" = "$(printf '%s\n' "0: CRPC_OK" "1: CRPC_E_DISCONNECTED" "2: CRPC_OK")" ]
}
check "a DCI sends to two DCTs, and not to one that there is not" fans_out
arrives() {
    says "$work/dct0" 2 && says "$work/dct1" 2 &&
        [ "$(sed 1d "$work/dct0")" = "you are number 0" ] && [ "$(sed 1d "$work/dct1")" = "you are number 2" ]
}
check "what it has sent arrives" arrives
kill "${dcts[@]}"

where=${address%:*}:7475
"$work/tags" "$where" > "$work/tagged" &
tags=$!
sends() { # TAG TEXT
    for _ in {1..600}; do
        timeout 60 "$work/tags" "$where" "$1" "$2" > "$work/output" && break
        sleep 0.1
    done
    cat "$work/output"
    [ "$(cat "$work/output")" = CRPC_OK ]
}
check "a message with a tag is sent" sends 1 moon
check "and one with another tag" sends 300 "384400 km"
check "and one that nobody waits for" sends 7 sun
check "and one more of the first" sends 1 earth
finds() {
    says "$work/tagged" 4
    cat "$work/tagged"
    [ "$(cat "$work/tagged")" = "$(printf '%s\n' "word: moon" "number: 384400 km" "tag 7: sun" "word: earth")" ]
}
check "each finds its buffer" finds
kill $tags
plan

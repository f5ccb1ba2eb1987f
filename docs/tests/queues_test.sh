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
datagrams=
trap '[ -n "$server$datagrams" ] && kill $server $datagrams 2>/dev/null; rm -rf "$work"' EXIT

section="RC: memory for others to read"
readme_block "$section" c > "$work/server.c"
readme_block "$section" c 2 > "$work/client.c"
section="UD: datagrams to many"
readme_block "$section" c > "$work/datagrams.c"
sanitize=
nm -D "$library/libcopyrpc.so" | grep -q __asan_init && sanitize=-fsanitize=address,undefined
for program in server client datagrams; do
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
"$work/datagrams" > "$work/address" &
datagrams=$!
answers() {
    for _ in {1..600}; do
        [ -s "$work/address" ] && break
        sleep 0.1
    done
    timeout 60 "$work/datagrams" "$(cat "$work/address")" > "$work/output"
    cat "$work/output"
    [ "$(cat "$work/output")" = "whoever knows the key may ask this" ]
}
check "a datagram is answered" answers
check "and another one, of another program" answers
check "what is no address is refused" bash -c "! timeout 60 '$work/datagrams' 00"
kill $datagrams
plan

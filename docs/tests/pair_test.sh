#!/usr/bin/env bash
# pair_test.sh LIBRARY_FOLDER ADDRESS PAGE SECTION ANSWER: builds the server and the client that a section of a page in docs has, exactly as
# printed, and runs them over the device that has the address. The client says ANSWER. Prints TAP.
library=$1 address=$2 page=$3 section=$4 answer=$5
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
export readme=$source/docs/$page
work=$(work_folder) || exit 1
server=
trap '[ -n "$server" ] && kill $server 2>/dev/null; rm -rf "$work"' EXIT

readme_block "$section" c > "$work/server.c"
readme_block "$section" c 2 > "$work/client.c"
sanitize=
nm -D "$library/libcopyrpc.so" | grep -q __asan_init && sanitize=-fsanitize=address,undefined
for program in server client; do
    check "the $program builds as printed, as C99 with every warning" \
        cc $sanitize -std=c99 -Wall -Wextra -Werror -I"$source/capi" -o "$work/$program" "$work/$program.c" -L"$library" -lcopyrpc \
        -Wl,-rpath,"$library"
done
"$work/server" "$address" &
server=$!
answers() {
    for _ in {1..600}; do
        timeout 60 "$work/client" "$address" > "$work/output" && break
        sleep 0.1
    done
    cat "$work/output"
    [ "$(cat "$work/output")" = "$answer" ]
}
check "the client does what the page says" answers
check "and another one, too" answers
plan

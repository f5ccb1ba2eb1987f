#!/usr/bin/env bash
# shellcheck disable=SC2016 # the variables in what is printed are the other shell's
# logs_test.sh LIBRARY_FOLDER ADDRESS PYTHON GO: builds the programs in docs/observability.md, "Logs", exactly as printed, and runs each with
# ADDRESS, where nobody listens. PYTHON and GO are paths, or "-" where the build has no such binding; PYTHONPATH is set. Prints TAP.
library=$1 address=$2 python=$3 go=$4
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
export readme=$source/docs/observability.md
work=$(work_folder) || exit 1
trap 'rm -rf "$work"' EXIT
unset COPYRPC_LOG # which would say the same

# tells PATTERN COMMAND...: it succeeds, and the log's line is one that the pattern matches, once.
tells() {
    local pattern=$1
    shift
    timeout 60 "$@" "$address" > "$work/output" 2>&1
    local status=$?
    cat "$work/output"
    [ $status = 0 ] && [ "$(grep -cE "$pattern" "$work/output")" = 1 ]
}
text="endpoint not connected: $address: nobody listens there"

readme_block Logs c > "$work/logs.c"
sanitize=
nm -D "$library/libcopyrpc.so" | grep -q __asan_init && sanitize=-fsanitize=address,undefined
check "the program in C builds as printed, as C99 with every warning" \
    cc $sanitize -std=c99 -Wall -Wextra -Werror -I"$source/capi" -o "$work/logs_c" "$work/logs.c" -L"$library" -lcopyrpc \
    -Wl,-rpath,"$library"
check "and prints its log" tells "^info: $text" "$work/logs_c"

if [ "$python" != - ]; then
    readme_block Logs python > "$work/logs.py"
    check "the program in Python logs it" tells "^INFO:copyrpc:$text" "$python" "$work/logs.py"
fi

if [ "$go" != - ]; then
    . "$source/bindings/go/go_folders.sh"
    # In a shell of its own, because what finds the library when a program is built is not what simnic needs to run it.
    build_go() (
        export_go_build "$source" "$go" "$(dirname "$library")"
        cd "$source/bindings/go" && "$go" build -o "$work/logs_go" "$work/logs.go"
    )
    well_formed() { [ -z "$("$(dirname "$go")/gofmt" -d "$work/logs.go")" ]; }
    readme_block Logs go > "$work/logs.go"
    check "the program in Go builds as printed" build_go
    check "and is formatted" well_formed
    check "and logs it" tells "^time=[^ ]+ level=INFO msg=\"$text.*\" device=[a-z]" \
        env LD_LIBRARY_PATH="$library:$LD_LIBRARY_PATH" "$work/logs_go"
fi
plan

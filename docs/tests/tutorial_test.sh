#!/usr/bin/env bash
# tutorial_test.sh BUILD PYTHON GO: does what docs/tutorial.md says, line by line as printed, in a home of its own, where the checkout is; then
# runs each client with each server. PYTHON and GO are paths, or "-" where the build has no such binding. Prints TAP.
build=$1 python=$2 go=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
. "$source/bindings/go/go_folders.sh"
export readme=$source/docs/tutorial.md
work=$(work_folder) || exit 1
server=
trap '[ -n "$server" ] && kill $server 2>/dev/null; rm -rf "$work"' EXIT
languages=(c)
mkdir -p "$work/bin" "$work/copyrpc/build"
if [ "$python" != - ]; then
    languages+=(python)
    ln -s "$python" "$work/bin/python3"
fi
if [ "$go" != - ]; then
    languages+=(go)
    export_go_build "$source" "$go" "$build"
    GOCACHE=$("$go" env GOCACHE) GOPATH=$("$go" env GOPATH) # also when the home is another
    export GOCACHE GOPATH
fi

# What the page starts from: a shell with a home, in which there is the checkout, and nothing else that leads to copyrpc.
ln -s "$source/bindings" "$work/copyrpc/bindings"
ln -s "$build" "$work/copyrpc/build/gcc"
unset COPYRPC PKG_CONFIG_PATH LD_LIBRARY_PATH
export HOME=$work SIMNIC_SESSION_NAME=tutorial.$$ PYTHONDONTWRITEBYTECODE=1 PATH=$work/bin:$PATH
readme_block "Set up" sh > "$work/setup"
check "the page says how to begin" test "$(grep -c . "$work/setup")" = 7
cd "$work" || exit 1
# shellcheck source=/dev/null
. "$work/setup"
check "there is an empty folder" test "$PWD" = "$work/service" -a -z "$(ls -A)"

declare -A suffix=([c]=c [python]=py [go]=go)
number_of() { case $1 in c) echo 1 ;; python) echo 2 ;; go) echo 3 ;; esac; }

# step LANGUAGE SECTION PROGRAM: writes the program and builds it. The lines that run it are in PROGRAM.run.
step() {
    local language=$1 section=$2 program=$3
    cd "$work/service/$language" || return 1
    readme_block "$section" "$language" > "$program.${suffix[$language]}"
    readme_block "$section" sh "$(number_of "$language")" > "$program.lines"
    grep '^simnic' "$program.lines" > "$program.run"
    grep -v '^simnic' "$program.lines" > "$program.build"
    test -s "$program.${suffix[$language]}" -a -s "$program.run" && sh -e "./$program.build"
}
strict() { cc -std=c99 -Wall -Wextra -Werror -fsyntax-only -I"$source/capi" "$work"/service/c/*.c; }
formatted() { [ -z "$("$(dirname "$go")/gofmt" -d "$work/service/go")" ]; }
# printed SECTION: what the page says that the programs print.
printed() { awk -v heading="## $1" '/^## / { here = $0 == heading } here && /^It prints:/ { found = 1 }
    found && /^```/ { if (inside) exit; inside = 1; next } inside' "$readme"; }

for language in "${languages[@]}"; do
    mkdir "$work/service/$language"
    check "the server in $language" step "$language" "A server" server
    check "the client in $language" step "$language" "A client" client
    check "the client with many calls in $language" step "$language" "Many calls at once" batch
done
check "what is in C is C99, with every warning" strict
[ "$go" = - ] || check "what is in Go is formatted" formatted

# Where nobody listens yet.
unanswered() {
    cd "$work/service/$1" && head -n 1 client.run > client.first
    sh ./client.first > "$work/output" 2>&1
    cat "$work/output"
    grep -q 'nobody listens' "$work/output"
}
for language in "${languages[@]}"; do
    check "the client in $language says that there is no server" unanswered "$language"
done
prints() { # LANGUAGE PROGRAM SECTION
    cd "$work/service/$1" || return 1
    for _ in {1..600}; do # until the server listens
        sh "./$2.run" > "$work/output" 2>&1
        grep -q 'nobody listens' "$work/output" || break
        sleep 0.1
    done
    cat "$work/output"
    [ -s "$work/output" ] && [ "$(cat "$work/output")" = "$(printed "$3")" ]
}
for one in "${languages[@]}"; do
    cd "$work/service/$one" || exit 1
    sh -c "exec $(cat server.run)" > "$work/said" 2>&1 & # so that the process below is the program's, not the shell's
    server=$!
    for other in "${languages[@]}"; do
        check "the client in $other prints what the page says, of the server in $one" prints "$other" client "A client"
        check "and so does the one with many calls" prints "$other" batch "Many calls at once"
    done
    kill $server
    wait $server 2>/dev/null
    server=
done
plan

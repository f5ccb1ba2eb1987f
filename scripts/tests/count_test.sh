#!/usr/bin/env bash
# count_test.sh SOURCE_ROOT: what ./dev test makes of the logs of meson's test runner.
# shellcheck source-path=SCRIPTDIR source=../../tools/tests/tap.sh
. "$(dirname "$0")/../../tools/tests/tap.sh"
source=$1
run=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$run"' EXIT

has() { grep -qFx -- "$2" <<< "$1" || { echo "no line '$2' in:"; echo "$1"; return 1; }; }
lacks() { ! has "$@" > "$run/said" || { echo "a line '$2' in:"; echo "$1"; return 1; }; }
ends() { [ "$(tail -n 1 <<< "$1")" = "$2" ] || { echo "'$2' is not the end of:"; echo "$1"; return 1; }; }

# began: a run that has nothing yet.
began() {
    rm -f "$run"/*
    date +%s > "$run/started"
    echo 0.5 > "$run/load"
}
# program NAME RESULT STATUS STDOUT [STDERR]: a line of the runner's log.
program() {
    /usr/bin/python3 -c 'import json, sys
name, result, status, out, error = sys.argv[1:]
print(json.dumps({"name": name, "result": result, "returncode": int(status), "duration": 1.5, "stdout": out, "stderr": error}))' \
        "$1" "$2" "$3" "$4" "${5:-}" >> "$run/log"
}
# step KIND NAME LOG STATUS: of a run that is to be counted.
step() { printf '%s\t%s\t3\t%s\t%s\n' "$@" >> "$run/steps"; }
# counted: what is printed of it, with the status as the first line. It has one set of tests, unless steps were told.
counted() {
    local status=0 said
    [ -e "$run/steps" ] || step tests gcc "$run/log" 0
    said=$(/usr/bin/python3 "$source/scripts/count_tests.py" "$run" 2>&1) || status=$?
    printf 'status %s\n%s\n' "$status" "$said"
}

began
program all OK 0 $'1..3\nok 1 - a\nok 2 - b # SKIP none here\nok 3 - c'
said=$(counted)
check "good runs have status 0" has "$said" "status 0"
check "sub-tests are counted" ends "$said" "2 passed, 0 failed, 1 skipped"

began
program before ERROR 1 $'ok 1 - a\n# one\n# two\n# three\n# four\nnot ok 2 - b\nok 3 - c\n1..3'
program after ERROR 1 $'# of another\nok 1 - a\nnot ok 2 - b\n# 7 != 8\n# file.c:12: error: Failure!\nok 3 - c\n1..3'
program sanitized ERROR 1 $'ok 1 - a\nnot ok 2 - b\n==12==ERROR: heap-use-after-free\n1..2'
said=$(counted)
check "bad runs have status 1" has "$said" "status 1"
check "a failure has its program and its build" has "$said" "FAILED: before (gcc): b"
check "what was said before it is shown" has "$said" "  # four"
check "but no more than its end" lacks "$said" "  # one"
check "what was said after it is shown" has "$said" "  # 7 != 8"
check "what is no TAP is shown" has "$said" "  ==12==ERROR: heap-use-after-free"
check "what was said of another test is not" lacks "$said" "  # of another"
check "failures are counted" ends "$said" "5 passed, 3 failed, 0 skipped"

began
program crash ERROR 139 $'ok 1 - a' $'one\nSegmentation fault'
program silent OK 0 ''
said=$(counted)
check "a program that crashes fails" has "$said" "FAILED: crash (gcc) ended badly: ERROR, exit status 139"
check "and its last words are shown" has "$said" "  Segmentation fault"
check "a program without a result fails" has "$said" "FAILED: silent (gcc) printed no result"
check "both are counted" ends "$said" "1 passed, 2 failed, 0 skipped"

began
program caught ERROR 1 $'ok 1 - a' "$(printf '%s\n' 'x.c:1:2: runtime error: null pointer' '#0 '{a..z} '' '(test program exited with status code 1)')"
said=$(counted)
check "what a sanitizer has found is shown, which it says first" has "$said" "  x.c:1:2: runtime error: null pointer"
check "and the last words behind it" has "$said" "  (test program exited with status code 1)"
check "but not all between them" lacks "$said" "  #0 m"

began
printf '{"name": "half' > "$run/log"
check "a log that cannot be read is a failure" ends "$(counted)" "0 passed, 1 failed, 0 skipped"
began
check "so is one that is not there" ends "$(counted)" "0 passed, 1 failed, 0 skipped"
began
program all OK 0 $'1..1\nok 1 - a'
step tests gcc "$run/log" 3
said=$(counted)
check "a runner that fails without a failed test is a failure" ends "$said" "1 passed, 1 failed, 0 skipped"
began
program all ERROR 1 $'1..1\nnot ok 1 - a'
step tests gcc "$run/log" 1
check "but a failed test is one, not two" ends "$(counted)" "0 passed, 1 failed, 0 skipped"
began
program all OK 0 $'1..1\nok 1 - a'
step build clang build/clang.log 2
step tests gcc "$run/log" 0
step lost "what runs beside" "$run/beside.log" 143
said=$(counted)
check "a build that fails is a failure" has "$said" "FAILED: build/clang does not build; the whole log is build/clang.log"
check "so is what ended early" has "$said" "FAILED: what runs beside ended early, with status 143; its log is $run/beside.log"
check "both count" ends "$said" "1 passed, 2 failed, 0 skipped"

began
program all OK 0 $'1..1\nok 1 - a'
step tests gcc "$run/log" 0
step left "sleep 60" - 1
check "so is what a test left running" has "$(counted)" "FAILED: a test left this running: sleep 60"

DEV_TEST_MARK=$$ setsid sleep 60 &
until [ "$(cat /proc/$!/comm)" = sleep ]; do sleep 0.01; done
check "what has the mark is found, in whatever session, and ended" test "$(/usr/bin/python3 "$source/scripts/left_running.py" "DEV_TEST_MARK=$$")" = "sleep 60"
check "and it alone" test -z "$(/usr/bin/python3 "$source/scripts/left_running.py" "DEV_TEST_MARK=$$")"

began
: > "$run/log"
check "so is a run of nothing" ends "$(counted)" "0 passed, 1 failed, 0 skipped"
plan

# what: installs what is needed and runs every test
#help
#help Usage: ./dev test [--quick] [--suite NAME] [--turn N]
#help
#help Builds with gcc, with clang, with ASan and UBSan, and with TSan (simnic's parts); runs every test, those of suite vm in the
#help VM, those of suites simnic, programs and bindings on simnic. --suite: only that one, with gcc. Tests that there are for each driver are
#help dealt: one runs with sanitizers, the others with gcc, and of the long ones one. Which, the turn says: any of six, unless --turn
#help tells. So are those in the VM, half of which run each time. --quick: gcc only, without the VM and what takes long, and one test of those that there are for each driver. The last line
#help counts everything that ran. A whole run leaves build/last-run.json: the commit, whether the tree was clean, counts, seconds, the
#help machine's load. What only time finds is for ./dev hunt.
quick= suite= turn=$((RANDOM % 6))
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --suite) suite=${2:?which suite?}; shift ;;
    --turn) turn=${2:?which turn?}; shift ;;
    *) die "unknown option $1; see ./dev test --help" ;;
    esac
    shift
done
cd "$root"
mkdir -p build
exec 9> build/test.lock
flock -n 9 || die "another ./dev test runs in $root: wait for it to end, or use a clone of your own"
run=$root/build/test
rm -rf "$run"
mkdir "$run"
setup 9>&-
sanitizer_options
date +%s > "$run/started"
cut -d' ' -f1 /proc/loadavg > "$run/load"
printf '%s\t%s\n' "$(git rev-parse HEAD 2>/dev/null)" "$([ -n "$(git status --porcelain 2>&1)" ] && echo changed || echo clean)" > "$run/commit"
: > "$run/steps"
export DEV_TEST_RUN=$run.$$ # a mark that all have which this run starts
# Process groups of their own, which are ended whole: a signal to this script waits for nothing.
lane=main beside='' testing=''
end_groups() {
    local group
    for group in $testing $beside; do
        kill -TERM -- "-$group" 2>/dev/null || continue
        wait "$group" || : # its status is its own
    done
}
trap end_groups EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# note KIND NAME SECONDS LOG STATUS: one line for count_tests.py.
note() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" >> "$run/steps"; }

# make BUILD: builds it; a build that fails counts as a failure, and the run goes on.
make() {
    local begun=$SECONDS status=0
    (build "$1") 9>&- || status=$?
    note build "$1" $((SECONDS - begun)) "build/$1.log" $status
    return $status
}

# check BUILD [OPTIONS AND NAMES FOR meson test]: runs tests. Their logs are named after this run, since others may run tests in the same
# build.
check() {
    local name=$1 begun=$SECONDS log status=0 word options=()
    shift
    for word; do
        [[ $word != -* ]] || options+=("$word")
    done
    checks=$((${checks:-0} + 1))
    log=dev-test-$lane-$checks
    say "testing build/$name ${options[*]}"
    [ $lane = beside ] || set -m # that lane is a group as a whole
    meson test -C "build/$name" --no-rebuild --print-errorlogs --timeout-multiplier 4 --logbase "$log" "$@" < /dev/null 9>&- &
    testing=$!
    set +m
    wait $testing || status=$?
    testing=
    mv "build/$name/meson-logs/$log.json" "$run/$log.json" || say "the tests of build/$name left no log"
    rm -f "build/$name/meson-logs/$log".*
    note tests "$name" $((SECONDS - begun)) "$run/$log.json" $status
}

# Suites that run beside those on simnic, which leave a processor idle: what emulates a machine, and what waits or needs one processor.
few=(vm bench sim model install scripts oracle conformance)

# begin_beside FUNCTION: has it run beside what follows.
begin_beside() {
    set -m # a process group of its own, which can be ended whole
    (lane=beside && "$1") > "$run/beside.log" 2>&1 < /dev/null &
    beside=$!
    set +m
}

# end_beside: waits for it, and shows what it said.
end_beside() {
    local status=0
    say "waiting for the tests that ran beside these"
    wait $beside || status=$?
    beside=
    [ $status = 0 ] || note lost "what runs beside the tests on simnic" 0 "$run/beside.log" $status
    cat "$run/beside.log"
}

# What runs beside the tests on simnic of a whole run, builds for later ones included.
beside_whole() {
    if make sanitize; then
        sanitize=1
    fi
    echo "${sanitize:-0}" > "$run/sanitize-is-ready.new"
    mv "$run/sanitize-is-ready.new" "$run/sanitize-is-ready"
    "$root/vm/run" true 9>&- || say "the VM does not start"
    check gcc "${few[@]/#/--suite=}" "${plain[@]}"
    if make clang; then
        check clang --suite=unit
    fi
    if make thread; then
        check thread --suite=parts
    fi
    if [ -n "${sanitize:-}" ]; then
        mapfile -t sanitized < <(/usr/bin/python3 scripts/deal_tests.py "$turn" build/gcc build/sanitize)
        check sanitize --suite=vm --no-suite=slow "${sanitized[@]}"
    fi
}

# Half of a quick run, by seconds.
half=(bindings programs unit)
beside_quick() { check gcc --no-suite={vm,slow,long} "${half[@]/#/--suite=}" "${quick_tests[@]}"; }

if ! make gcc; then
    : # counted, and there is nothing to test
elif [ -n "$suite" ]; then
    check gcc --suite="$suite"
elif [ -n "$quick" ]; then
    # One test of each family, as a whole run has them with sanitizers.
    mapfile -t quick_tests < <(/usr/bin/python3 scripts/deal_tests.py "$turn" build/gcc build/gcc)
    begin_beside beside_quick
    check gcc --no-suite={vm,slow,long} "${half[@]/#/--no-suite=}" "${quick_tests[@]}"
    end_beside
else
    say "turn $turn (./dev test --turn $turn deals the tests in the same way)"
    mapfile -t plain < <(/usr/bin/python3 scripts/deal_tests.py "$turn" build/gcc)
    begin_beside beside_whole
    check gcc "${few[@]/#/--no-suite=}" "${plain[@]}"
    say "waiting for build/sanitize"
    while kill -0 $beside 2>/dev/null && [ ! -e "$run/sanitize-is-ready" ]; do
        sleep 1
    done
    if [ "$(cat "$run/sanitize-is-ready")" = 1 ]; then
        # What is slow or long runs with sanitizers in ./dev hunt.
        mapfile -t sanitized < <(/usr/bin/python3 scripts/deal_tests.py "$turn" build/gcc build/sanitize)
        check sanitize --no-suite={programs,scripts,slow,long,vm} "${sanitized[@]}"
    fi
    end_beside
fi
/usr/bin/python3 scripts/left_running.py "DEV_TEST_RUN=$DEV_TEST_RUN" | while IFS= read -r program; do
    note left "${program//$'\t'/ }" 0 - 1
done
whole=()
[ -n "$suite$quick" ] || whole=(--whole "$root")
/usr/bin/python3 scripts/count_tests.py "$run" "${whole[@]}"

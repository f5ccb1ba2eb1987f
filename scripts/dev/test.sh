# what: installs what is needed and runs every test
#help
#help Usage: ./dev test [--quick] [--suite NAME] [--turn N]
#help
#help Builds with gcc, with ASan and UBSan, and with clang or with TSan (simnic's parts), and runs the tests: those of suite vm in the VM, those
#help of suites simnic, programs, bindings and conformance on simnic. --suite: only that one, all of it, with gcc. A whole run has each unit
#help test with gcc and with sanitizers. The others are dealt: some of each kind run, with gcc or with sanitizers. Which, the turn says: any
#help of six, unless --turn tells. Six turns in a row have all, and so has ./dev hunt, besides what only time finds. --quick: gcc only, without
#help the VM and what takes long, and one test of those that there are for each driver. The last line counts everything that ran. A whole run
#help leaves build/last-run.json: the commit, whether the tree was clean, counts, seconds, the machine's load.
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
[[ $turn =~ ^[0-9]+$ ]] || die "--turn wants a number, not '$turn'"
cd "$root"
# Tests would do without it, and fail.
for file in {/var/lib,"${XDG_STATE_HOME:-$HOME/.local/state}"}/copyrpc/mlx5_[01].leave-out; do
    ! grep -qs '^card 0273690' "$file" || die "$file says what copyrpc-check found to fail on simnic, so programs leave it out: delete it"
done
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

# check BUILD [SUITES AND NAMES FOR meson test]: runs tests: of the suites, or those of the names that are in the suites. Their logs are named
# after this run, since others may run tests in the same build.
check() {
    local name=$1 begun=$SECONDS log status=0 word suites=() names=() which
    shift
    for word; do
        if [[ $word = -* ]]; then suites+=("$word"); else names+=("$word"); fi
    done
    checks=$((${checks:-0} + 1))
    log=dev-test-$lane-$checks
    say "testing build/$name ${suites[*]}"
    which=("${suites[@]}")
    if [ ${#names[@]} != 0 ]; then
        # By names alone: meson 1.3 refuses one that is in none of the suites.
        if ! printf '%s\n' "${names[@]}" | /usr/bin/python3 scripts/deal_tests.py those "build/$name" "${suites[@]}" > "$run/$log.names"; then
            note lost "which tests of build/$name to run" 0 "$run/$log.names" 1
            return
        fi
        mapfile -t which < "$run/$log.names"
        [ ${#which[@]} != 0 ] || return 0
    fi
    [ $lane = beside ] || set -m # that lane is a group as a whole
    meson test -C "build/$name" --no-rebuild --print-errorlogs --timeout-multiplier 4 --logbase "$log" "${which[@]}" < /dev/null 9>&- &
    testing=$!
    set +m
    wait $testing || status=$?
    testing=
    mv "build/$name/meson-logs/$log.json" "$run/$log.json" || say "the tests of build/$name left no log"
    rm -f "build/$name/meson-logs/$log".*
    note tests "$name" $((SECONDS - begun)) "$run/$log.json" $status
}

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

# deal PART [BUILD...]: prints what this turn has of it; see scripts/deal_tests.py.
deal() { /usr/bin/python3 scripts/deal_tests.py "$turn" "$@"; }

# The steps of a whole run. The lanes share them: main begins with the first, the other with the last, and each goes on until it comes to
# one that is taken. So both end at about the same time, whatever the turn has. The first are those on simnic, which leave a processor idle.
# Last are those that go well beside: what emulates a machine, and what waits or needs one processor; the very last is the build
# that others wait for. Short ones are in the middle, where the lanes meet.
steps=(gcc_simnic gcc_bindings sanitize_simnic gcc_unit sanitize_unit sanitize_vm other_build gcc_vm gcc_conformance gcc_few prepare)
few=(bench sim model install scripts oracle)

gcc_simnic() { check gcc --suite={simnic,programs} --no-suite=oracle "${plain[@]}"; }
gcc_bindings() { check gcc --suite=bindings --no-suite={bench,install} "${plain[@]}"; }
gcc_unit() { check gcc --no-suite={simnic,programs,bindings,vm,conformance} "${few[@]/#/--no-suite=}" "${plain[@]}"; }
gcc_vm() { check gcc --suite=vm "${plain[@]}"; }
gcc_conformance() { check gcc --suite=conformance --no-suite=vm "${plain[@]}"; }
gcc_few() { check gcc "${few[@]/#/--suite=}" "${plain[@]}"; }

sanitize_simnic() { check_sanitized --suite=simnic; }
sanitize_unit() { check_sanitized --no-suite={simnic,scripts,vm}; }
sanitize_vm() { check_sanitized --suite=vm; }

other_build() {
    local name suite=unit
    name=$(deal build)
    [ "$name" != thread ] || suite=parts
    if make "$name"; then
        check "$name" --suite=$suite
    fi
}

prepare() {
    if make sanitize; then
        touch "$run/sanitize-is-built"
    fi
    touch "$run/sanitize-is-over"
    "$root/vm/run" true 9>&- || say "the VM does not start"
}

# check_sanitized OPTION...: waits for the lane beside, which begins with that build. Within that lane there is nothing to wait for.
check_sanitized() {
    while kill -0 "$beside" 2>/dev/null && [ ! -e "$run/sanitize-is-over" ]; do
        sleep 1
    done
    if [ -e "$run/sanitize-is-built" ]; then
        check sanitize "$@" "${sanitized[@]}"
    fi
}

do_steps() {
    local step
    for step; do
        mkdir "$run/taken-$step" 2>/dev/null || return 0
        "$step"
    done
}

beside_whole() {
    local step backwards=()
    for step in "${steps[@]}"; do
        backwards=("$step" "${backwards[@]}")
    done
    do_steps "${backwards[@]}"
}

# Half of a quick run, by seconds.
half=(bindings programs unit scripts)
beside_quick() { check gcc --no-suite={vm,slow,long} "${half[@]/#/--suite=}" "${quick_tests[@]}"; }

if ! make gcc; then
    : # counted, and there is nothing to test
elif [ -n "$suite" ]; then
    check gcc --suite="$suite"
elif [ -n "$quick" ]; then
    mapfile -t quick_tests < <(deal quick build/gcc)
    begin_beside beside_quick
    check gcc --no-suite={vm,slow,long} "${half[@]/#/--no-suite=}" "${quick_tests[@]}"
    end_beside
else
    say "turn $turn (./dev test --turn $turn deals the tests in the same way)"
    # What is dealt to sanitizers is what is built with them: this has to be known before. Where it cannot be, prepare counts the failure.
    (configure_build sanitize) > "$run/sanitize.log" 2>&1 9>&- || say "build/sanitize cannot be configured"
    mapfile -t plain < <(deal gcc build/gcc build/sanitize)
    mapfile -t sanitized < <(deal sanitize build/gcc build/sanitize)
    begin_beside beside_whole
    do_steps "${steps[@]}"
    end_beside
fi
/usr/bin/python3 scripts/left_running.py "DEV_TEST_RUN=$DEV_TEST_RUN" | while IFS= read -r program; do
    note left "${program//$'\t'/ }" 0 - 1
done
whole=()
[ -n "$suite$quick" ] || whole=(--whole "$root")
/usr/bin/python3 scripts/count_tests.py "$run" "${whole[@]}"

# what: installs what is needed and runs every test
#help
#help Usage: ./dev test [--quick] [--suite NAME]
#help
#help Builds with gcc, with clang, with ASan and UBSan, and with TSan (simnic's parts); runs every test, those of suite vm in the
#help VM, those of suites simnic, programs and bindings on simnic. --quick: gcc only, without the VM. --suite: only that one, with gcc. The last line counts everything that ran.
quick= suite=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --suite) suite=${2:?which suite?}; shift ;;
    *) die "unknown option $1; see ./dev test --help" ;;
    esac
    shift
done
setup
cd "$root"
export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1:detect_stack_use_after_return=1:verify_asan_link_order=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
failed=0
results=()

# run BUILD [MESON TEST OPTIONS]
run() {
    local name=$1
    shift
    build "$name"
    say "testing build/$name $*"
    meson test -C "build/$name" --no-rebuild --print-errorlogs "$@" || failed=1
    results+=("build/$name/meson-logs/testlog.junit.xml")
}

rm -f build/*/meson-logs/testlog.junit.xml
if [ -n "$suite" ]; then
    run gcc --suite "$suite"
elif [ -n "$quick" ]; then
    run gcc --no-suite vm
else
    say "preparing the VM"
    "$root/vm/run" true || die "the VM does not start"
    run gcc
    run clang --suite unit
    run sanitize --no-suite programs
    run thread --suite parts
fi
python3 scripts/count_tests.py "${results[@]}" || failed=1
exit $failed

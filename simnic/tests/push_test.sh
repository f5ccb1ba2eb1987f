#!/usr/bin/env bash
# push_test.sh SIMNIC PUSH_TEST: BlueFlame pushes are noticed and executed at once, whichever of the C library's copies makes them. A
# store that is not known is made once, noticed, and logged.
. "$(dirname "$0")/../run/tests/common.sh"
. "$(dirname "$0")/library_copies.sh"
push_test=$(realpath "$2")
trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
# WORD [COMMAND...]: COMMAND starts simnic.
push() { "${@:2}" "$simnic" run --private --trace -- "$push_test" "$simnic" "$1" 2> "$trace" || { cat "$trace"; return 1; }; }
known() { ! grep "not known" "$trace"; }
by_memcpy() { # TUNABLES: which of its copies the C library takes
    local -x GLIBC_TUNABLES=$1
    push memcpy && known
}
# COUNT: so many instructions are logged, each once, with address and bytes; at the end, how many stores they made.
told() {
    grep "not known" "$trace"
    [ "$(grep -cE 'at 0x[0-9a-f]+ is not known, and slow: bytes( [0-9a-f]{2})+' "$trace")" = "$1" ] &&
        [ "$(grep -cE "[0-9]+ stores to doorbell pages were not known, of $1 instructions" "$trace")" = 1 ]
}
unknown() { push unknown && told 2 && grep -qE ' 805 stores .* not known' "$trace"; }
traps() { push traps && told 1; }
# COMMAND...: that of valgrind. Prints how long its pushes took.
valgrind_of() { "$simnic" run --private --trace -- "$@" -q "$push_test" "$simnic" waits 2> "$trace" || { cat "$trace"; return 1; }; }
# Nothing traps where Valgrind's registers are not those of the store.
untrapped() { valgrind_of valgrind && known; }
# Where it keeps them so, its frames still have none for vectors, and nothing is known: pages are left open for a second, so there is one trap
# in each.
seldom() {
    local seconds stores
    seconds=$(valgrind_of env SIMNIC_TRAPS=1 valgrind --vex-iropt-register-updates=allregs-at-mem-access) || { echo "$seconds"; return 1; }
    stores=$(sed -nE 's/.* ([0-9]+) stores to doorbell pages were not known.*/\1/p' "$trace")
    echo "${stores:=0} traps in $seconds seconds"
    [ "$stores" -ge 1 ] && [ "$stores" -le $((seconds + 2)) ]
}

for tunables in "${library_copies[@]}"; do
    check "memcpy with '$tunables'" by_memcpy "$tunables"
done
check "with all signals blocked before the device is open" push blocked
check "with SIGSEGV blocked by who starts simnic" push memcpy env --block-signal=SEGV
if command -v valgrind > /dev/null; then
    check "under Valgrind, no store traps" untrapped
    check "under a Valgrind that keeps registers, few do" seldom
fi
if [ "$(uname -m)" = x86_64 ]; then
    check "stores that are not known" unknown
    check "a program with traps of its own" traps
    check "stores that are not known, in threads" push threads
    check "stores of AVX-512 that are not known" push avx512
fi
plan

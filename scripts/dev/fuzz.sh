# what: runs the fuzz target of simnic's NIC
#help
#help Usage: ./dev fuzz [SECONDS]
#help
#help Builds simnic/nic/tests/fuzz_nic.c with clang, libFuzzer, ASan and UBSan into build/fuzz and runs it, for 60 seconds
#help unless told otherwise. What it learns stays in build/fuzz/corpus; an input that fails is kept in build/fuzz, and the
#help command that replays it is the last line.
setup
cd "$root"
seconds=${1:-60}
fuzz=$root/build/fuzz
mkdir -p "$fuzz/corpus"
say "building build/fuzz/fuzz_nic"
clang -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -I. -Icore simnic/nic/tests/{fuzz_nic,fuzz_post,fuzz_tags,fuzz_world,rig,wqe_build}.c simnic/{nic,fabric,session}/*.c -lm -lpthread \
    -o "$fuzz/fuzz_nic" > "$fuzz/build.log" 2>&1 || {
    grep -E 'error|undefined' "$fuzz/build.log" | head -n 40 >&2
    die "compiling failed; the whole log is build/fuzz/build.log"
}
say "fuzzing for $seconds seconds"
"$fuzz/fuzz_nic" -max_total_time="$seconds" -max_len=4096 -len_control=0 -artifact_prefix="$fuzz/" -print_final_stats=1 \
    "$fuzz/corpus" > "$fuzz/run.log" 2>&1 || {
    grep -vE '^#[0-9]|^INFO' "$fuzz/run.log" | head -n 40 >&2
    die "it failed; the whole log is build/fuzz/run.log, and this replays it:
    build/fuzz/fuzz_nic $(sed -n 's/^artifact_prefix.*written to //p' "$fuzz/run.log" | tail -n 1)"
}
grep -E '^#.*DONE|number_of_executed|average_exec' "$fuzz/run.log" >&2
say "nothing found"

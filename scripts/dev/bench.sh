# what: runs the benchmarks
#help
#help Usage: ./dev bench [NAME...]
#help
#help Each prints JSON. "bindings" is those of all bindings, with C's figures beside theirs. Counts of instructions, WQEs and doorbells are stable; times are only good as ratios in one run.
setup
build release
cd "$root"
say "running benchmarks"
if [ "${1:-}" = bindings ]; then
    shift
    set -- --suite bindings "$@"
fi
meson test -C build/release --benchmark --no-rebuild --verbose "$@"

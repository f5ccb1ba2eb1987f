# what: runs the benchmarks
#help
#help Usage: ./dev bench [NAME...]
#help
#help Each prints JSON. Counts of instructions, WQEs and doorbells are stable; times are only good as ratios in one run.
setup
build release
cd "$root"
say "running benchmarks"
meson test -C build/release --benchmark --no-rebuild --verbose "$@"

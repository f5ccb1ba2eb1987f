# what: runs the benchmarks
#help
#help Usage: ./dev bench [NAME...]
#help
#help `bindings` stands for those of every language, each with C's figure of the same run beside it.
#help Each prints JSON. Counts of instructions, WQEs and doorbells are stable; times are only good as ratios in one run.
setup
build release
cd "$root"
case ${1:-} in
bindings) shift; set -- --suite bindings "$@" ;;
esac
say "running benchmarks"
meson test -C build/release --benchmark --no-rebuild --verbose "$@"

# what: runs the benchmarks
#help
#help Usage: ./dev bench [NAME...]
#help        ./dev bench peers [OPTIONS]
#help
#help `bindings` stands for those of every language, each with C's figure of the same run beside it.
#help `peers` measures copyrpc beside UCX, libfabric, rsockets, perftest and gRPC: see docs/peers.md, and ./dev bench peers --help.
#help Each prints JSON. Counts of instructions, WQEs and doorbells are stable; times are only good as ratios in one run.
cd "$root"
if [ "${1:-}" = peers ]; then
    shift
    # shellcheck source=scripts/dev/peers.sh
    . scripts/dev/peers.sh
    run_peers "$@"
    exit
fi
setup
build release
case ${1:-} in
bindings) shift; set -- --suite bindings "$@" ;;
esac
say "running benchmarks"
meson test -C build/release --benchmark --no-rebuild --verbose "$@"

# what: runs the simulation of engines over an in-memory NIC
#help
#help Usage: ./dev sim [SEED [STEPS]]
#help
#help A failure prints the seed and the command that replays it.
setup
build gcc
exec "$root/build/gcc/core/rpc/tests/simulate" --seed "${1:-$RANDOM$RANDOM}" --steps "${2:-1000000}"

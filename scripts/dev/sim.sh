# what: runs the simulations of engines over an in-memory NIC
#help
#help Usage: ./dev sim [SEED [STEPS]]
#help
#help A failure prints the seed and the command that replays it.
setup
build gcc
seed=${1:-$RANDOM$RANDOM} steps=${2:-1000000}
say "RPC"
"$root/build/gcc/core/rpc/tests/simulate" --seed "$seed" --steps "$steps"
say "channels"
"$root/build/gcc/core/channel/tests/channel_simulate" --seed "$seed" --steps "$steps"
say "queues"
"$root/build/gcc/core/queue/tests/queue_simulate" --seed "$seed" --steps "$steps"

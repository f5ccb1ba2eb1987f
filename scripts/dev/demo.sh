# what: runs a client and a server over RDMA on this machine
#help
#help Usage: ./dev demo [--on simnic|vm] [CALLS]
#help
#help Installs what is needed, builds, and has a C client make CALLS calls to a C server that it finds by rdma_cm: on simnic, a
#help virtual ConnectX in user space (the default; 1000000 calls), or on Soft-RoCE in a small VM (20000). First a fiftieth of them, one
#help at a time, then all, 256 at a time. Each ends with a line, and the second is the last:
#help demo: calls=N lost=0 depth=256 rate=R/s p50=... p99=... driver=... device=...
place=simnic calls=
while [ $# -gt 0 ]; do
    case $1 in
    --on) place=${2:?--on simnic, or --on vm?}; shift ;;
    [0-9]*) calls=$1 ;;
    *) die "unknown argument $1; see ./dev demo --help" ;;
    esac
    shift
done
case $place in simnic|vm) ;; *) die "--on $place: there are simnic and vm" ;; esac
setup
build gcc simnic/simnic simnic/libsimnic.so examples/echo_server tools/copyrpc-perf
if [ "$place" = simnic ]; then
    exec "$root/build/gcc/simnic/simnic" run --session "demo.$$" -- "$root/scripts/demo.sh" "$root/build/gcc" 127.0.0.1:7471 "${calls:-1000000}"
fi
say "booting the VM"
exec "$root/vm/run" "$root/scripts/demo.sh" "$root/build/gcc" 10.99.0.1:7471 "${calls:-20000}"

# what: runs a client and a server over RDMA on this machine
#help
#help Usage: ./dev demo [--on simnic|vm] [CALLS]
#help
#help Installs what is needed, builds, and has a C client make CALLS calls (20000) to a C server that it finds by rdma_cm: on
#help simnic, a virtual ConnectX in user space (the default), or on Soft-RoCE in a small VM. The last line:
#help demo: calls=N lost=0 rate=R/s p50=... p99=... driver=... device=...
place=simnic calls=20000
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
build gcc
if [ "$place" = simnic ]; then
    exec "$root/build/gcc/simnic/simnic" run --session "demo.$$" -- "$root/scripts/demo.sh" "$root/build/gcc" 127.0.0.1:7471 "$calls"
fi
say "booting the VM"
exec "$root/vm/run" "$root/scripts/demo.sh" "$root/build/gcc" 10.99.0.1:7471 "$calls"

# what: runs a client and a server over real Linux RDMA in the VM
#help
#help Usage: ./dev demo [CALLS]
#help
#help Installs what is needed, builds, boots the VM, and has a C client make CALLS calls (20000) to a C server that it
#help finds by rdma_cm. The last line: demo: calls=N lost=0 rate=R/s p50=... p99=... driver=... device=...
setup
build gcc
say "booting the VM"
exec "$root/vm/run" "$root/vm/demo.sh" "$root/build/gcc" "${1:-20000}"

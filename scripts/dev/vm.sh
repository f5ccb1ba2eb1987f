# what: runs a command in a small VM with two Soft-RoCE devices
#help
#help Usage: ./dev vm CMD [ARG...]
#help
#help Returns CMD's exit status. VM_TIMEOUT=seconds, VM_SHARE=folder, VM_VERBOSE=1: see vm/README.md.
[ $# -gt 0 ] || die "which command? ./dev vm CMD [ARG...]"
command -v qemu-system-x86_64 >/dev/null || setup
exec "$root/vm/run" "$@"

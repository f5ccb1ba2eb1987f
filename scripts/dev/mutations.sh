# what: breaks the engines' rules one by one, and sees the simulations notice
#help
#help Usage: ./dev mutations [PART_OF_A_NAME]
#help
#help Those of the RPC engine, then those of channels, then those of queues: all, or those whose names have the part; some fifteen minutes
#help for all. ./dev test takes a sample of some, which differs from run to run.
setup
cd "$root" || die "cannot change to $root"
failed=0 found=0
for engine in rpc channel queue; do
    say "mutations of core/$engine"
    status=0
    /usr/bin/python3 "core/$engine/tests/mutations.py" "$root" "$@" || status=$?
    case $status in
    0) found=1 ;;
    3) say "none there has '$*' in its name" ;;
    *) found=1 failed=1 ;;
    esac
done
[ $found = 1 ] || die "no mutation has '$*' in its name"
exit $failed

# what: runs one set of scenarios through C, Python and Go
#help
#help Usage: ./dev conformance [--on simnic|vm|all] [OPTION...]
#help
#help Runs the scenarios of conformance/ with every pair of languages, and with the foreign programs: on simnic with both drivers (4
#help minutes), also with pyverbs if there is one, and in the VM on Soft-RoCE (more than 10 minutes). Prints the matrices and what is
#help red, and writes build/conformance.json. Options go to conformance/run.py: --only NAME runs scenarios with NAME in theirs,
#help --languages c,go,pyverbs those languages and programs, --verbose shows the lines, --pairs turns runs each scenario in one pair
#help only, --pairs once each language once on each side (--turn N says which are the first pairs), --shuffle SEED in a random order,
#help --repeat N everything N times, --runner NAME=COMMAND also runs a runner of yours (docs/conformance.md says how to write one), and --disturb SEED stops runners now and then, as a busy machine does.
place=all options=()
while [ $# -gt 0 ]; do
    case $1 in
    --on) place=${2:?--on simnic, vm or all?}; shift ;;
    *) options+=("$1") ;;
    esac
    shift
done
case $place in simnic|vm|all) ;; *) die "--on $place: there are simnic, vm and all" ;; esac
setup
build gcc
cd "$root"
go=$(find_go) || die "there is no Go of at least $(oldest_go)"
run=(/usr/bin/python3 conformance/run.py --build build/gcc --go "$go")
reports=() failed=0
rm -f build/conformance.json build/conformance/*.json
mkdir -p build/conformance
if [ "$place" != vm ]; then
    build/gcc/simnic/simnic run --private -- "${run[@]}" --device mlx5_0 --address 127.0.0.1 --drivers mlx5,verbs \
        --json build/conformance/simnic.json "${options[@]}" || failed=1
    reports+=(build/conformance/simnic.json)
fi
if [ "$place" != simnic ]; then
    say "booting the VM"
    # pyverbs is for simnic: what it sees of a device, another program of plain verbs has seen here.
    VM_SHARE=$root/build/conformance VM_TIMEOUT=3000 "${run[@]}" --vm vm/run --drivers verbs --device rxe0 --address 10.99.0.1 \
        --languages c,python,go,foreign --patience 4 --json /run/share/vm.json "${options[@]}" || failed=1
    reports+=(build/conformance/vm.json)
fi
"${run[@]}" --merge "${reports[@]}" --json build/conformance.json
exit $failed

# what: runs the fuzz targets: what a peer, or a program, may write
#help
#help Usage: ./dev fuzz [TARGET] [SECONDS] [--keep]
#help        ./dev fuzz --coverage
#help
#help Builds the targets with clang, libFuzzer, ASan and UBSan into build/fuzz and runs one of them, or one after the other, each
#help for 60 seconds unless told otherwise. In core: calls and channels (a whole engine with an honest peer and a bad one), words
#help (a channel's words in raw bytes), proofs (two sides that compare keys, and somebody who writes for one of them), hellos, blobs,
#help hints, queues (a victim's queues, and a peer that sends anything to them); in simnic: nic. What they learn stays in build/fuzz/corpus, minimised; --keep puts it into the repository, where each
#help target of core has a small corpus that the tests replay. An input that fails is kept in build/fuzz, and the command that replays
#help it is the last line.
#help --coverage replays the corpora of the repository and says which lines of the parsers they reach, and which not.
setup
cd "$root"
configure fuzz clang -Db_sanitize=address,undefined -Db_lundef=false -Dfuzz=true
mapfile -t programs < <(/usr/bin/python3 scripts/fuzz.py --programs)
[ ${#programs[@]} != 0 ] || die "there are no fuzz targets"
if [[ " $* " == *" --coverage "* ]]; then
    configure fuzz-coverage clang -Dc_args='-fprofile-instr-generate -fcoverage-mapping' -Dc_link_args=-fprofile-instr-generate
    compile fuzz-coverage "${programs[@]}"
else
    compile fuzz "${programs[@]}"
fi
/usr/bin/python3 scripts/fuzz.py "$@"

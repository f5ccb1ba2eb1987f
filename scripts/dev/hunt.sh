# what: runs for minutes or days what only time finds
#help
#help Usage: ./dev hunt [MINUTES] [--only PART_OF_A_NAME] [--fresh]
#help        ./dev hunt --again NAME --seed N
#help        ./dev hunt --list
#help
#help Long simulations with fresh seeds, all mutations and models, fuzzing, chaos, a fault at every call, the conformance matrix in any
#help order and disturbed, and the tests: beside busy loops, on one processor, under sanitizers, with clang, with packets lost; once, all that
#help count costs or install the library. For 60 minutes unless told otherwise. Each run tells what it was; at the end a table of what ran,
#help how often, and what failed, with the command that repeats it. Logs of failures and the state stay in build/hunt: the next hunt of the
#help same commit goes on where this one ended, also after Ctrl-C.
setup
for name in gcc sanitize clang thread; do
    build "$name"
done
cd "$root"
sanitizer_options
HUNT_GO=$(find_go) exec /usr/bin/python3 scripts/hunt.py "$@"

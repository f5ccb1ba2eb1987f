# what: kills programs that call each other, and checks what becomes of each op
#help
#help Usage: ./dev chaos [MINUTES] [--seed N] [--kills N] [--languages c,python,go] [--rate N]
#help
#help Clients and servers in C, Python and Go on simnic, killed, stopped, ended and cut off at random, while packets are lost, doubled and
#help late, and rails and queue pairs fail. An oracle knows each op: whether it completed exactly once, with the bytes that belong to it,
#help and whether its request was executed once. Servers that are never killed hold at the end what they held in the beginning, or they
#help leak. For 10 minutes, or until so many --kills, of which there are at most --rate a second. Prints a table with the seed and all
#help that was wrong, and exits with 1 if anything was. The seed repeats what is done, but not when the programs come to it. Do not
#help build meanwhile: a run whose programs change ends.
setup
build gcc
cd "$root"
run=(/usr/bin/python3 tests/chaos/chaos.py --build build/gcc)
if go=$(find_go); then
    run+=(--go "$go")
else
    run+=(--languages 'c,python')
fi
exec build/gcc/simnic/simnic run --private -- "${run[@]}" "$@"

# what: kills programs that call each other, and checks what becomes of each op
#help
#help Usage: ./dev chaos [MINUTES] [--seed N] [--kills N] [--languages c,python] [--rate N]
#help
#help Clients and servers on simnic, killed, stopped, ended and cut off at random, while packets are lost, doubled and late, and rails
#help and queue pairs fail. An oracle knows each op: whether it completed exactly once, with the bytes that belong to it, and whether
#help its request was executed once. Servers that are never killed hold at the end what they held in the beginning, or they leak. For
#help 10 minutes, or until so many --kills, of which there are at most --rate a second. Prints a table with the seed and all that was
#help wrong, and exits with 1 if anything was. The seed repeats what is done, but not when the programs come to it. Do not build
#help meanwhile: a run whose programs change ends.
setup
build gcc
cd "$root"
exec build/gcc/simnic/simnic run --private -- /usr/bin/python3 tests/chaos/chaos.py --build build/gcc "$@"

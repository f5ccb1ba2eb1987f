# what: runs rdma-core's own tests on simnic, from a checkout of yours
#help
#help Usage: ./dev upstream CHECKOUT [--only WORD] [--record]
#help
#help CHECKOUT is rdma-core at the version of the installed libibverbs (dpkg -l libibverbs1; git clone --branch v44.0
#help https://github.com/linux-rdma/rdma-core). Says what became of each test that did something else than simnic/tests/upstream/expected.json
#help expects, and exits with 1 if there is one that is not better. --only runs those whose names contain WORD; --record writes what was
#help seen to expected.json. Nothing is fetched, and nothing is written to the checkout.
setup
build gcc
exec /usr/bin/python3 "$root/simnic/tests/upstream/upstream.py" "$root/build/gcc/simnic/simnic" "$@"

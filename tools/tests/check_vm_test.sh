#!/usr/bin/env bash
# check_vm_test.sh CHECK: copyrpc-check on Soft-RoCE, by the verbs driver. Linux tells a receiver that a key was taken away by a flag of its
# own, which means something else to libibverbs (IB_WC_WITH_INVALIDATE is 4, IBV_WC_WITH_INV 8): the check finds that, until it is mended.
# Prints TAP.
check=$1
. "$(dirname "$0")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
json() { python3 -c "import json; r = json.load(open('$work/json')); c = {x['check']: x for x in r['checks']}; assert $1, r"; }
runs() { "$check" --quick --no-remember --json "$work/json" rxe0 || [ $? = 1 ]; }

check "copyrpc-check runs on Soft-RoCE" runs
check "by the verbs driver" json "r['driver'] == 'verbs'"
check "nothing fails but what Linux says of invalidated keys" json "[n for n, x in c.items() if x['verdict'] == 'FAILED' and not (n == 'invalidate' and 'flags 0x5' in x['seen'])] == []"
for name in send-order flush arm vectors shared-receives mtu datagram-mtu header path retry retry-early keys domains calls channels; do
    check "$name holds" json "c['$name']['verdict'] == 'ok'"
done
plan

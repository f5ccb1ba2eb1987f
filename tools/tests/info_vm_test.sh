#!/usr/bin/env bash
# info_vm_test.sh INFO: copyrpc-info on devices of Linux itself, which are no cards: Soft-RoCE in the VM, whose interfaces this test changes.
info=$1
. "$(dirname "$0")/tap.sh"
work=$(mktemp -dt "a test.XXXXXX")
trap 'ip link set dev rail1 mtu 4200; rm -rf "$work"' EXIT
said() { "$info" --json > "$work/json"; }
json() { python3 -I -S -c "import json; r = json.load(open('$work/json')); d = r['devices']; assert $1, json.dumps(r, indent=1)"; }

check "info on Soft-RoCE" said
check "what a card has is not known" json "[(e['pcie'], e['firmware'], e['numa_node']) for e in d] == [(None,) * 3] * 2"
check "its interfaces are" json "[e['interfaces'] for e in d] == [[{'name': n, 'mtu_bytes': 4200}] for n in ('rail0', 'rail1')]"
check "a context is opened" json "d[0]['chosen']['driver'] == 'verbs' and d[0]['mtu_bytes'] == d[0]['mtu_bytes_max'] == 4096"
check "and nothing is warned of" json "r['warnings'] == []"
ip link set dev rail1 mtu 1500
check "with a lower MTU" said
check "the port's goes down, which is warned of" json "d[1]['mtu_bytes'] == 1024 and [(w['code'], w['device']) for w in r['warnings']] == [('interface-mtu', 'rxe1')]"
plan

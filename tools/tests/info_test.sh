#!/usr/bin/env bash
# info_test.sh INFO SIMNIC: what copyrpc-info says of a machine that is not as it should be. The machine is simnic's, with a sysfs that this
# test changes: a copy of the session's, to which SYSFS_PATH leads libibverbs and the program.
info=$1 simnic=$2
. "$(dirname "$0")/tap.sh"
work=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$work"' EXIT

fresh() { rm -rf "$work/sysfs" && cp -a "$SYSFS_PATH" "$work/sysfs" && chmod -R u+w "$work/sysfs"; }
card=devices/pci0000:00/0000:02:00.0 # mlx5_1's
put() { # FILE LINE, of mlx5_1's card
    printf '%s\n' "$2" > "$work/sysfs/$card/$1"
}
said() { SYSFS_PATH=$work/sysfs "$@" "$info" --json > "$work/json" 2> "$work/stderr" || { cat "$work/stderr"; return 1; }; }
json() { python3 -I -S -c "import json; r = json.load(open('$work/json')); w = [(a['code'], a['device']) for a in r['warnings']]; d = r['devices']; assert $1, json.dumps(r, indent=1)"; }
# Whoever may lock any memory is never warned of a limit, and in a container nobody may.
unlimited() { json "not [a for a in r['warnings'] if a['code'] != 'memlock']"; }

fresh
check "info reads sysfs where SYSFS_PATH says" said env
check "and warns of nothing" unlimited
check "it knows the card" json "d[0]['pcie']['address'] == '0000:01:00.0' and d[0]['firmware'] and d[0]['processors'] and d[0]['processors_usable'] == 'all' and d[0]['interfaces'] == [{'name': 'lo', 'mtu_bytes': 65536}]"
check "and what a context takes, and why" json "all(d[0]['chosen'][k] for k in ('driver', 'driver_why', 'gid_why', 'partition_key_why')) and d[0]['chosen']['driver'] in d[0]['drivers'] and d[0]['chosen']['gid_index'] == [g['index'] for g in d[0]['gids'] if g['default']][0]"
check "and why rails are which" json "'another card' in r['rails']['used'][1]['why']"
check "a variable of the environment is the reason" said env COPYRPC_GID_INDEX=0 COPYRPC_DRIVER=verbs COPYRPC_PARTITION_KEY=0xffff COPYRPC_TRAFFIC_CLASS=106
check "that it is" json "(lambda c: (c['driver'], c['gid_index'], c['traffic_class'], c['driver_why'], c['gid_why'], c['partition_key_why']) == ('verbs', 0, 106, 'COPYRPC_DRIVER says so', 'COPYRPC_GID_INDEX says so', 'COPYRPC_PARTITION_KEY says so'))(d[0]['chosen'])"

put current_link_speed "2.5 GT/s PCIe"
check "a slow PCIe link" said env
check "is warned of, and the port is faster" json "[a for a in w if a[0] != 'memlock'] == [('pcie-link', 'mlx5_1'), ('pcie-below-port', 'mlx5_1')] and d[1]['pcie']['link'] == {'gigatransfers_per_s': 2.5, 'lanes': 16, 'mbps': 32000}"
printf '2.5 GT/s PCIe\n' > "$work/sysfs/devices/pci0000:00/max_link_speed"
printf '16\n' > "$work/sysfs/devices/pci0000:00/max_link_width"
check "of a slow slot" said env
check "it is said so" json "'move the card' in r['warnings'][0]['do'] and d[1]['pcie']['slot_max']['mbps'] == 32000"

fresh
put current_link_width 4
check "a narrow link" said env
check "is warned of, too" json "('pcie-link', 'mlx5_1') in w and ('pcie-link', 'mlx5_0') not in w"

fresh
put local_cpulist 8000-8100
put numa_node 1
check "a card far from this process" said env
check "is warned of" json "('numa-node', 'mlx5_1') in w and d[1]['processors_usable'] == 'none' and d[1]['numa_node'] == 1"

fresh
put net/lo/mtu 1500
check "an interface with a low MTU" said env
case ${SIMNIC_LINK:-} in
ib*) check "does not matter on InfiniBand" unlimited ;;
*)
    check "is warned of" json "('interface-mtu', 'mlx5_1') in w and ('interface-mtu', 'mlx5_0') not in w"
    check "and people see it" bash -c "SYSFS_PATH='$work/sysfs' '$info' > '$work/text' && sed -n '/^warnings:/,\$p' '$work/text' | grep -A 1 '^  mlx5_1 port 1: the MTU of its interface lo is 1500' | grep -q '^    do: .ip link set dev lo mtu 4200'"
    check "nobody can tell whether there is a lossless class, and this is no warning" json "[(a['code'], a['device']) for a in r['notes']] == [('lossless-unknown', 'mlx5_0'), ('lossless-unknown', 'mlx5_1')]"
    ;;
esac

fresh
rm -rf "$work/sysfs/$card"/{numa_node,local_cpulist,local_cpus,current_link_speed,current_link_width,max_link_speed,max_link_width,net} \
    "$work/sysfs/$card/infiniband/mlx5_1"/{fw_ver,ports/1/gid_attrs/ndevs}
check "without any of these files" said env
check "they are not known, and nothing is wrong" json "(lambda e: (e['firmware'], e['pcie']['link'], e['pcie']['link_max'], e['numa_node'], e['processors'], e['processors_usable'], e['interfaces']) == (None,) * 6 + ([],))(d[1])"
check "nor warned of" unlimited
check "people see that, too" bash -c "SYSFS_PATH='$work/sysfs' '$info' | sed -n '/^mlx5_1/,/^rails/p' | grep -c 'not known' | grep -qx 4"

fresh
limited() { bash -c 'ulimit -l 64 && exec "$@"' limited "$@"; }
drop=() # root's right to lock what it likes
[ "$(id -u)" != 0 ] || drop=(setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock)
check "little memory may be registered" said limited "${drop[@]}"
check "and that is warned of, once" json "w.count(('memlock', None)) == 1 and r['memlock_bytes'] == 65536 and not r['memlock_exempt']"

"$simnic" ctl fault rail1=down > /dev/null
check "a port that is down" said env
check "is warned of, and nothing is chosen for it" json "('port-down', 'mlx5_1') in w and d[1]['chosen'] is None and d[0]['chosen']"
"$simnic" ctl fault none > /dev/null
plan

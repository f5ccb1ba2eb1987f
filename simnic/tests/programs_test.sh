#!/usr/bin/env bash
# programs_test.sh SIMNIC [STEP]: that the programs of rdma-core and perftest, as Debian installs them, do their work on
# simnic: two processes in one session, or in two runs that share one. With a STEP, of those that differ in little from others one in so
# many runs; TEST_SEED says which.
. "$(dirname "$0")/../run/tests/common.sh"
for program in ibv_rc_pingpong rping ib_write_bw; do
    if ! command -v "$program" > /dev/null; then
        skip_all "there is no $program: install ibverbs-utils, rdmacm-utils and perftest"
    fi
done
work=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$work"' EXIT
session=programs.$$
directory=/dev/shm/simnic.$(id -u).$session
port=$((20000 + $$ % 10000)) # of the programs that exchange addresses by TCP
limit=100                    # seconds for one program
# What clients of the connection manager say where nobody listens.
refusal='RDMA_CM_EVENT_(REJECTED|UNREACHABLE)|Connection refused|Unexpected CM event'
processor=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
step=${2:-1}
place=$((${TEST_SEED:-$(date +%s)} % step))
[ "$step" = 1 ] || echo "# of those that differ in little one in $step; again: TEST_SEED=$place"
turn=0
sampled() { # as check; loops shift the turn, so that the second device and address have others
    turn=$((turn + 1))
    [ $((turn % step)) != $place ] || check "$@"
}
links=() # --link
run() { "$simnic" run --session "$session" "${links[@]}" "$@"; }

# One side of a pair: writes what it prints and its status to files.
cat > "$work/side" <<'SIDE'
name=$1
shift
# Ubuntu 26.04's stdbuf puts its library in the place of what is in LD_PRELOAD.
timeout "$limit" stdbuf -oL bash -c 'LD_PRELOAD=$0:$LD_PRELOAD exec "$@"' "$LD_PRELOAD" "$@" > "$work/$name" 2>&1
echo $? > "$work/$name.status"
SIDE

# The process of the program that a side runs: below its shell is timeout, and below that the program.
program_of() { pgrep -P "$(pgrep -P "$1" | head -1)" | head -1; }
export -f program_of # to those below; dash drops functions, so sides are run by bash

# Waits until a server listens: on a TCP port, or, where that is 0, until it has opened the device, and for $pause after that: nothing
# tells when it listens.
cat > "$work/listening" <<'LISTENING'
port=$1 server=$2
is_there() {
    if [ "$port" != 0 ]; then
        listens "$port"
        return
    fi
    process=$(program_of "$server")
    [ -n "$process" ] && grep -qx simnic /proc/"$process"/task/*/comm
}
for ((i = 0; i < 3000; i++)); do
    if is_there 2> /dev/null; then
        [ "$port" != 0 ] || sleep "${pause:-0.2}"
        exit 0
    fi
    kill -0 "$server" 2> /dev/null || exit 1
    sleep 0.02
done
exit 1
LISTENING

# Both sides, with what comes before the command of each in BEFORE. A client of the connection manager that is refused came before its
# server listened: both once more, with a longer pause between them.
cat > "$work/pair" <<'PAIR'
port=$1 server=$2 client=$3
for pause in 0.2 1 4 16; do
    export pause
    bash "$work/side" server $BEFORE $server &
    export server_side=$!
    bash "$work/listening" "$port" $! || echo "the server does not listen"
    bash "$work/side" client $BEFORE $client
    refused=
    [ "$port" = 0 ] && grep -aqE "$refusal" "$work/client" && refused=1
    [ -n "$END_SERVER$refused" ] && pkill -P "$(pgrep -P $! | head -1)"
    wait
    [ -n "$refused" ] || break
done
PAIR

# cmtime's client, once all threads of its server sleep. They hand over work by a condition variable, and one that does not wait yet when
# it is signaled takes work from an empty list, and crashes (rdma-core 44). So there is one connection; ucmatose makes many at once.
cat > "$work/timed" <<'TIMED'
#!/bin/bash
process=$(program_of "$server_side")
# What each thread but simnic's does, and how often it has slept.
threads() { grep -hE '^(State|Name|(non)?voluntary_ctxt)' /proc/"$process"/task/*/status | paste - - - - | grep -v '^Name:.simnic'; }
until now=$(threads) && [ "$now" = "$before" ] && ! grep -qv 'S (sleeping)' <<< "$now"; do
    [ -e /proc/"$process" ] || { echo "failed: the server has ended"; exit 1; }
    before=$now
    sleep 0.02
done
exec cmtime -s "$1" -c 1
TIMED
chmod +x "$work/timed"
PATH=$work:$PATH # a command's words are split, and the folder's name may have a space
export work limit refusal BEFORE END_SERVER

# WORDS: what a side must print, as s:REGEX for the server or c:REGEX for the client, with "number " before the
# regex for as many lines of it; a "!" first says what no line may match.
printed() {
    local words file regex failed=0 n
    for words in "$@"; do
        file=$work/client
        [[ ${words#!} = s:* ]] && file=$work/server
        regex=${words#!}
        regex=${regex#?:}
        n=
        [[ $regex =~ ^([0-9]+)x\ (.*)$ ]] && n=${BASH_REMATCH[1]} regex=${BASH_REMATCH[2]}
        if [[ $words = !* ]]; then
            ! grep -aqE -- "$regex" "$file" || { echo "printed, and must not be: $words"; failed=1; }
        elif [ -n "$n" ]; then
            [ "$(grep -acE -- "$regex" "$file")" = "$n" ] || { echo "not printed $n times: $words"; failed=1; }
        else
            grep -aqE -- "$regex" "$file" || { echo "not printed: $words"; failed=1; }
        fi
    done
    return $failed
}
statuses() { # SERVER CLIENT: a regex for each
    local server client
    server=$(cat "$work/server.status") client=$(cat "$work/client.status")
    [[ $server =~ ^($1)$ && $client =~ ^($2)$ ]] || { echo "statuses: server $server, client $client"; return 1; }
}
output() {
    local side
    for side in server client; do
        echo "$side printed:"
        tail -n 15 "$work/$side" | cut -c1-200
    done
    return 1
}
clean() { rm -f "$work"/server* "$work"/client*; }
nothing_left() { soon [ ! -e "$directory" ] || { ls -R "$directory"; return 1; }; }
# PORT SERVER CLIENT WORDS...
pair() {
    local port=$1 server=$2 client=$3
    shift 3
    clean
    run bash "$work/pair" "$port" "$server" "$client" && statuses 0 0 && printed "$@" && return
    output
}
# The same with both sides' commands alike, but for the server's address.
alike() { # COMMAND WORDS...
    local command=$1
    shift
    pair "$port" "$command -p $port" "$command -p $port 127.0.0.1" "$@"
}
# A program of the connection manager: ADDRESS SERVER CLIENT WORDS..., where @ is the address.
managed() {
    local address=$1 server=$2 client=$3
    shift 3
    pair 0 "${server//@/$address}" "${client//@/$address}" "$@"
}
# The line of rates or times that perftest's client prints for one size; not every server prints one.
# It measures the processor's clock, which fails at times on a busy machine; all numbers are infinite then.
number='([0-9.]+|inf|-?nan)'
measured() { # COMMAND BYTES ITERATIONS [THOSE OF ALL QUEUE PAIRS]
    alike "$1 -F -n $3" "c:^ *$2 +${4:-$3} +$number " '!c:[Ee]rror' '!s:[Ee]rror'
}
with_manager() { # COMMAND BYTES ITERATIONS: -R
    pair 0 "$1 -R -F -n $3" "$1 -R -F -n $3 127.0.0.1" "c:^ *$2 +$3 +$number " '!c:[Ee]rror' '!s:[Ee]rror'
}

# --- what there is
devices() {
    run ibv_devices > "$work/client" && printed 'c:1x mlx5_0[[:space:]]+02736903006d0001' 'c:1x mlx5_1[[:space:]]+02736903006d0002'
}
described() {
    run ibv_devinfo -v > "$work/client" && printed 'c:2x ^hca_id:' 'c:2x state:.*PORT_ACTIVE' 'c:2x link_layer:.*Ethernet' \
        'c:2x active_mtu:.*4096' 'c:1x GID\[  1\]:.*fe80::73:69ff:fe6d:1, RoCE v2' 'c:1x GID\[  3\]:.*::ffff:127.0.0.1, RoCE v2' \
        'c:1x GID\[  5\]:.*[^:]::1, RoCE v2' 'c:1x GID\[  3\]:.*::ffff:127.0.0.2, RoCE v2' 'c:1x GID\[  5\]:.*fd73:696d::2, RoCE v2'
}
check "ibv_devices" devices
check "ibv_devinfo -v" described

# --- pingpongs
for device in mlx5_0 mlx5_1; do
    turn=$((turn + 1))
    for events in "" " -e"; do
        turn=$((turn + 1))
        for kind in rc uc ud srq; do
            bytes=8192000
            [ $kind = ud ] && bytes=2048000
            sampled "ibv_${kind}_pingpong -d $device$events" alike "ibv_${kind}_pingpong -d $device -g 3$events -c" \
                "s:^$bytes bytes in" "s:^1000 iters in" "c:^$bytes bytes in" "c:^1000 iters in" '!s:invalid data' '!c:invalid data'
        done
    done
done
check "ibv_xsrq_pingpong" alike "ibv_xsrq_pingpong -d mlx5_0 -g 3" 's:^success' 'c:^success'
check "ibv_rc_pingpong by link-local GID" alike "ibv_rc_pingpong -d mlx5_1 -g 1 -c" 's:^8192000 bytes' '!s:invalid data'
check "ibv_rc_pingpong with RoCE v1" alike "ibv_rc_pingpong -d mlx5_0 -g 2 -c" 's:^8192000 bytes' '!s:invalid data'
check "ibv_rc_pingpong of 1 MiB" alike "ibv_rc_pingpong -d mlx5_0 -g 3 -c -s 1048576 -n 20 -m 4096" 's:^41943040 bytes' 's:^20 iters' '!s:invalid data'

# --- librdmacm's programs
for address in 127.0.0.1 127.0.0.2 ::1 fd73:696d::2; do
    turn=$((turn + 1))
    sampled "rping $address" managed $address "rping -s -v -V -C 100 -a @" "rping -c -v -V -C 100 -a @" \
        's:100x server ping data: rdma-ping-' 'c:100x ^ping data: rdma-ping-' '!s:mismatch' '!c:mismatch'
    sampled "rping $address of 65000 bytes" managed $address "rping -s -v -V -C 20 -S 65000 -a @" "rping -c -v -V -C 20 -S 65000 -a @" \
        's:20x server ping data: rdma-ping-' 'c:20x ^ping data: rdma-ping-' '!s:mismatch' '!c:mismatch'
done
check "rping with its own QP" managed 127.0.0.1 "rping -q -s -V -C 100 -a @" "rping -q -c -v -V -C 100 -a @" 'c:100x ^ping data: rdma-ping-'
check "rping to a server of any address" managed 127.0.0.2 "rping -s -V -C 100" "rping -c -v -V -C 100 -a @" 'c:100x ^ping data: rdma-ping-'
clock() { # ADDRESS
    if cmtime -h 2>&1 | grep -q controller; then # as of rdma-core 61: connects with queue pairs, and without
        local with="cmtime -b $1 -C $1 -p $port -c 10"
        pair "$port" "$with -L" "$with" 'c:2x ^cm connect ' 'c:2x ^disconnect ' 'c:1x ^qp_conn ' 'c:1x ^cm_conn ' '!c:[Ee]rror|[Ff]ail'
        return
    fi
    clean # its server does not end by itself
    END_SERVER=1 run bash "$work/pair" 0 "cmtime -b $1" "timed $1" && statuses "143|255" 0 && printed \
        'c:1x ^create qp +:' 'c:1x ^connect +:' 'c:1x ^disconnect +:' '!c:[Ee]rror|[Ff]ail' && return
    output
}
for address in 127.0.0.1 127.0.0.2; do
    turn=$((turn + 1))
    sampled "ucmatose $address" managed $address "ucmatose -b @" "ucmatose -s @" 's:^data transfers complete' 's:^return status 0' 'c:^return status 0'
    sampled "ucmatose $address, 50 connections" managed $address "ucmatose -b @ -c 50 -C 50 -S 10000" "ucmatose -s @ -c 50 -C 50 -S 10000" \
        's:^data transfers complete' 'c:^data transfers complete' 'c:^return status 0'
    sampled "udaddy $address" managed $address "udaddy -b @ -c 5 -C 20 -S 1000" "udaddy -s @ -c 5 -C 20 -S 1000" \
        's:^data transfers complete' 's:^return status 0' 'c:^return status 0'
    sampled "rdma_client $address" managed $address "rdma_server -s @" "rdma_client -s @" 's:^rdma_server: end 0' 'c:^rdma_client: end 0'
    for mode in "" " -T b"; do # with -T a it takes a peer that ends first for an error
        sampled "rstream $address$mode" managed $address "rstream -T v$mode -S 4096 -I 50 -C 20 -b @" "rstream -T v$mode -S 4096 -I 50 -C 20 -s @" \
            's:4k +20 +50 +' 'c:4k +20 +50 +' '!s:data error' '!c:data error'
    done
    sampled "riostream $address" managed $address "riostream -T v -S 4096 -I 50 -C 20 -b @" "riostream -T v -S 4096 -I 50 -C 20 -s @" \
        's:4k +20 +50 +' 'c:4k +20 +50 +' '!s:data error' '!c:data error'
    sampled "cmtime $address" clock "$address"
done

# --- perftest
for device in mlx5_0 mlx5_1; do
    turn=$((turn + 1))
    on="-d $device -x 3"
    sampled "ib_write_bw $device" measured "ib_write_bw $on" 65536 200
    sampled "ib_read_bw $device" measured "ib_read_bw $on" 65536 200
    sampled "ib_send_bw $device" measured "ib_send_bw $on" 65536 200
    sampled "ib_atomic_bw $device" measured "ib_atomic_bw $on" 8 200
    sampled "ib_write_lat $device" measured "ib_write_lat $on" 2 50
    sampled "ib_read_lat $device" measured "ib_read_lat $on" 2 50
    sampled "ib_send_lat $device" measured "ib_send_lat $on" 2 50
    sampled "ib_atomic_lat $device" measured "ib_atomic_lat $on" 8 50
    sampled "ib_send_bw -e $device" measured "ib_send_bw -e $on" 65536 200
    sampled "ib_read_bw -e $device" measured "ib_read_bw -e $on" 65536 200
    sampled "ib_atomic_bw -e $device" measured "ib_atomic_bw -e $on" 8 200
    sampled "ib_send_lat -e $device" measured "ib_send_lat -e $on" 2 50
    sampled "ib_read_lat -e $device" measured "ib_read_lat -e $on" 2 50
    sampled "ib_atomic_lat -e $device" measured "ib_atomic_lat -e $on" 8 50
done
# --- the counters of ports in sysfs: `simnic run` writes them, for as long as a command runs
counted() {
    run sh -c '
        cd "$SYSFS_PATH/class/infiniband"
        of() { cat "$1/ports/1/counters/$2"; }
        (ib_write_bw -d mlx5_1 -x 3 -s 65536 -n 200 -p "$0" > "$1/counted" 2>&1 &)
        for i in 1 2 3 4 5 6 7 8 9 10; do
            sleep 0.3
            ib_write_bw -d mlx5_1 -x 3 -s 65536 -n 200 -p "$0" 127.0.0.1 > "$1/counting" 2>&1 && break
        done
        sleep 0.2 # they are older than that at no time
        sent=$(of mlx5_1 port_xmit_data) received=$(of mlx5_1 port_rcv_data) packets=$(of mlx5_1 port_xmit_packets)
        others=$(of mlx5_0 port_xmit_data)
        echo "sent $sent words in $packets packets, received $received, by the other port $others"
        # 200 times 16 Ki words in 16 packets, with headers and acknowledgements, and what was tried before
        [ "$sent" -ge 3276800 ] && [ "$sent" -le 5000000 ] && [ "$received" = "$sent" ] && [ "$packets" -ge 3200 ] && [ "$others" -lt 1000 ]
    ' "$port" "$work"
}
check "counters of ports" counted
on="-d mlx5_0 -x 3"
kinds="UC UD XRC"
# perftest opens files of these names, whoever has made them.
for file in /tmp/xrc_domain_server /tmp/xrc_domain_client; do
    if [ -e $file ] && ! [ -w $file ]; then
        echo "# XRC is left out: $file is another user's"
        kinds="UC UD"
    fi
done
for kind in $kinds; do
    size=65536
    [ "$kind" = UD ] && size=4096
    check "ib_send_bw -c $kind" measured "ib_send_bw -c $kind $on" "$size" 200
    sampled "ib_send_lat -c $kind" measured "ib_send_lat -c $kind $on" 2 50
done
[ "$kinds" = "UC UD" ] || rm -f /tmp/xrc_domain_server /tmp/xrc_domain_client
check "ib_write_bw -c UC" measured "ib_write_bw -c UC $on" 65536 200
for verb in send write read; do
    check "ib_${verb}_bw -b -q 4" measured "ib_${verb}_bw -b -q 4 $on" 65536 200 800
done
check "ib_send_bw --use-srq -q 4" measured "ib_send_bw --use-srq -q 4 $on" 65536 200 800
check "ib_write_bw, data in the request" measured "ib_write_bw --inline_size 64 -s 32 $on" 32 5000
check "ib_send_lat of 512 KiB" measured "ib_send_lat -s 524288 $on" 524288 50
check "ib_send_bw of 4 MiB" measured "ib_send_bw -s 4194304 $on" 4194304 20
for verb in send_lat write_lat read_lat; do
    turn=$((turn + 1))
    for size in 1 255 4096 4097 65536; do
        sampled "ib_$verb -s $size" measured "ib_$verb -s $size $on" $size 50
    done
done
all_sizes() {
    local n words=()
    for ((n = 2; n <= 65536; n *= 2)); do words+=("c:^ *$n +5 "); done
    alike "ib_send_bw -a -n 5 -F $on" "${words[@]}" 'c:^ *8388608 +5 '
}
sampled "ib_send_bw -a" all_sizes
for verb in send_bw write_bw read_bw; do
    sampled "ib_$verb -R" with_manager "ib_$verb" 65536 200
done
for verb in send_lat read_lat; do
    sampled "ib_$verb -R" with_manager "ib_$verb" 2 50
done
check "ib_send_bw -R -c UD" with_manager "ib_send_bw -c UD -d mlx5_0" 4096 200

# --- UCX, where it is installed
no_ucx=$("$(dirname "$0")/../../tests/ucx_rdma.sh")
if [ -z "$no_ucx" ]; then
    # Since 1.16, UCX adds the offset of an atomic key, which it makes by DevX alone, also to the address of a usual key: its atomics by the mlx5
    # transports change other memory where DevX does not do all (ib_mlx5dv_md.c, uct_ib_mlx5_md_open; ib_md.c, uct_ib_verbs_mkey_pack).
    ucx_version=$(ucx_info -v | sed -n 's/^# Library version: //p')
    perftest=ucx_perftest
    if ldd "$(command -v ucx_perftest)" | grep -q libmpi; then # as in Debian 13: it takes itself for one of MPI's processes when it has no terminal
        mkdir "$work/bin"
        printf '#!/bin/sh\nexec script -qefc "ucx_perftest $*" /dev/null\n' > "$work/bin/perftest"
        chmod +x "$work/bin/perftest"
        PATH=$work/bin:$PATH
        perftest=perftest
    fi
    atomics=dc_mlx5
    [ "$(printf '%s\n' 1.16 "$ucx_version" | sort -V | head -1)" != 1.16 ] || atomics=rc_verbs
    for test in put_lat add_lat am_bw; do
        transport=dc_mlx5
        [ $test != add_lat ] || transport=$atomics
        check "ucx_perftest -x $transport -t $test" pair "$port" "$perftest -p $port" \
            "$perftest -p $port -x $transport -d mlx5_0:1 -t $test -n 200 -w 0 127.0.0.1" 'c:^Final: +200 '
    done
    tags="env UCX_TLS=rc_x UCX_NET_DEVICES=mlx5_0:1 UCX_RC_MLX5_TM_ENABLE=y $perftest -p $port"
    check "ucx_perftest -t tag_lat" pair "$port" "$tags" "$tags -t tag_lat -s 2048 -n 200 -w 0 127.0.0.1" 'c:^Final: +200 '
else
    echo "# UCX is left out: $no_ucx"
fi

# --- InfiniBand
links=(--link "ib,sl=3")
infiniband() {
    run ibv_devinfo -v > "$work/client" && printed 'c:2x link_layer:.*InfiniBand' 'c:1x port_lid:.*4' 'c:1x port_lid:.*6' 'c:2x port_lmc:.*0x01' \
        'c:2x sm_lid:.*1' 'c:1x GID\[  0\]:.*fe80:0000:0000:0000:0273:6903:006d:0001' '!c:RoCE' 'c:2x max_pkeys:.*128'
}
check "InfiniBand: ibv_devinfo -v" infiniband
turn=$((turn + 1))
for device in mlx5_0 mlx5_1; do
    turn=$((turn + 1))
    for gid in "" " -g 0"; do
        turn=$((turn + 1))
        for kind in rc uc ud srq; do
            bytes=8192000
            [ $kind = ud ] && bytes=2048000
            sampled "InfiniBand: ibv_${kind}_pingpong -d $device$gid" alike "ibv_${kind}_pingpong -d $device$gid -c" \
                "s:^$bytes bytes in" "c:^1000 iters in" '!s:invalid data' '!c:invalid data'
        done
    done
done
check "InfiniBand: ibv_rc_pingpong from port to port" pair "$port" "ibv_rc_pingpong -d mlx5_0 -p $port -l 3" "ibv_rc_pingpong -d mlx5_1 -p $port -l 3 127.0.0.1" \
    "s:^1000 iters" "c:^1000 iters"
check "InfiniBand: ibv_xsrq_pingpong" alike "ibv_xsrq_pingpong -d mlx5_0" 's:^success' 'c:^success'
for address in 127.0.0.1 fd73:696d::2; do
    check "InfiniBand: rping $address" managed $address "rping -s -v -V -C 100 -a @" "rping -c -v -V -C 100 -a @" \
        's:100x server ping data: rdma-ping-' 'c:100x ^ping data: rdma-ping-' '!s:mismatch' '!c:mismatch'
done
check "InfiniBand: ucmatose" managed 127.0.0.2 "ucmatose -b @" "ucmatose -s @" 's:^data transfers complete' 'c:^return status 0'
check "InfiniBand: udaddy" managed 127.0.0.1 "udaddy -b @ -c 5 -C 20 -S 1000" "udaddy -s @ -c 5 -C 20 -S 1000" 's:^data transfers complete' 'c:^return status 0'
check "InfiniBand: mckey" managed 127.0.0.1 "mckey -m 239.1.2.3 -b @ -C 20" "mckey -m 239.1.2.3 -b @ -s -C 20" 's:^data transfers complete' 'c:^return status 0'
check "InfiniBand: rstream" managed 127.0.0.1 "rstream -T v -S 4096 -I 50 -C 20 -b @" "rstream -T v -S 4096 -I 50 -C 20 -s @" 's:4k +20 +50 +' '!s:data error'
on="-d mlx5_0"
for verb in write send read; do
    sampled "InfiniBand: ib_${verb}_bw" measured "ib_${verb}_bw $on" 65536 200
done
check "InfiniBand: ib_write_bw" measured "ib_write_bw $on" 65536 200
check "InfiniBand: ib_send_bw -c UD" measured "ib_send_bw -c UD $on" 4096 200
check "InfiniBand: ib_write_bw --pkey_index 1" measured "ib_write_bw --pkey_index 1 $on" 65536 200
check "InfiniBand: ib_write_bw -R" with_manager "ib_write_bw" 65536 200
silent() { # two limited members: no answer
    alike "ib_write_bw --pkey_index 3 -F -n 5 $on" > /dev/null
    printed 'c:Failed status 12' || output
}
check "InfiniBand: ib_write_bw by a P_Key of limited members" silent
if [ -z "$no_ucx" ]; then
    ucx() { # TRANSPORT
        local with="env UCX_TLS=$1 UCX_NET_DEVICES=mlx5_0:1 $perftest -p $port"
        pair "$port" "$with" "$with -t tag_lat -s 2048 -n 200 -w 0 127.0.0.1" 'c:^Final: +200 '
    }
    for transport in rc_x dc_x ud_x; do
        check "InfiniBand: ucx_perftest by $transport" ucx $transport
    done
fi
links=(--link "ib,grh")
check "InfiniBand with GRH: ibv_rc_pingpong -g 0" alike "ibv_rc_pingpong -d mlx5_0 -g 0 -c" 's:^8192000 bytes' '!s:invalid data'
check "InfiniBand with GRH: ibv_ud_pingpong -g 0" alike "ibv_ud_pingpong -d mlx5_0 -g 0 -c" 's:^2048000 bytes' '!s:invalid data'
without_grh() { # the kernel refuses
    alike "ibv_rc_pingpong -d mlx5_0" > /dev/null
    printed 's:Failed to modify QP to RTR' || output
}
check "InfiniBand with GRH: ibv_rc_pingpong without" without_grh
check "InfiniBand with GRH: rping" managed 127.0.0.2 "rping -s -V -C 100 -a @" "rping -c -v -V -C 100 -a @" 'c:100x ^ping data: rdma-ping-'
if [ -z "$no_ucx" ]; then
    check "InfiniBand with GRH: ucx_perftest" ucx rc_x
fi
links=()
on="-d mlx5_0 -x 3"

# --- one processor for all
BEFORE="taskset -c $processor"
# Who polls has the processor until the scheduler takes it away, at each of the messages.
check "one processor: ibv_rc_pingpong" alike "ibv_rc_pingpong -d mlx5_0 -g 3 -c -n 100" 's:^819200 bytes' 's:^100 iters' '!s:invalid data'
check "one processor: ibv_rc_pingpong -e" alike "ibv_rc_pingpong -d mlx5_1 -g 3 -c -e" 's:^8192000 bytes' '!s:invalid data'
check "one processor: rping" managed 127.0.0.1 "rping -s -V -C 100 -a @" "rping -c -v -V -C 100 -a @" 'c:100x ^ping data: rdma-ping-'
check "one processor: ib_send_bw" measured "ib_send_bw $on" 65536 200
check "one processor: ib_write_lat" measured "ib_write_lat $on" 2 50
BEFORE=

# --- two runs share the session that the environment names
shared() {
    local -x SIMNIC_SESSION_NAME=$session.shared
    clean
    "$simnic" run bash "$work/side" server ibv_rc_pingpong -g 3 -c -p "$port" &
    bash "$work/listening" "$port" $! || return 1
    "$simnic" run bash "$work/side" client ibv_rc_pingpong -g 3 -c -p "$port" 127.0.0.1
    wait $!
    statuses 0 0 && printed 's:^8192000 bytes' 'c:^8192000 bytes' '!s:invalid data' && return
    output
}
check "two runs: ibv_rc_pingpong" shared

# --- a server that is killed: its client gets an error
cat > "$work/kill" <<'KILL'
port=$1 program=$2 server=$3 client=$4 words=$5
for pause in 0.2 1 4 16; do # as in pair
    export pause
    rm -f "$work/client.status"
    bash "$work/side" server $server &
    side=$!
    bash "$work/listening" "$port" $side || echo "the server does not listen"
    bash "$work/side" client $client &
    for ((i = 0; i < 3000; i++)); do
        grep -aqE "$words" "$work/client" && break
        [ -e "$work/client.status" ] && break
        sleep 0.02
    done
    refused=
    [ "$port" = 0 ] && [ -e "$work/client.status" ] && grep -aqE "$refusal" "$work/client" && refused=1
    [ -n "$refused" ] || sleep 0.3
    kill -9 "$(pgrep -P "$(pgrep -P "$side")" -x "$program")"
    wait
    [ -n "$refused" ] || break
done
KILL
killed() { # PORT SERVER CLIENT, the words of a client at work, WORDS...
    local port=$1 server=$2 client=$3 busy=$4
    shift 4
    clean
    run bash "$work/kill" "$port" "${server%% *}" "$server" "$client" "$busy"
    # 124 would be the time limit.
    statuses 137 "${expected:-[1-9]|[1-9][0-9]|25[0-9]}" && printed "$@" && return
    output
}
for verb in write read; do
    command="ib_${verb}_bw -F -n 100000000 $on -p $port"
    check "server of ib_${verb}_bw killed" killed "$port" "$command" "$command 127.0.0.1" "#bytes" 'c:Completion with error' 'c:Failed status 12'
done
expected=".|..|2.."
check "server of rping killed" killed 0 "rping -s -a 127.0.0.1" "rping -c -v -a 127.0.0.1" "rdma-ping-100:" 'c:client DISCONNECT EVENT|cq completion failed'
check "nothing left" nothing_left
plan

#!/usr/bin/env bash
# queues_test.sh PERF [OP...]: copyrpc-perf of queues on a device: each op or these, sizes, directions, latency, and what goes wrong. SEND and
# compare-swap must be among them, the latter as the last. Prints TAP.
. "$(dirname "$0")/queues.sh"

"$perf" server --queues "$address:7477" > "$work/server" 2>&1 &
server=$!
check "perf server --queues listens" listening "$work/server"

ops=("${@:2}")
[ ${#ops[@]} -gt 0 ] || ops=(write read send atomic atomic=swap)
for op in "${ops[@]}"; do
    bytes=4000
    sizes=(-s "$bytes")
    [[ $op != atomic* ]] || bytes=8 sizes=()
    check "--$op: ops of one size" measure "--$op" "${sizes[@]}" -n 500 -q 16
    check "--$op: exactly as many, and all of them right" json "[(row['bytes'], row['ops']) for row in rows] == [($bytes, 500)] and $all_right and $in_order"
    check "--$op: both ways, over three queue pairs" measure "--$op" "${sizes[@]}" -n 300 --both --queue-pairs 3
    check "--$op: as many on each, and in the other direction" json "rows[0]['ops'] == 900 and rows[0]['ops_back'] >= 900 and r['queue_pairs'] == 3 and $all_right"
    check "--$op: one at a time" measure "--$op" --latency -n 50
    check "--$op: latencies are in order" json "rows[0]['ops'] == 50 and $all_right and $in_order"
done
check "the JSON says where it ran" json "(r['device'], r['driver'], r['op']) == ('$device', '$driver', 'compare-swap')"
check "all sizes" measure --write --all -n 3
check "from 2 bytes to 8 MiB" json "[row['bytes'] for row in rows] == [2 << i for i in range(23)] and $all_right"
check "a range of sizes, inline and not, sleeping" measure --send -s 16:256 -n 100 --inline 64 --wait
check "is doubled" json "[(row['bytes'], row['ops']) for row in rows] == [(size, 100) for size in (16, 32, 64, 128, 256)] and r['inline_bytes'] == 64 and $all_right"
check "one at a time, sleeping" measure --send --latency -n 20 --wait
check "for a time, with a deep queue" measure --read -t 0.1 -q 1000 -s 1
check "is that time, and a doorbell is for many" json "0.1 <= rows[0]['seconds'] < 20 and rows[0]['doorbells_per_op'] < 0.5 and rows[0]['signaled_wqes_per_op'] < 0.5"
check "a deep queue" measure --send -q 2000 -n 10000 -s 8
check "loses nothing" json "$all_right and rows[0]['ops'] == 10000"
check "a table for people" bash -c "timeout 60 '$perf' client --write -s 8M -n 2 -q 2 --both $address:7477 | grep -qE '^ +8388608 +[0-9]+ +[0-9.]+ [kMG]?B +[0-9.]+[kMG]? +[0-9.]+ [kMG]?B +[0-9.]+[mu]?s'"

# Datagrams: no more than there are receives at once, so that none is lost.
check "datagrams" measure --send --datagrams -s 500 -n 64 -q 16
check "all have come, and are right" json "[(row['bytes'], row['ops']) for row in rows] == [(500, 64)] and r['datagrams'] and $all_right and $in_order"
check "datagrams both ways, inline, over three queues, sleeping" measure --send --datagrams -s 16:64 -n 60 -q 8 --both --queue-pairs 3 --inline 64 --wait
check "as many on each, and in the other direction" json "[row['ops'] for row in rows] == [180, 180, 180] and all(row['ops_back'] >= 180 and row['lost'] == row['wrong'] == 0 for row in rows)"
check "datagrams, one at a time" measure --send --datagrams --latency -n 50
check "are answered" json "rows[0]['ops'] == 50 and $all_right and $in_order"
check "all sizes of a datagram" measure --send --datagrams --all -n 20
check "are up to a packet" json "[row['bytes'] for row in rows] == [2 << i for i in range(len(rows))] and 1024 <= rows[-1]['bytes'] <= 4096 and $all_right"
check "a datagram of two packets is refused" fails "a datagram is one packet: it has at most" "$perf" client --send --datagrams -s 8k "$address:7477"
check "a WRITE is no datagram" fails "only messages can be datagrams" "$perf" client --write --datagrams "$address:7477"

# What is stopped in the middle, and what goes wrong.
"$perf" client --write "$address:7477" -t 300 --both --json --progress > "$work/json" 2> "$work/progress" &
client=$!
check "a client runs, and says how far it is" says "$work/progress" '^[1-9][0-9]* of 300 s  [0-9.]*[kMG]\? ops/s'
check_stops "and ends well on SIGTERM" $client
check "with its report" json "rows[0]['ops'] > 0 and $all_right"
check "a client of calls is refused" fails "refused" "$perf" client "$address:7477" -n 1
check "which the server tells" says "$work/server" "client refused: it is no copyrpc-perf of this version"
"$perf" client --send "$address:7477" -t 300 --progress > "$work/lost" 2>&1 &
client=$!
check "a client runs while" says "$work/lost" 'of 300 s'
check_stops "perf server --queues ends on SIGTERM" $server
check "whose client says that its queue was lost" says "$work/lost" 'a queue was lost: '
check "the server says what each client did" grep -qE '^client [0-9]+: send of 4.0 kB, 500 messages received, 0 sent, 0 wrong' "$work/server"
check "a client says that nobody listens" fails "listens" "$perf" client --write "$address:7477"
"$perf" server "$address:7477" > "$work/calls" 2>&1 &
server=$!
check "a server of calls listens" listening "$work/calls"
check "a client of queues is refused there" fails "$address:7477: " "$perf" client --read "$address:7477"
check_stops "a server of calls ends on SIGTERM" $server
plan

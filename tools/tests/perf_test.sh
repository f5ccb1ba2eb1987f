#!/usr/bin/env bash
# perf_test.sh PERF: copyrpc-perf of calls on a device: sizes, an open loop beside a closed one, and what it writes: JSON and CSV of all modes,
# histograms, a comparison, a picture. Prints TAP.
. "$(dirname "$0")/queues.sh"
here=$(cd "$(dirname "$0")" && pwd)
json_of() { python3 -I -S -c "import json, re; r = json.load(open('$1')); rows = r['results']; assert $2, r"; }
csv() { python3 -I -S -c "import csv; rows = list(csv.DictReader(open('$work/csv'))); assert $1, rows"; }

"$perf" server --ring 256k "$address:7477" > "$work/server" 2>&1 &
server=$!
check "perf server listens" listening "$work/server"

# Sizes.
check "a range of sizes" measure -s 64:1k -n 200 -q 16
check "is doubled, and each call is right" json "[(row['bytes'], row['reply_bytes'], row['calls']) for row in rows] == [(size, size, 200) for size in (64, 128, 256, 512, 1024)] and $all_right and $in_order"
check "of several sizes no result stands for all" json "'calls' not in r and 'latency_ns' not in r and r['depth'] == 16"
check "one size" measure -s 100 -n 300
check "is a row, and the whole" json "len(rows) == 1 and r['request_bytes'] == rows[0]['bytes'] == 100 and all(r[key] == rows[0][key] for key in rows[0] if key not in ('bytes', 'latency_histogram')) and r['calls'] == 300"
check "sizes with replies of one size" measure -s 4:16 -r 500 -n 50
check "have such replies" json "[(row['bytes'], row['reply_bytes']) for row in rows] == [(4, 500), (8, 500), (16, 500)] and $all_right"
check "all sizes" measure --all -n 50 -q 4
check "are those that the server's ring takes" json "[row['bytes'] for row in rows] == [2 << i for i in range(len(rows))] and rows[-1]['bytes'] >= 16384 and $all_right"
last=$(python3 -I -S -c "import json; print(json.load(open('$work/json'))['results'][-1]['bytes'])")
check "and twice the last is refused" fails "more than the server's ring takes" "$perf" client -s $((2 * last)) -n 1 "$address:7477"
check "sizes of threads" measure -s 8:16 --threads 2 -n 100
check "each of which makes its calls" json "[row['calls'] for row in rows] == [200, 200] and $all_right"
check "a table for people" bash -c "timeout 60 '$perf' client -s 512:1k -n 50 $address:7477 > '$work/table'"
check "has a row for each size" bash -c "[ \$(grep -cE '^ +(512|1024) +50 +[0-9.]+ [kMG]?B +[0-9.]+[kM]? +[0-9.]+[mun]?s +[0-9.]+[mun]?s +[0-9.]+[mun]?s\$' '$work/table') = 2 ]"

# An open loop: no call is sent before it is due, and all that are due are sent.
check "calls at a rate" measure --rate 2k -n 1000
check "take their time" json "r['calls'] == 1000 and r['seconds'] >= 0.999 / 2 and r['rate'] == 2000 and r['unsent'] == 0"
check "threads share the rate" measure --rate 2000 -n 500 --threads 2 --wait
check "and take as long together" json "r['calls'] == 1000 and r['seconds'] >= 0.999 / 2"
check "a rate for a time" measure --rate 0.002M -t 0.5
check "is so many calls" json "r['calls'] + r['unsent'] == 1000"
check "a table says what was due" bash -c "timeout 60 '$perf' client --rate 2k -n 100 $address:7477 | grep -qE '^  due      2.0k calls/s; [0-9]+ had to wait for others; sent up to [0-9.]+[mun]?s late'"
# The server stands still for two intervals of progress, in which 2000 calls are due: only the open loop waits for all of them.
silent() { for _ in $(seq 600); do [ "$(grep -c '  0 calls/s' "$work/progress")" -ge "$1" ] && return; sleep 0.1; done; cat "$work/progress"; return 1; }
stall() { # OPTIONS...
    "$perf" client --warmup 0 --json --progress --histogram "$work/stall.hlog" "$@" "$address:7477" > "$work/json" 2> "$work/progress" &
    client=$!
    check "a client runs" says "$work/progress" '  [0-9.]*[1-9][0-9.]*k\? calls/s'
    kill -STOP $server
    check "and notices that its server stands still" silent 2
}
stall --rate 1000 -q 64 -n 8000
kill -CONT $server
wait $client
check "the client of an open loop ends well" [ $? = 0 ]
check "it tells that calls had to wait, and all were sent" json "r['held'] >= 1900 and (r['calls'], r['lost'], r['unsent']) == (8000, 0, 0) and r['late_most_ns'] >= 10**9"
slow=$(python3 "$here/hlog.py" "$work/stall.hlog" 1000000000)
check "the latencies of an open loop have all calls that were due then ($slow)" [ "${slow#* }" -ge 900 ]
stall -q 4 -t 300
kill -CONT $server
check_stops "the client of a closed loop ends well" $client
slow=$(python3 "$here/hlog.py" "$work/stall.hlog" 1000000000)
check "those of a closed loop have only the few that were open ($slow)" [ "${slow#* }" -lt 100 ]
check "which waited for nothing" json "r['held'] == r['unsent'] == 0 and r['rate'] == 0"
stall --rate 1000 -q 4 -t 300
kill -TERM $client
kill -CONT $server
wait $client
check "a client that is stopped meanwhile ends well" [ $? = 0 ]
check "and says how many were never sent" json "r['unsent'] >= 1900 and r['held'] >= r['unsent']"

# What is written.
check "the whole histogram as a table" timeout 60 "$perf" client -n 500 --histogram "$work/one.hgrm" "$address:7477"
check "has them all" grep -qE '^#\[Max +=.*Total count += +500\]$' "$work/one.hgrm"
check "as a log" timeout 60 "$perf" client -n 500 -s 32:64 --histogram "$work/two.hlog" "$address:7477"
check "has a line for each size" [ "$(python3 "$here/hlog.py" "$work/two.hlog")" = $'32 500\n64 500' ]
check "CSV" bash -c "timeout 60 '$perf' client -s 32:64 -n 100 -q 8 --csv $address:7477 > '$work/csv'"
check "has a row for each size, and what was asked for" csv "[(row['bytes'], row['count'], row['mode'], row['device'], row['option_depth']) for row in rows] == [(size, '100', 'calls', '$device', '8') for size in ('32', '64')]"
check "and figures" csv "all(float(row['count_per_second']) > 0 and 0 < int(row['p50_ns']) <= int(row['max_ns']) for row in rows)"

version=$("$perf" --version)
about="(r['format'], r['host'], r['version'], r['device'], r['driver'], r['link_mbps'] > 0, r['numa_node']) == (1, '$(uname -n)', '${version##* }', '$device', '$driver', True, r['numa_node']) and re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ', r['date'])"
cp "$work/json" "$work/calls.json"
measure -s 8:32 -n 100
cp "$work/json" "$work/sizes.json"
check "the JSON of calls says what ran where, and when" json_of "$work/calls.json" "$about and r['mode'] == 'calls' and r['options']['depth'] == 4 and r['options']['rate'] == 1000"
# What the one before has said must not be taken for the next one's.
start_other() { rm -f "$work/other"; "$perf" server "$@" "$address:7479" > "$work/other" 2>&1 & other=$!; }
for kind in queues channels; do
    start_other --$kind
    options=(--channels)
    [ $kind = channels ] || options=(--send)
    check "a server of $kind listens" listening "$work/other"
    run() { timeout 100 "$perf" client "${options[@]}" -n 100 -s 5000 -q 8 --histogram "$work/$kind.hlog" "$@" "$address:7479"; }
    check "a client of $kind, JSON" bash -c "$(declare -f run); $(declare -p options perf address work kind); run --json > '$work/$kind.json'"
    check "says what ran where, and when" json_of "$work/$kind.json" "$about and r['mode'] == '$kind' and r['options']['depth'] == 8"
    check "and has a row" json_of "$work/$kind.json" "[row['bytes'] for row in rows] == [5000] and all(row['lost'] == row['wrong'] == 0 and row['bytes_per_second'] > 0 and 0 < row['latency_ns']['p50'] for row in rows)"
    check "its histogram has as many" [ "$(python3 "$here/hlog.py" "$work/$kind.hlog")" = "5000 100" ]
    check "a client of $kind, CSV" bash -c "$(declare -f run); $(declare -p options perf address work kind); run --csv > '$work/csv'"
    check "has the same columns" csv "[(row['mode'], row['bytes'], row['count'], row['lost']) for row in rows] == [('$kind', '5000', '100', '0')] and float(rows[0]['count_per_second']) > 0"
    check_stops "a server of $kind ends" $other
done

# Processors.
processor=$(python3 -c "import os; print(max(os.sched_getaffinity(0)))")
processors=$(python3 -c "import os; print(','.join(map(str, sorted(os.sched_getaffinity(0))[:2])))")
start_other --cpu "$processor"
check "a server with a processor of its own listens" listening "$work/other"
allowed() { sed -n 's/^Cpus_allowed_list:\t//p' /proc/"$1"/task/*/status | sort -u | paste -sd ,; }
check "and runs nowhere else" [ "$(allowed $other)" = "$processor" ]
check_stops "it ends" $other
start_other --cpu "$processors" --threads 4
check "four threads on two processors listen" listening "$work/other"
spread() { for _ in $(seq 600); do [ "$(allowed $other)" = "$processors" ] && return; sleep 0.1; done; allowed $other; return 1; }
check "and are on one each, in turn" spread
check_stops "they end" $other
check "a client says where it is" bash -c "timeout 60 '$perf' client -n 100 --cpu $processor $address:7477 | grep -qE '^  threads  on processors $processor, in turn; .*$device'"
check_stops "perf server ends" $server

# A comparison.
change() { python3 -I -S -c "import json; r = json.load(open('$work/calls.json')); row = r['results'][0]; $1; json.dump(r, open('$work/changed.json', 'w'))"; }
compare() { "$perf" compare "$work/calls.json" "$work/changed.json" > "$work/compared"; }
change "row['calls_per_second'] *= 2; row['latency_ns']['p99'] = row['latency_ns']['p99'] * 1.5"
check "two results are compared" compare
check "a rate twice as high" grep -qE '^ +32  calls_per_second +[0-9.e+]+ +[0-9.e+]+ +2\.000$' "$work/compared"
check "a latency half as long again" grep -qE '^ +32  latency_ns.p99 +[0-9.e+]+ +[0-9.e+]+ +1\.500$' "$work/compared"
check "the rest as before" grep -qE '^ +32  latency_ns.p50 +[0-9.e+]+ +[0-9.e+]+ +1\.000$' "$work/compared"
check "nothing else differs" bash -c "! grep differs '$work/compared'"
change "r['host'] = 'elsewhere'; r['version'] = '9.9.9'; r['options']['depth'] = 5"
check "results of other hosts, versions and options" compare
check "are compared with a note" bash -c "for what in 'host was $(uname -n), is elsewhere' 'version was ${version##* }, is 9.9.9' 'depth was 4, is 5'; do grep -qF \"  differs: \$what\" '$work/compared' || exit 1; done; [ \$(grep -c differs '$work/compared') = 3 ]"
change "row['bytes'] = 33"
check "results of different sizes are not to be compared" fails "no size in common" "$perf" compare "$work/calls.json" "$work/changed.json"
change "r['format'] = 2"
check "nor those of another format" fails "another version of copyrpc-perf reads" "$perf" compare "$work/calls.json" "$work/changed.json"
echo '{"a": 1}' > "$work/changed.json"
check "nor other JSON" fails "this is no result of copyrpc-perf" "$perf" compare "$work/calls.json" "$work/changed.json"
echo 'a' > "$work/changed.json"
check "nor what is no JSON" fails "changed.json: line 1: " "$perf" compare "$work/changed.json" "$work/calls.json"
check "nor what is not there" fails "none.json: unable to open" "$perf" compare "$work/none.json" "$work/calls.json"

# A picture. What gnuplot is told is looked at in any case; that it understands it, where there is gnuplot.
drawn() { # FILE
    if command -v gnuplot > /dev/null; then
        check "gnuplot draws it" bash -c "gnuplot '$1' > '$work/svg' && grep -q '</svg>' '$work/svg'"
    else
        skip "gnuplot draws it" "there is no gnuplot"
    fi
}
plot() { "$perf" plot "$@" > "$work/plot"; }
script() { python3 -I -S -c "
import json, re
text = open('$work/plot').read()
data = {name: [[float(cell) for cell in line.split()] for line in block.splitlines()] for name, block in re.findall(r'^\\\$(\w+) << END\n(.*?)^END\n', text, re.M | re.S)}
latency = json.load(open('$work/calls.json'))['latency_ns']
sizes = json.load(open('$work/sizes.json'))['results']
assert $1, data"; }
change "row['latency_ns']['p50'] += 0"
check "latencies over percentiles of two results" plot "$work/calls.json" "$work/changed.json"
check "end with the longest, and have the median at 2" script "set(data) == {'latency0', 'latency1'} and data['latency0'] == data['latency1'] and abs(data['latency0'][-1][1] * 1000 / latency['max'] - 1) < 0.002 and abs([us for x, us in data['latency0'] if x == 2][0] * 1000 / latency['p50'] - 1) < 0.002"
drawn "$work/plot"
check "rates and latencies over sizes" plot "$work/sizes.json"
check "have a point for each" script "[point[0] for point in data['sizes0']] == [8, 16, 32] and all(abs(point[1] / row['calls_per_second'] - 1) < 1e-4 and abs(point[3] * 1000 / row['latency_ns']['p99'] - 1) < 1e-3 for point, row in zip(data['sizes0'], sizes))"
drawn "$work/plot"
change "row['latency_histogram'] = row['latency_histogram'][:-8]"
check "half a histogram is refused" fails "changed.json: it has no histogram that can be read" "$perf" plot "$work/calls.json" "$work/changed.json"
plan

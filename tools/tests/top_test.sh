#!/usr/bin/env bash
# top_test.sh TOP PERF CONTEXTS: copyrpc-top on a device: what it shows of two processes with calls, of one that is stopped, of contexts
# that nobody polls, and what hostile clients can do. Prints TAP.
top=$1 perf=$2 contexts=$3 address=${TEST_ADDRESS:-10.99.0.1} device=${TEST_DEVICE:-rxe0}
here=$(dirname "$0")
. "$(dirname "$0")/tap.sh"
work=$(mktemp -dt "a test.XXXXXX")
trap 'kill -CONT $(jobs -p) 2>/dev/null; kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT

says() { for _ in $(seq 600); do grep -q -- "$2" "$1" && return 0; sleep 0.1; done; cat "$1"; return 1; }
# Looks at a process, and checks its contexts `c`; the first endpoint is `e`.
look() { "$top" --once --json --interval 0.3 --pid "$1" > "$work/json" && python3 -I -S -c "
import json
c = json.load(open('$work/json'))['contexts']
e = c[0]['endpoints'][0] if c and c[0]['endpoints'] else None
assert $2, c"; }

"$perf" server "$address:7479" > "$work/server" 2>&1 &
server=$!
check "a server listens" says "$work/server" '^listening'
check "it is seen before anybody has connected" look $server "[(x['answer'], x['device'], x['endpoints']) for x in c] == [('polling', '$device', [])]"
"$perf" client "$address:7479" --timeout 50 -t 300 --progress > "$work/client" 2>&1 &
client=$!
check "a client calls" says "$work/client" '^[1-9][0-9]* of 300 s'
check "its calls are seen" look $client "(e['state'], e['calls_max']) == ('connected', 256) and 0 < e['calls_open'] <= 256 and 0 <= e['calls'] - e['responses'] <= 256 and e['calls_per_second'] > 0 and e['age_seconds'] > 0 and e['bytes_sent'] > 32 * e['responses']"
calls=$(python3 -I -S -c "import json; print(json.load(open('$work/json'))['contexts'][0]['endpoints'][0]['responses'])")
check "and the server's requests: at least as many as had been answered" look $server "e['requests'] >= $calls and e['requests'] - e['replies'] <= 256 and e['requests_per_second'] > 0 and e['calls'] == 0"
check "both sides name one address" look $client "e['peer'] == '$address:7479'"
check "a table for people" bash -c "'$top' --once --interval 0.2 > '$work/table' && grep -qE '^ +$client +$address:7479 +connected +[0-9]' '$work/table' && grep -qE '^ +$server .*$device port 1, .* polls/s, 1 of ' '$work/table'"
check "hostile clients do no harm" python3 "$here/top_hostile.py" $client
kill -STOP $client
check "a stopped process is seen to be stopped" look $client "[x['answer'] for x in c] == ['stopped']"
kill -CONT $client
check "and to go on" look $client "e['calls'] > $calls"
"$top" --interval 0.1 --json > "$work/lines" &
looker=$!
check "it looks again and again" bash -c "for _ in \$(seq 100); do [ \$(wc -l < '$work/lines') -ge 3 ] && exit 0; sleep 0.1; done; exit 1"
check_stops "and ends well when told to" $looker
check "with whole lines" python3 -I -S -c "import json; [json.loads(line)['contexts'][0] for line in open('$work/lines')]"
kill -TERM $client
wait $client
check "who has ended is not seen" look $client "c == []"

mkfifo "$work/hold"
"$contexts" < "$work/hold" > "$work/contexts" 2>&1 &
several=$!
exec 9> "$work/hold"
check "a process has three contexts" says "$work/contexts" ready
check "of which the two that sleep and poll answer" look $several "sorted(x['answer'] for x in c) == ['not polling', 'polling', 'polling']"
check "hostile clients do no harm to one that sleeps" python3 "$here/top_hostile.py" $several
exec 9>&-
wait $several
check "it ends well" [ $? = 0 ]

COPYRPC_TOP=0 "$perf" server "$address:7480" > "$work/hidden" 2>&1 &
hidden=$!
check "a server that must not be seen listens" says "$work/hidden" '^listening'
check "and is not seen" look $hidden "c == []"

# The privilege of others: a user who is neither root nor the process's own gets nothing.
if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --clear-groups true 2> "$work/setpriv"; then
    check "another user gets no byte" setpriv --reuid 65534 --clear-groups /usr/bin/python3 -I -S -c "
import re, socket
name = re.search(r'@(copyrpc-top\.$server\.\d+)', open('/proc/net/unix').read())[1]
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect('\0' + name)
try:
    assert s.recv(1) == b''
except ConnectionResetError:
    pass"
else
    skip "another user gets no byte" "it takes root"
fi
check "and the server still answers" look $server "[x['answer'] for x in c] == ['polling']"
check "a wrong interval is refused" bash -c "! '$top' --interval 0 2> '$work/error' && grep -q '0.1 to 3600' '$work/error'"
plan

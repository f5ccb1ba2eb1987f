#!/usr/bin/env bash
# shellcheck disable=SC2016 # the shells that simnic runs expand what is in single quotes
# ctl_test.sh SIMNIC WRITER: that `simnic ctl` shows what is in a session, whatever its processes do to it.
writer=$(realpath "$2")
. "$(dirname "$0")/common.sh"
session=ctl_test.$$
directory=/dev/shm/simnic.$(id -u).$session
work=$(mktemp -dt "a test.XXXXXX")
started=() # processes, to end
finish() {
    [ ${#started[@]} = 0 ] || kill "${started[@]}" 2> /dev/null
    wait 2> /dev/null
    rm -rf "$work"
}
trap finish EXIT

ctl() { "$simnic" ctl --session "$session" "$@"; }
# For the background, where $! is to be the tracer's pid and not that of a shell with this function.
tracer=("$simnic" ctl --session "$session" trace)
has() { # FILE WORDS: there is a line with these words
    grep -q -- "$2" "$1" || { echo "no \"$2\" in"; head -50 "$1"; return 1; }
}
# Starts process N of the session, which is told by `tell N WORD`.
start_writer() {
    mkfifo "$work/in$1" "$work/out$1"
    "$writer" "$directory" < "$work/in$1" > "$work/out$1" &
    writer_pid[$1]=$!
    started+=($!)
    exec {fd}> "$work/in$1"
    in[$1]=$fd
    exec {fd}< "$work/out$1"
    out[$1]=$fd
}
tell() {
    echo "$2" >&"${in[$1]}"
    read -r -t 60 -u "${out[$1]}" answer && [ "${answer##* }" = "done" ]
}
declare -a writer_pid in out

# --- words
check "--help" same "$("$simnic" ctl --help | head -1)" "Usage: simnic ctl [OPTION...] WORD [ARGUMENT]"
check "--help after the word" same "$("$simnic" ctl stats --help | head -1)" "Usage: simnic ctl [OPTION...] WORD [ARGUMENT]"
check "no word" complains 2 "say what to do" ctl
check "unknown word" complains 2 "walk is not one of" ctl walk
check "unknown option" complains 2 "--bad is no option" ctl stats --bad
check "an option of another word" complains 2 "--raw does not go with stats" ctl stats --raw
check "option without value" complains 2 "needs a value" ctl trace --qp
check "one word too many" complains 2 "one word too many: more" ctl fault none more
for bad in x -1 0x1000000 "" 12x; do check "--qp '$bad'" complains 2 "expected a queue pair" ctl trace "--qp=$bad"; done
for bad in x -1 0 "" nan inf; do check "--seconds '$bad'" complains 2 "expected a number" ctl trace "--seconds=$bad"; done
check "a bad session name" complains 2 "name is made of" "$simnic" ctl --session a/b stats
for word in stats trace fault "fault lose=1"; do
    # shellcheck disable=SC2086
    check "$word: no such session" complains 1 "there is no session \"$session\"" ctl $word
done
check "a bad fault is told first" complains 2 "fault: x is not one of" ctl fault x=1
check "a fault of two lines" complains 2 "fault: " ctl fault $'a\nb'

# --- a session
"$simnic" run --session "$session" sleep 1000 &
started+=($!)
check "a session is there" soon [ -e "$directory/fabric" ]
no_process() { ctl stats > "$work/stats" && has "$work/stats" "no process uses"; }
check "stats: nobody" no_process
sessions() { "$simnic" ctl sessions > "$work/sessions" && has "$work/sessions" "^$session  *$1  *ethernet\$"; }
check "sessions: nobody in it" sessions 0
start_writer 0
start_writer 1
check "two processes join" eval "tell 0 tracing && tell 1 tracing"
check "sessions: two" sessions 2

# --- stats
check "writing statistics" tell 0 statistics
ctl stats > "$work/stats"
ctl stats --all > "$work/all"
ctl stats --json > "$work/json"
ctl stats --json --all > "$work/json.all"
slot=$(jq ".processes[] | select(.pid == ${writer_pid[0]}) | .slot" "$work/json")
qpn() { echo $((slot << 18 | 0x40 + $1)); }
hex() { printf '0x%06x' "$(qpn "$1")"; }
check "stats: the process" has "$work/stats" "^slot $slot, pid ${writer_pid[0]}, ctl_writer: 2 queue pairs and 1 destroyed"
check "stats: a queue pair" has "$work/stats" "^$(hex 0) RC/0   RTS      1     2     3 "
check "stats: a large number" has "$work/stats" " 1235G "
check "stats: the other rail" has "$work/stats" "^$(hex 1) UD/1   RTS      2     4     6 "
check "stats: none that is destroyed" same "$(grep -c gone "$work/stats")" 0
check "stats: the sum is of all" has "$work/stats" "^sum  *6    12    18 "
check "stats --all" has "$work/all" "^$(hex 2) RC/0   gone     3     6 "
check "stats: 120 columns" same "$(awk 'length > 120' "$work/all")" ""
of_writer() { jq -c ".processes[] | select(.pid == ${writer_pid[0]}) | $2" "$1"; }
check "--json: exact" same "$(of_writer "$work/json" '.queue_pairs[0] | [.qpn, .type, .bytes_sent, .timeouts]')" "[$(qpn 0),\"RC\",1234567890123,17]"
check "--json: none that is destroyed" same "$(of_writer "$work/json" '.queue_pairs | length')" 2
check "--json --all" same "$(of_writer "$work/json.all" '[.queue_pairs[].destroyed]')" "[false,false,true]"
check "--json: the sum" same "$(of_writer "$work/json" '[.state, .sum.send_wqes, .sum.timeouts]')" '["alive",6,102]'
check "--json: the path" same "$(of_writer "$work/json" '.queue_pairs[0].path | [.lid, .partition, .service_level, .traffic_class, .grh, .gid, .timeout]')" \
    '[6,32785,5,106,true,"fe80:0000:0000:0000:0000:0000:0000:0009",18]'
check "--json: the links" same "$(jq .link "$work/json")" '"ethernet"'
check "--json: the objects" same "$(of_writer "$work/json" '.objects | [.protection_domains, .memory_regions, .queue_pairs]')" '[1,2,6]'

# --- fault
check "fault: none" same "$(ctl fault)" none
check "fault: set" status_is 0 ctl fault lose=0.01,rail1=down,seed=7
check "fault: shown" same "$(ctl fault)" lose=0.01,rail1=down,seed=7
all=lose=1e-06,duplicate=0.123456,delay=1:200,rail0=down,rail0=rate:0.500000,rail1=down,rail1=unplugged,rail1=rate:0.001234,rail1=latency:250,rail1=ece:0x20000001,kill=0x000040,stall=5,fill=3,taken=8:1000,placement=0.75:300,quirk=no-srq,quirk=blind-minis,seed=18446744073709551615
check "fault: set all" status_is 0 ctl fault $all
check "fault: all shown as it was set" same "$(ctl fault)" $all
check "fault: a bad one" complains 2 "lose=2: expected" ctl fault lose=2
for bad in rate rate: rate:0 rate:-1 rate:1001 rate:x rate:nan; do check "fault: '$bad'" complains 2 "rail1=$bad: expected" ctl fault "rail1=$bad"; done
for bad in latency latency: latency:-1 latency:1000001 latency:x; do check "fault: '$bad'" complains 2 "rail1=$bad: expected" ctl fault "rail1=$bad"; done
for bad in ece ece: ece:-1 ece:0x100000000 ece:x; do check "fault: '$bad'" complains 2 "rail1=$bad: expected" ctl fault "rail1=$bad"; done
for bad in "" x 2 0.5: 0.5:x late; do check "fault: placement '$bad'" complains 2 "placement=$bad: expected" ctl fault "placement=$bad"; done
check "fault: that changed nothing" same "$(ctl fault)" $all
check "fault: none again" status_is 0 ctl fault none
check "fault: options, quirks and placement stay" same "$(ctl fault)" rail1=ece:0x20000001,placement=0.75:300,quirk=no-srq,quirk=blind-minis
check "fault: the card's options" status_is 0 ctl fault rail1=ece:0x30000007
check "fault: options of a rail" status_is 0 ctl fault rail0=ece:0
check "fault: they are shown" same "$(ctl fault)" rail0=ece:0x00000000,placement=0.75:300,quirk=no-srq,quirk=blind-minis
check "fault: the card's again" status_is 0 ctl fault rail0=ece:0x30000007
check "fault: a quirk that there is not" complains 2 "quirk=x: expected" ctl fault quirk=x
check "fault: no quirk" status_is 0 ctl fault quirk=none
check "fault: placement stays" same "$(ctl fault)" placement=0.75:300
check "fault: no placement" status_is 0 ctl fault placement=0
check "fault: what checks are about" status_is 0 ctl fault quirk=blueflame,lose=0.5,quirk=doorbell
check "fault: that is shown" same "$(ctl fault)" quirk=doorbell,quirk=blueflame,lose=0.5
check "fault: it does not stay" status_is 0 ctl fault none
check "fault: shown" same "$(ctl fault)" none
check "fault: its writer dies in the middle" tell 0 fault
check "fault: half written" complains 1 "half written" ctl fault
check "fault: written to the end" tell 0 fault

# --- trace
traces() { grep -qs 'lock:.* FLOCK' /proc/"$1"/fdinfo/*; } # this tracer has begun: it holds the session's lock
export -f traces
tracing_is() { tell 0 tracing && same "$answer" "$1 done"; }
# Traces while the first process does as it is told.
traced() {
    local pid word
    "${tracer[@]}" "${options[@]}" > "$work/trace" 2> "$work/errors" &
    pid=$!
    soon tracing_is 1 || return 1
    for word; do tell 0 "$word" || return 1; done
    sleep 0.1 # the usual: it reads while they come; what is left it reads at its end
    kill -INT $pid 2> /dev/null
    wait $pid
}
options=()
check "trace until Ctrl-C" traced records
check "tracing is off again" tracing_is 0
check "trace: no complaint" same "$(cat "$work/errors")" ""
check "trace: a line a record" same "$(wc -l < "$work/trace")" 18
ours="ctl_writer WQE qp $(hex 0)"
check "trace: time and process" same "$(grep -c "^ *[0-9]\.[0-9]\{9\} ${writer_pid[0]} ctl_writer " "$work/trace")" 18
check "trace: a WRITE" has "$work/trace" "$ours RDMA_WRITE_IMM index 7 ds 4 signalled solicited fence imm 0xabcd1234; raddr 0x7f0012345678 rkey 0x5500; lkey 0x101 addr 0xdead000 len 4096; lkey 0x202 addr 0xbeef000 len 2147483648\$"
check "trace: a WRITE that is cut off" has "$work/trace" "$ours RDMA_WRITE_IMM .*; 48 bytes of 64; raddr .* len 4096\$"
check "trace: inline data" has "$work/trace" "$ours SEND index 8 ds 3; inline 20: 68 65 6c 6c 6f 2c 20 .* \.\.\.\$"
check "trace: inline data that is cut off" has "$work/trace" "$ours SEND index 8 ds 3; inline 2147483647: 68 65 .* \.\.\.; cut off\$"
check "trace: an atomic" has "$work/trace" "$ours ATOMIC_CS index 9 ds 4 (names qp $(hex 2)) signalled; raddr 0x1000 rkey 0x77; compare 0x6 swap 0x5; lkey 0x303 addr 0x2000 len 8\$"
check "trace: a datagram" has "$work/trace" "WQE qp $(hex 1) SEND index 10 ds 5; to qp 0x000042 qkey 0x11111111 sl 0 gid 0000:0000:0000:0000:0000:0000:0000:0009 from gid 0 hops 64 tclass 0 flow 0x00000; lkey 0x404 addr 0x3000 len 100\$"
check "trace: a datagram without a GRH" has "$work/trace" "SEND index 11 ds 5; to qp 0x000042 qkey 0x11111111 sl 5 lid 0x0006 path bits 1; lkey 0x404"
check "trace: a datagram with one" has "$work/trace" "SEND index 13 ds 5; to .* sl 5 lid 0x0006 path bits 1 gid 0000:.*:0009 from gid 0 hops 64 "
check "trace: a tag" has "$work/trace" "$ours TAG_MATCHING index 12 ds 4; append tag 0x77 mask 0xff next 6 count 3 completion; lkey 0x505 addr 0x4000 len 64\$"
check "trace: a removed tag" has "$work/trace" "CQE cq 0x000003 NO_PACKET wqe 0 qp $(hex 5) bytes 0 owner 0 tm REMOVE place 4 success count 9\$"
check "trace: an unknown opcode" has "$work/trace" "$ours opcode 0x3f index 11 ds 2; 16 bytes of 32\$"
check "trace: hardly a WQE" has "$work/trace" "$ours cut off: 3 bytes\$"
check "trace: a completed READ" has "$work/trace" "CQE cq 0x000003 REQ of RDMA_READ wqe 7 qp $(hex 0) bytes 512 owner 1\$"
check "trace: compressed CQEs" has "$work/trace" "CQE cq 0x000003 compressed: 2 mini CQEs, format 3 owner 0: \[wqe 8 opcode 0x0a bytes 32\] \[wqe 9 opcode 0x00 bytes 0\]\$"
check "trace: inline scatter" has "$work/trace" "CQE cq 0x000003 RESP_SEND_IMM wqe 7 qp $(hex 0) bytes 3 owner 0 solicited imm 0x99887766 inline-scatter 32: 61 62 63\$"
check "trace: an error" has "$work/trace" "REQ_ERR of SEND wqe 0 qp $(hex 0) owner 0 syndrome 0x15 (TRANSPORT_RETRY_EXC_ERR) vendor 0x81 (no answer)\$"
options=(--qp "$(hex 1)" --raw)
check "trace --qp --raw" traced records
check "trace --qp: one QP's" same "$(grep -c WQE "$work/trace")" 3
check "trace --qp: no other's" same "$(grep -c CQE "$work/trace")" 0
check "trace --raw" same "$(sed -n 2p "$work/trace")" "    0000: 00000a0a $(printf %06x "$(qpn 1)")05 00000000 00000000"
options=(--qp "$(qpn 0)")
check "trace --qp of CQEs" traced records
check "trace --qp: CQEs that name no QP belong to the last one that did" same "$(grep -c CQE "$work/trace")" 5
check "trace --seconds" status_is 0 timeout 60 "$simnic" ctl --session "$session" trace --seconds 0.2
check "tracing is off again" tracing_is 0
two() { # the first ends, and the second goes on; both see all
    local one two
    "${tracer[@]}" > "$work/one" &
    one=$!
    "${tracer[@]}" > "$work/two" &
    two=$!
    soon traces $one && soon traces $two && soon tracing_is 1 || return 1
    tell 0 records && sleep 0.1 && kill -INT $one && wait $one || return 1
    tracing_is 1 && tell 0 records && sleep 0.1 && kill -TERM $two && wait $two || return 1
    same "$(wc -l < "$work/one") $(wc -l < "$work/two")" "18 36" && tracing_is 0
}
check "two tracers" two
killed() {
    local one
    "${tracer[@]}" > /dev/null &
    one=$!
    soon tracing_is 1 || return 1
    kill -KILL $one
    wait $one 2> /dev/null
    ctl trace --seconds 0.1 && tracing_is 0
}
check "a tracer is killed: the next one turns tracing off" killed
writes_in_vain() { # it learns that its reader has gone by writing once more after that
    tell 0 records && sleep 0.2 && ! kill -0 "$one"
}
closed() { # who reads goes away
    local one
    mkfifo "$work/pipe"
    head -1 < "$work/pipe" > "$work/first" &
    "${tracer[@]}" > "$work/pipe" 2> "$work/errors" &
    one=$!
    soon tracing_is 1 && soon writes_in_vain || return 1
    wait $one
    soon tracing_is 0 && same "$(cat "$work/errors")" "" && same "$(wc -l < "$work/first")" 1
}
check "trace into a pipe that is closed" closed

# --- processes that do harm
options=()
check "random WQEs and CQEs" traced random random random
check "random: all lines are whole" same "$(LC_ALL=C grep -vc '^ *[0-9]*\.[0-9]\{9\} [0-9]* ctl_writer [WC]QE [qc][pq] 0x[ -~]*$' "$work/trace")" 0
check "random: something came" [ "$(wc -l < "$work/trace")" -gt 500 ]
for i in 1 2 3 4 5 6; do
    check "damaged ring $i" traced records "damage$i"
    check "damaged ring $i: tells it" has "$work/errors" "skipped what"
    check "damaged ring $i: goes on" traced records
    check "damaged ring $i: has all" same "$(wc -l < "$work/trace")" 18
done
check "a damaged ring that was not traced" tell 0 damage5
check "a damaged ring that was not traced: goes on" traced records
check "statistics of ones" tell 0 hostile
check "stats of ones" status_is 0 ctl stats --all
ctl stats --all > "$work/stats"
check "stats of ones: a name that is no text" has "$work/stats" "^slot $slot, pid ${writer_pid[0]}, ????????????????: 0 queue pairs and 256 destroyed; more"
check "stats of ones: 120 columns" same "$(awk 'length > 120' "$work/stats")" ""
check "stats of ones: JSON" eval "ctl stats --json --all | jq . > /dev/null"
kill -KILL "${writer_pid[0]}"
wait "${writer_pid[0]}" 2> /dev/null
ctl stats > "$work/stats"
check "a process that was killed" has "$work/stats" "^slot $slot, pid ${writer_pid[0]}, .* (dead): "
check "sessions: one" sessions 1
echo end >&"${in[1]}"
wait "${writer_pid[1]}"
check "sessions: none" sessions 0
ctl stats --all > "$work/stats"
check "a process that has ended" has "$work/stats" "^slot $((1 - slot)), ctl_writer (ended): "
gone() {
    local one
    "${tracer[@]}" &
    one=$!
    soon traces $one || return 1
    kill "${started[0]}"
    wait $one
}
check "trace ends with its session" gone
check "no session any more" complains 1 "there is no session" ctl stats

# --- programs
pair() {
    "$simnic" run --session "$session" bash -c '
        ibv_rc_pingpong -p "$2" -g 3 -n 300 -s 64 > /dev/null &
        soon listens "$2"
        "$simnic" ctl trace > "$0" & tracer=$!
        soon traces $tracer
        ibv_rc_pingpong -p "$2" -g 3 -n 300 -s 64 127.0.0.1 > /dev/null
        "$simnic" ctl stats --json --all > "$1"; kill -INT $tracer; wait $tracer' "$work/trace" "$work/json" $((20000 + $$ % 10000))
    same "$(jq -c '[.processes[].sum.send_wqes] | add' "$work/json")" 600 &&
        has "$work/trace" " SEND index 299 ds 2 signalled; lkey .* len 64\$" && has "$work/trace" "REQ of SEND wqe 299"
}
if command -v ibv_rc_pingpong > /dev/null; then
    check "ibv_rc_pingpong" pair
else
    skip "ibv_rc_pingpong" "it is not there"
fi
plan

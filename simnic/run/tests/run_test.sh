#!/usr/bin/env bash
# shellcheck disable=SC2016 # the shells that simnic runs expand what is in single quotes
# run_test.sh SIMNIC: that `simnic run` passes on statuses and signals, and leaves nothing behind whatever is killed.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
work=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ -z "$SIMNIC_LIBRARY" ] && [ ! -e "$(dirname "$simnic")/libsimnic.so" ]; then
    export SIMNIC_LIBRARY=$work/libsimnic.so
    echo 'extern int nothing;' | cc -shared -fPIC -x c -o "$SIMNIC_LIBRARY" - || exit 1
fi
session=test.$$ # of the sessions used here
directory=/dev/shm/simnic.$(id -u).$session
export SIMNIC_SESSION_NAME=$session
nap=1000.$$ # an argument for sleep by which a process is told from others
export work simnic directory session nap # for what runs in shells of its own

sleepers() { pgrep -f "^sleep $nap" "$@"; }
no_sleepers() { ! sleepers; }
runners() { pgrep -f "^$simnic .*$session" "$@"; }
no_runners() { ! runners; }
processes_below() { # PROCESS: it has a child that has a child
    inner=$(pgrep -P "$1") && command=$(pgrep -P "$inner")
}
state_is() { [ "$(sed 's/.*) //; s/ .*//' "/proc/$2/stat")" = "$1" ]; }
nothing_left() {
    soon no_sleepers || { sleepers -a; return 1; }
    soon [ ! -e "$directory" ] || { ls -R "$directory"; return 1; }
    # The script's other children are gone; the runners' processes have its name.
    soon no_runners || { runners -a; return 1; }
}
# Names the session, for nothing_left to see.
run() { "$simnic" run --session "$session" "$@"; }
# The same in the background, where $! is to be the runner's pid and not that of a shell with this function.
runner=("$simnic" run --session "$session")

# --- exit status, environment, files
check "status 0" status_is 0 run true
check "status 37" status_is 37 run sh -c 'exit 37'
check "128 + signal" status_is 143 run sh -c 'kill -TERM $$'
check "a command that is not there" complains 127 "No such file" run no-such-command
check "a command that is no program" complains 126 "Permission denied" run -- /etc/passwd
check "nothing left" nothing_left
check "SIMNIC_SESSION" same "$(run printenv SIMNIC_SESSION)" "$directory"
check "SYSFS_PATH" same "$(run printenv SYSFS_PATH)" "$directory/sysfs"
check "LD_PRELOAD keeps what was there" same "$(LD_PRELOAD=libc.so.6 run printenv LD_PRELOAD | sed 's/.*libsimnic.so://')" libc.so.6
check "no trace" status_is 1 run printenv SIMNIC_TRACE
check "--trace" same "$(run --trace printenv SIMNIC_TRACE)" 1
check "the command's own options" same "$(run printf "%s %s" --trace --help)" "--trace --help"
check "stdin" same "$(echo hello | run cat)" hello
check "other files" same "$(run sh -c 'cat <&9' 9<<< nine)" nine
closed() { run sh -c '[ ! -e /proc/$$/fd/0 ] && [ ! -e /proc/$$/fd/2 ]' <&- 2>&-; }
check "closed files stay closed" closed
check "no file of the runner is passed on" same "$(run sh -c 'ls /proc/$$/fd' 9>&-)" "$(sh -c 'ls /proc/$$/fd' 9>&-)"
check "the signal mask and what is ignored" same "$( (trap '' USR1 CHLD; run grep Sig /proc/self/status) | grep 'Blk\|Ign')" \
    "$( (trap '' USR1 CHLD; grep Sig /proc/self/status) | grep 'Blk\|Ign')"
check "the working directory's umask" same "$(umask 027; run sh -c umask)" 0027

# --- the tree in sysfs
sysfs() { run sh -c "cd \$SYSFS_PATH/class && $1"; }
check "no link leads nowhere" same "$(sysfs 'find -L .. -maxdepth 3 -type l; find .. -xtype l')" ""
check "mlx5_0 comes first" same "$(sysfs 'ls -U infiniband' | head -1)" mlx5_0
check "ABI versions" same "$(sysfs 'cat infiniband_verbs/abi_version infiniband_verbs/uverbs1/abi_version misc/rdma_cm/abi_version' | xargs)" "6 1 4"
check "modalias is mlx5's" sysfs 'grep -qx "pci:v000015B3d0000101Bsv.*" infiniband/mlx5_1/device/modalias'
check "a device and its file" same "$(sysfs 'cat infiniband_verbs/uverbs1/ibdev infiniband_verbs/uverbs1/dev' | xargs)" "mlx5_1 231:193"
check "a GID and its type" same "$(sysfs 'cat infiniband/mlx5_1/ports/1/gids/3 infiniband/mlx5_1/ports/1/gid_attrs/types/3' | xargs)" \
    "0000:0000:0000:0000:0000:ffff:7f00:0002 RoCE v2"
check "a free GID has no type" sysfs '[ ! -e infiniband/mlx5_0/ports/1/gid_attrs/types/7 ]'
check "private to the user" same "$(run stat -c %a "$directory")" 700

# --- wrong words
check "no word" complains 2 "run or ctl" "$simnic"
check "unknown word" complains 2 "neither run nor ctl" "$simnic" walk
check "no command" complains 2 "which command" run
check "unknown option" complains 2 "--bad is no option" run --bad true
check "option without value" complains 2 "needs a value" "$simnic" run --session
check "bad fault" complains 2 "--fault: " run --fault nonsense=1 true
check "fault none" status_is 0 run --fault none true
check "a session begins with those of the environment" same "$(SIMNIC_FAULT=stall=3,seed=7 run "$simnic" ctl fault)" stall=3,seed=7
check "the option's come after them" same "$(SIMNIC_FAULT=stall=3,placement=0.5 run --fault fill=9 "$simnic" ctl fault)" fill=9,placement=0.5:1000
check "a session that is there keeps its own" same "$(SIMNIC_FAULT=stall=3 run --fault fill=9 \
    env SIMNIC_FAULT=stall=4 "$simnic" run "$simnic" ctl fault)" fill=9
check "a bad one in the environment" complains 2 "SIMNIC_FAULT: x is not one of" env SIMNIC_FAULT=x=1 "${runner[@]}" true
for bad in "" a/b .. 'a b' ä "$(printf '%065d' 0)"; do
    [ "$bad" = .. ] && continue # a fine name after "simnic.0."
    check "session name '${bad:0:10}'" complains 2 "name is made of" "$simnic" run --session "$bad" true
done
check "session name in the environment" complains 2 "SIMNIC_SESSION_NAME" env SIMNIC_SESSION_NAME=a/b "$simnic" run true
check "session name of 64 characters" status_is 0 "$simnic" run --session "$(printf '%064d' $$)" true
check "session name .." status_is 0 "$simnic" run --session .. true
check "library that is not there" complains 1 "SIMNIC_LIBRARY" env SIMNIC_LIBRARY=/nowhere.so "$simnic" run true
check "--help" same "$("$simnic" --help | head -1)" "Usage: simnic run [OPTION...] [--] COMMAND [ARGUMENT...]"
check "run --help" same "$("$simnic" run --help | head -1)" "Usage: simnic run [OPTION...] [--] COMMAND [ARGUMENT...]"
check "nothing left" nothing_left

# --- little room: what does not fit in /dev/shm ends a program by SIGBUS, which says nothing
apart=(unshare --mount)
[ "$(id -u)" = 0 ] || apart=(unshare --mount --map-root-user)
in_room() { # SIZE COMMAND...: with so much of /dev/shm
    "${apart[@]}" sh -c 'mount -t tmpfs -o size="$1" none /dev/shm && shift && exec "$@"' in_room "$@"
}
if in_room 1m true 2> /dev/null; then
    check "little room is warned of" complains 0 "/dev/shm has 1[0-9]* KiB left.*--shm-size" in_room 3m "$simnic" run true
    check "none is an error" complains 1 "make room in /dev/shm" in_room 64k "$simnic" run true
    check "enough is not" same "$(in_room 8m "$simnic" run true 2>&1)" ""
    check "nor no limit" same "$(in_room 0 "$simnic" run true 2>&1)" ""
else
    skip "little room is warned of" "this user cannot mount a tmpfs"
fi

# --- sharing and nesting
shared() {
    "${runner[@]}" sh -c 'echo here > "$work/ready"; read -r line < "$work/fifo"; cat "$directory/note"' > "$work/note" &
    local first=$!
    soon [ -s "$work/ready" ] || return 1
    run sh -c 'echo hello > "$directory/note"' || return 1
    echo > "$work/fifo"
    wait $first && same "$(cat "$work/note")" hello
}
mkfifo "$work/fifo"
check "two runs share a session" shared
check "nothing left" nothing_left
check "nested" same "$(run "$simnic" run printenv SIMNIC_SESSION)" "$directory"
check "nested: the library is preloaded once" same "$(run "$simnic" run printenv LD_PRELOAD)" "$(run printenv LD_PRELOAD)"
check "nested: leaves the session to its owner" status_is 0 run sh -c '"$simnic" run true; [ -e "$directory/fabric" ]'
check "nested in another session" same "$(run "$simnic" run --session "$session.b" printenv SIMNIC_SESSION)" "$directory.b"
check "a session in the environment that is gone" same "$(SIMNIC_SESSION=$directory.gone "$simnic" run printenv SIMNIC_SESSION)" "$directory"
private() { # two at a time, and what is nested in one shares it
    local one two
    "$simnic" run --private sh -c 'echo "$SIMNIC_SESSION" > "$work/one"; read -r line < "$work/fifo"; cat "$SIMNIC_SESSION/note"' > "$work/note" &
    local first=$!
    soon [ -s "$work/one" ] || return 1
    one=$(cat "$work/one")
    two=$("$simnic" run --private sh -c '[ -e "$SIMNIC_SESSION/fabric" ] && "$simnic" run printenv SIMNIC_SESSION')
    SIMNIC_SESSION=$one "$simnic" run sh -c 'echo hello > "$SIMNIC_SESSION/note"'
    echo > "$work/fifo"
    wait $first && same "$(cat "$work/note")" hello || return 1
    [[ $one = */simnic.$(id -u).private.* && $two = */simnic.$(id -u).private.* && $one != "$two" ]] || { echo "$one, $two"; return 1; }
    [ ! -e "$one" ] && [ ! -e "$two" ]
}
check "--private" private
elsewhere=$work/"a b:c" # what LD_PRELOAD cannot name
mkdir "$elsewhere" && cp "$simnic" "${SIMNIC_LIBRARY:-$(dirname "$simnic")/libsimnic.so}" "$elsewhere"
in_elsewhere() { env -u SIMNIC_LIBRARY "$elsewhere/simnic" run --session "$session" "$@"; }
check "a path with a space and a colon: the library is loaded" in_elsewhere grep -q "a b:c/libsimnic" /proc/self/maps
check "a path with a space and a colon: the library is preloaded once" same \
    "$(in_elsewhere env -u SIMNIC_LIBRARY "$elsewhere/simnic" run printenv LD_PRELOAD)" "$(in_elsewhere printenv LD_PRELOAD)"
check "--private and a name" complains 2 "--private and --session" "$simnic" run --session "$session" --private true
many() { # many runs that come and go at the same time
    local i failed=0 jobs=()
    for ((i = 0; i < 60; i++)); do
        run sh -c '[ -e "$SIMNIC_SESSION/fabric" ] && [ -e "$SYSFS_PATH/class/infiniband_verbs/abi_version" ]' &
        jobs+=($!)
    done
    for i in "${jobs[@]}"; do wait "$i" || failed=1; done
    return $failed
}
check "60 runs come and go" many
check "nothing left" nothing_left

# --- what is left behind
check "a daemon is ended" status_is 5 run sh -c "(setsid sleep $nap > /dev/null 2>&1 &) ; exit 5"
check "nothing left" nothing_left
check "a daemon that ignores SIGTERM is killed" status_is 6 run sh -c "(trap '' TERM; setsid sleep $nap > /dev/null 2>&1 &) ; exit 6"
check "nothing left" nothing_left
check "a stopped process is ended" status_is 7 run sh -c "sleep $nap & kill -STOP \$!; exit 7"
check "nothing left" nothing_left
check "a nested runner is ended" status_is 8 run sh -c '"$simnic" run --session "$session.b" sh -c "trap : TERM; > \"$work/nested\"; sleep $nap; sleep $nap" & until [ -e "$work/nested" ]; do sleep 0.02; done; exit 8'
check "nothing left" nothing_left
check "nothing left of the nested one" [ ! -e "$directory.b" ]
bystander() { # a child that the shell had before it became a runner
    bystander=1002.$$ sh -c 'sleep "$bystander" > /dev/null 2>&1 & exec "$simnic" run --session "$session" sh -c "sleep $nap & exit 9"'
    [ $? = 9 ] && soon pgrep -f "^sleep 1002.$$" && pkill -f "^sleep 1002.$$"
}
check "processes of others are left alone" bystander
check "nothing left" nothing_left

# --- kill -9
# WHO: inner, outer or command. The exit status is that of the outer process.
killed() {
    local who=$1 expected=$2 outer inner command status
    "${runner[@]}" sh -c "setsid sleep $nap & sleep $nap; true" 2> "$work/complaint" &
    outer=$!
    soon sleepers && soon processes_below "$outer" || return 1
    processes_below "$outer"
    kill -9 "${!who}"
    wait "$outer" 2> /dev/null
    status=$?
    [ $status = "$expected" ] || { echo "status $status"; cat "$work/complaint"; return 1; }
    nothing_left
}
check "command killed" killed command 137
check "inner process killed" killed inner 137
check "inner process killed: it says so" grep -q "^simnic: process [0-9]* of simnic died" "$work/complaint"
check "outer process killed" killed outer 137
stale() { # both are killed: the next run, of any session, cleans up
    local outer inner command
    "${runner[@]}" sleep "$nap" > /dev/null 2>&1 &
    outer=$!
    soon processes_below "$outer" || return 1
    processes_below "$outer"
    # A member of the session, until all has been seen: another run on the machine cleans up as well.
    exec 8< "$directory/lock" || return 1
    flock -s 8
    kill -9 "$outer" "$inner"
    wait "$outer" 2> /dev/null
    soon no_sleepers || return 1
    [ -e "$directory" ] || { echo "removed already"; return 1; }
    exec 8<&-
    "$simnic" run --session "$session.b" true
    nothing_left
}
check "both killed: swept up by the next run" stale

# --- signals
cat > "$work/listen" <<'LISTEN'
heard=$1
for s in INT TERM HUP QUIT USR1 USR2 WINCH ALRM; do trap "echo $s >> \"\$heard\"" $s; done
trap 'echo END >> "$heard"; exit 11' PWR
echo READY > "$heard"
# Not sleep, which the group's signals would reach.
while :; do read -r -t 0.02 -u 3; done 3<> "$heard.idle"
LISTEN
mkfifo "$work/heard.idle"
listened() { cat "$work/heard"; }
# Starts the listener in a process group of its own.
start_listener() {
    rm -f "$work/heard"
    set -m
    "${runner[@]}" bash "$work/listen" "$work/heard" > /dev/null 2>&1 &
    outer=$!
    set +m
    soon grep -q READY "$work/heard" && processes_below "$outer"
}
end_listener() {
    local status
    sleep 0.3
    kill -PWR "$outer"
    soon grep -q END "$work/heard" || kill -9 "-$outer"
    wait "$outer" 2> /dev/null
    status=$?
    [ $status = 11 ] || { echo "status $status"; return 1; }
}
to_runner_alone() {
    local outer s
    start_listener || return 1
    for s in INT TERM HUP QUIT USR1 USR2 WINCH ALRM; do
        kill "-$s" "$outer"
        soon grep -qx "$s" "$work/heard" || return 1
    done
    end_listener && same "$(listened | xargs)" "READY INT TERM HUP QUIT USR1 USR2 WINCH ALRM END"
}
to_group() {
    local outer s
    start_listener || return 1
    for s in INT TERM HUP USR1; do
        kill "-$s" "-$outer"
        soon grep -qx "$s" "$work/heard" || return 1
    done
    end_listener && same "$(listened | xargs)" "READY INT TERM HUP USR1 END"
}
to_group_with_a_late_runner() { # stopped, as on a machine that is too busy to run it
    local outer
    start_listener || return 1
    kill -STOP "$outer"
    soon state_is T "$outer" || return 1
    kill -USR1 "-$outer"
    soon grep -qx USR1 "$work/heard" || return 1
    sleep 0.3 # longer than a signal is held for its twin
    kill -CONT "$outer"
    end_listener && same "$(listened | xargs)" "READY USR1 END"
}
stop_and_go() {
    local outer inner command
    start_listener || return 1
    processes_below "$outer"
    kill -TSTP "$outer"
    soon state_is T "$command" && soon state_is T "$outer" || return 1
    kill -CONT "$outer"
    soon state_is S "$outer" || return 1
    kill -USR1 "$outer"
    soon grep -q USR1 "$work/heard" || return 1
    end_listener
}
go_on_by_command() { # who lets only the command go on gets the runner too
    local outer inner command
    start_listener || return 1
    processes_below "$outer"
    kill -TSTP "-$outer"
    soon state_is T "$command" && soon state_is T "$outer" || return 1
    kill -CONT "$command"
    soon state_is S "$outer" || return 1
    end_listener
}
killed_while_stopped() {
    local outer inner command status
    start_listener || return 1
    processes_below "$outer"
    kill -TSTP "-$outer"
    soon state_is T "$command" && soon state_is T "$outer" || return 1
    kill -9 "$command"
    wait "$outer" 2> /dev/null
    status=$?
    [ $status = 137 ] || { echo "status $status"; return 1; }
}
# COMMAND...: starts the runner with SIGINT and SIGQUIT ignored, as shells start what is to be in the background.
start_deaf() {
    rm -f "$work/up"
    (trap '' INT QUIT; exec "${runner[@]}" "$@") &
    outer=$!
    soon [ -e "$work/up" ]
}
stays_ignored() {
    local outer
    start_deaf sh -c '> "$work/up"; exec sleep "$nap"' || return 1
    kill -INT "$outer" && kill -QUIT "$outer" && kill -TERM "$outer" # passed on in this order
    status_is 143 wait "$outer"
}
handled_all_the_same() {
    local outer
    start_deaf /usr/bin/python3 -c 'if True:
        import os, signal
        signal.signal(signal.SIGINT, lambda *_: os._exit(12))
        open(os.environ["work"] + "/up", "w").close()
        while True:
            signal.pause()' || return 1
    kill -INT "$outer"
    status_is 12 wait "$outer"
}
check "signals to the runner alone are passed on" to_runner_alone
check "what was ignored at the start stays so" stays_ignored
check "what was ignored at the start comes to a command that handles it" handled_all_the_same
check "signals to the group are not passed on twice" to_group
check "nor when the runner is late" to_group_with_a_late_runner
check "stop and go on" stop_and_go
check "the runner goes on with the command" go_on_by_command
check "the command is killed while stopped" killed_while_stopped
# timeout sends SIGCONT after its SIGTERM. If that comes while the leak checker stops the ending process, the checker waits for ever.
check "timeout ends all" status_is 124 env "ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" \
    timeout 0.5 "$simnic" run --session "$session" sleep "$nap"
check "nothing left" nothing_left
terminal() { # Ctrl-C, as a terminal sends it
    rm -f "$work/heard"
    # script(1) runs the command by $SHELL, which may be one that nobody is to log in with.
    (soon grep -q READY "$work/heard"; printf '\003'; soon grep -q INT "$work/heard"; sleep 0.5; pkill -PWR -f "^bash $work/listen") |
        SHELL=/bin/sh script -qec 'exec "$simnic" run --session "$session" bash "$work/listen" "$work/heard"' /dev/null > /dev/null
    same "$(listened | xargs)" "READY INT END"
}
if command -v script > /dev/null; then
    check "Ctrl-C comes once" terminal
else
    skip "Ctrl-C comes once" "there is no script(1)"
fi
check "nothing left" nothing_left

# --- /dev/shm that is full, or not writable: in a mount namespace of its own
mounted() { # OPTIONS COMMAND...
    local options=$1
    shift
    unshare -m sh -c 'mount -t tmpfs -o "$0" tmpfs /dev/shm && "$@"; status=$?; ls -A /dev/shm > "$work/shm"; exit $status' "$options" "$@"
}
if mounted size=1m true 2> /dev/null; then
    check "/dev/shm is full" complains 1 "No space left on device; make room" mounted size=64k "$simnic" run --session "$session" true
    check "nothing is left in it" same "$(cat "$work/shm")" ""
    check "/dev/shm has no inodes" complains 1 "No space left on device; make room" mounted size=64m,nr_inodes=50 "$simnic" run --session "$session" true
    check "nothing is left in it" same "$(cat "$work/shm")" ""
    check "/dev/shm is read-only" complains 1 "Read-only file system; /dev/shm must" mounted ro "$simnic" run --session "$session" true
    check "another user's session" complains 1 "something else has this name" mounted size=1m \
        sh -c 'mkdir "$directory" && chown 12345 "$directory" && "$simnic" run --session "$session" true'
else
    for test in "is full" "has no inodes" "is read-only" "has another user's session"; do
        skip "/dev/shm $test" "cannot mount in a namespace of its own"
    done
fi
plan

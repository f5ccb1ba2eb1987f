# tap.sh: TAP for shell tests: `check NAME COMMAND...` is one sub-test; `plan` comes last.
count=0
check() {
    local name=$1 log
    shift
    count=$((count + 1))
    if log=$("$@" 2>&1); then
        echo "ok $count - $name"
    else
        echo "not ok $count - $name"
        printf '%s\n' "$log" | sed 's/^/# /'
    fi
}
# A child of this shell ends by itself, with status 0, when told to.
check_stops() {
    local name=$1 process=$2
    kill -TERM "$process"
    wait "$process"
    check "$name" [ $? = 0 ]
}
plan() { echo "1..$count"; }

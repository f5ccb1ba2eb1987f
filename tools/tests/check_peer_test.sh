#!/usr/bin/env bash
# check_peer_test.sh CHECK: copyrpc-check --peer and --listen, between two programs. Prints TAP.
check=$1
. "$(dirname "$0")/tap.sh"
. "$(dirname "$0")/check.sh"
port=$((20000 + $$ % 20000))

listening() {
    for _ in $(seq 200); do
        grep -q "^listening on port $port with mlx5_1" "$work/listener" && return
        sleep 0.05
    done
    cat "$work/listener"
    return 1
}
says() { # WORDS: what the listener says comes soon after
    for _ in $(seq 100); do
        grep -qxF -- "$1" "$work/listener" && return
        sleep 0.05
    done
    cat "$work/listener"
    return 1
}

"$check" --listen --port $port mlx5_1 > "$work/listener" 2>&1 &
listener=$!
check "one listens" listening
check "the other checks the way there" ends_with 0 "$check" --quick --json "$work/json" --peer "127.0.0.1:$port" mlx5_0
check "that is calls and channels" json "list(c) == ['calls', 'channels'] and all(x['verdict'] == 'ok' and 'over the network' in x['seen'] for x in c.values())"
check "no address is in the report" bash -c "! grep -F 127.0.0.1 '$work/json'"
check "the listener has served both" says "channels: done"
check "by IPv6" ends_with 0 "$check" --quick --only calls --peer "[::1]:$port" mlx5_0
head -c 1000 /dev/urandom > /dev/tcp/127.0.0.1/$port
check "somebody else is sent away" says "somebody connected who is not copyrpc-check"
{ printf 'copyrpc-check 1\n\0\0\0\0\0\0\0\20' && head -c 256 /dev/zero; } > /dev/tcp/127.0.0.1/$port
check "a blob that is none is refused" bash -c "for _ in \$(seq 100); do grep -q '^calls: a blob has ' '$work/listener' && exit; sleep 0.05; done; exit 1"
check "simnic breaks calls" quirk quirk=calls
check "which is found to fail over the network, too" ends_with 1 "$check" --quick --patience 0.3 --only calls --peer "127.0.0.1:$port" --json "$work/json" mlx5_0
check "simnic does as drivers expect" quirk none
check "the listener goes on" ends_with 0 "$check" --quick --only calls --peer "127.0.0.1:$port" mlx5_0
check_stops "the listener stops when told to" $listener
check "nobody listens" ends_with 1 "$check" --quick --only calls --peer "127.0.0.1:$port" --json "$work/json" mlx5_0
check "and that is said" json "'does copyrpc-check --listen run there' in c['calls']['seen']"
check "a host that has no name" ends_with 1 "$check" --quick --only calls --peer ":1" --json "$work/json" mlx5_0
check "is none" json "'is no name of a host' in c['calls']['seen']"
check "a port that is none" complains "copyrpc-check: port 'none'" "$check" --listen --port none
plan

#!/usr/bin/env bash
# shellcheck disable=SC2016 # the variables in single quotes are jq's
# traces_test.sh PYTHON ADDRESS: runs the server and the client of docs/observability.md's section about traces, exactly as printed, and looks
# at the spans that they print. PYTHONPATH is set. Without opentelemetry-sdk it is skipped. Prints TAP.
python=$1 address=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
export readme=$source/docs/observability.md
if ! "$python" -c 'import opentelemetry.sdk' 2>/dev/null; then
    skip_all "opentelemetry-sdk is not installed: ./dev setup gets it from PyPI"
fi
work=$(work_folder) || exit 1
server=
trap '[ -n "$server" ] && kill $server 2>/dev/null; rm -rf "$work"' EXIT

readme_block Traces python > "$work/server.py"
readme_block Traces python 2 > "$work/client.py"
"$python" -u "$work/server.py" "$address" > "$work/server.json" 2> "$work/trouble" &
server=$!
calls() {
    for _ in {1..600}; do
        timeout 60 "$python" "$work/client.py" "$address" > "$work/client.json" 2> "$work/output" && return 0
        sleep 0.1
    done
    cat "$work/output" "$work/trouble"
    return 1
}
check "the client calls the server" calls

# The server's span ends when it has answered, and is printed then.
printed() {
    for _ in {1..600}; do
        grep -q SpanKind.SERVER "$work/server.json" && return 0
        sleep 0.1
    done
    cat "$work/server.json" "$work/trouble"
    return 1
}
check "the server prints the span of the request" printed

# spans CONDITION: whether it holds, of the spans by their names and kinds.
spans() {
    jq -es 'INDEX("\(.name) \(.kind)") | .["answer a user SpanKind.INTERNAL"] as $user | .["kv.get SpanKind.CLIENT"] as $client
        | .["kv.get SpanKind.SERVER"] as $server | .["look up SpanKind.INTERNAL"] as $look | '"$1" "$work/client.json" "$work/server.json"
}
check "they are of one trace" spans '[.[].context.trace_id] | length == 4 and (unique | length == 1)'
check "each has the one before as its parent" spans '$user.parent_id == null and $client.parent_id == $user.context.span_id and
    $server.parent_id == $client.context.span_id and $look.parent_id == $server.context.span_id'
check "they have ended well" spans 'all(.status.status_code == "UNSET") and $client.attributes["rpc.status_code"] == "OK"'
plan

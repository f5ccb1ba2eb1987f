#!/usr/bin/env bash
# version_test.sh VERSION SOURCE PROGRAM...: what every program says of itself, without a device: --version prints its name and the
# project's version, --help succeeds, and an option that is none is not taken for something else.
. "$(dirname "$0")/tap.sh"
version=$1 source=$2
shift 2
prints() { # LINE COMMAND...: to stdout, with success
    local line=$1 output
    shift
    output=$("$@" 2>/dev/null) || { echo "exit status $?"; return 1; }
    [ "$output" = "$line" ] || { echo "$output"; return 1; }
}
refuses() {
    local output
    output=$(timeout 10 "$@" 2>&1) && { echo "exit status 0"; return 1; }
    grep -q -- '--help' <<< "$output" || { echo "$output"; return 1; }
}
for program; do
    name=$(basename "$program")
    check "$name --version" prints "$name $version" "$program" --version
    check "$name --help" bash -c "'$program' --help | grep -qi '^usage: $name'"
    check "$name refuses an unknown option, and names --help" refuses "$program" --no-such-option
done
check "it is the header's" prints "$version" "$source/scripts/version.sh"
plan

#!/usr/bin/env bash
# version_test.sh VERSION SOURCE PROGRAM...: what every program says of itself, without a device: --version prints its name and the
# project's version, --help succeeds, and an option that is none is not taken for something else. 2 is the exit status of the tools and of
# simnic then, and 64 that of the examples.
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
    local status=$1 output
    shift
    output=$(timeout 10 "$@" 2>&1)
    [ $? = "$status" ] || { echo "not status $status: $output"; return 1; }
    grep -q -- '--help' <<< "$output" || { echo "$output"; return 1; }
}
for program; do
    name=$(basename "$program")
    check "$name --version" prints "$name $version" "$program" --version
    check "$name --help" bash -c "'$program' --help | grep -qi '^usage: $name'"
    case $name in
    copyrpc-* | simnic) status=2 ;;
    *) status=64 ;;
    esac
    check "$name refuses an unknown option with $status, and names --help" refuses $status "$program" --no-such-option
done
check "it is the header's" prints "$version" "$source/scripts/version.sh"
plan

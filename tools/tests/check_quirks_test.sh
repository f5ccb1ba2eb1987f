#!/usr/bin/env bash
# check_quirks_test.sh CHECK [NAME...]: each check of copyrpc-check, or each that is named, fails on a device that breaks what it is about, and
# says so. Prints TAP.
check=$1
. "$(dirname "$0")/tap.sh"
. "$(dirname "$0")/check.sh"
shift

names=${*:-$("$check" --list | cut -d' ' -f1)}
for name in $names; do
    case $may_lack in *" $name "*) continue ;; esac
    check "$name: simnic breaks it" quirk "quirk=$name"
    check "$name: is found to fail" ends_with 1 "$check" --quick --patience 0.3 --only "$name" --json "$work/json" mlx5_0 mlx5_1
    check "$name: and nothing else was tried" json "list(c) == ['$name'] and c['$name']['verdict'] == 'FAILED' and c['$name']['seen']"
done
check "simnic does as drivers expect" quirk none

plan

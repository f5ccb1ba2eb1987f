#!/usr/bin/env bash
# compare.sh FIRST SECOND: that two folders have the same files, byte by byte. Says which differ, and how; by diffoscope, if it is here.
set -eu
first=$1 second=$2 different=0
list() { (cd "$1" && find . -type f | LC_ALL=C sort); }
if ! names=$(diff <(list "$first") <(list "$second")); then
    echo "not the same files (<: only the first has it; >: only the second):"
    echo "$names"
    different=1
fi
while read -r name; do
    [ -e "$second/$name" ] || continue
    cmp -s "$first/$name" "$second/$name" && continue
    different=1
    echo "different: ${name#./}"
    if [ -z "${COMPARE_WITH_CMP:-}" ] && command -v diffoscope > /dev/null; then
        diffoscope --text - --max-text-report-size 20000 "$first/$name" "$second/$name" || true
    else
        cmp -l "$first/$name" "$second/$name" | awk 'END { print "  " NR " bytes differ, the last at " $1 }'
        stat -c '  %s bytes: %n' "$first/$name" "$second/$name"
    fi
done < <(list "$first")
exit $different

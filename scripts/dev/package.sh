# what: makes packages that people can install, and tries them
#help
#help Usage: ./dev package KIND [OPTION...]
#help
#help Makes the packages of one kind in build/package/KIND, as a release has them, and tries each where nothing of this checkout is.
#help Without a KIND it lists those that there are; ./dev package KIND --help tells more. What lies there of the last time goes.
#help A kind is a file in scripts/package with a line "# kind: ...", which is sourced with $packages set to its folder.
kind=${1:-}
if [[ $kind = */* ]] || ! grep -qs '^# kind: ' "$root/scripts/package/$kind.sh"; then
    echo "usage: ./dev package KIND [OPTION...]; the kinds:" >&2
    for file in "$root"/scripts/package/*.sh; do
        ! grep -q '^# kind: ' "$file" || printf '  %-11s %s\n' "$(basename "$file" .sh)" "$(sed -n 's/^# kind: //p' "$file")" >&2
    done
    exit 2
fi
shift
case ${1:-} in
-h|--help) sed -n 's/^# kind: //p; s/^#help\( \|$\)//p' "$root/scripts/package/$kind.sh"; exit 0 ;;
esac
# shellcheck disable=SC2034 # what is sourced uses it
packages=$root/build/package/$kind
# shellcheck source=/dev/null # whichever it is: each is checked by itself
. "$root/scripts/package/$kind.sh"

# what: does the README's first lines on a bare system, as a newcomer
#help
#help Usage: ./dev newcomer [--base FOLDER] [--keep] [COMMAND...]
#help
#help Bootstraps the system that this is (Debian or Ubuntu) from the mirror that apt has, with nothing of what is installed here, and makes a clone of this
#help checkout there. In it does what the README says under "Try it", or COMMAND instead, as root. Says how long each line takes, and how it
#help ends. What is not committed is not in the clone. Needs root and the network; takes half an hour, or as long as the command. What it
#help prints is in build/newcomer/logs.
#help --base: uses the bare system in that folder, and leaves it as it is: of another release or distribution, if debootstrap has made it, as in
#help   debootstrap --components=main,universe noble FOLDER http://archive.ubuntu.com/ubuntu
#help --keep: leaves the copy in build/newcomer/system, where the next time begins: with what is installed and built, and the commit of then.
keep='' base='' work=$root/build/newcomer arguments=("$@")
while [ $# -gt 0 ]; do
    case $1 in
    --base) base=$(realpath "${2:?which folder?}"); shift ;;
    --keep) keep=1 ;;
    -*) die "unknown option $1; see ./dev newcomer --help" ;;
    *) break ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || exec sudo "$root/dev" newcomer "${arguments[@]}"
. "$root/scripts/roots.sh"
system=$work/system
finish() {
    [ -n "$keep" ] || rm -rf --one-file-system "${system:?}"
    [ -z "${SUDO_UID:-}" ] || chown -R "$SUDO_UID:${SUDO_GID:?}" "$work/logs"
    [ -z "${SUDO_UID:-}" ] || chown "$SUDO_UID:${SUDO_GID:?}" "$work"
}
trap finish EXIT
mkdir -p "$work/logs"
if [ ! -e "$system/root/copyrpc" ]; then
    [ -n "$base" ] || { base=$work/base && base_root "$base"; }
    rm -rf --one-file-system "${system:?}"
    step "a system for the newcomer" cp -a "$base" "$system"
    step "the clone" git -c safe.directory='*' clone --no-hardlinks "$root" "$system/root/copyrpc"
fi
trust_in_root "$system"
there() { in_root "$system" "${trusting[@]}" TERM=dumb "$@"; }
say "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$system/etc/os-release")"
step "updating it" there apt-get update -q
step "getting git" there apt-get install -y -q --no-install-recommends git

# shellcheck disable=SC2034 # readme.sh's
source=$root
. "$root/docs/tests/readme.sh"
if [ $# = 0 ]; then
    mapfile -t lines < <(readme_block "Try it" sh | sed 's/ *#.*//')
    [ ${#lines[@]} != 0 ] || die "the README has no lines to try it"
else
    lines=("$*")
fi
status=0
for line in "${lines[@]}"; do
    log=$work/logs/$(tr -c '[:alnum:]\n' - <<< "$line").log
    begun=$SECONDS
    # shellcheck disable=SC2016 # the shell within expands it
    there sh -c 'cd /root/copyrpc && eval "$1"' sh "$line" > "$log" 2>&1 < /dev/null || status=$?
    say "$line: $((SECONDS - begun)) s: $(tail -n 1 "$log")"
    [ $status = 0 ] || { tail -n 30 "$log" >&2; die "$line ended with status $status; the whole log is ${log#"$root/"}"; }
done

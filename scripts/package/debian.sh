# shellcheck shell=bash disable=SC2154 # $root and $packages are those of the word
# kind: for Debian: built in a clean root, tried in another
#help
#help Usage: ./dev package debian [--keep] [--build-only] [--base FOLDER] [--inside PATH]
#help
#help Bootstraps the system that this is (Debian or Ubuntu) from the mirror that apt has, with nothing of what is installed here. In a first copy,
#help builds the packages by the README's lines, and has lintian and hardening-check look at them. In a second one, installs them from an
#help archive, and runs the tests of debian/tests; in a third one simnic without the library. In a fourth one, installs by the README's lines with
#help meson, and runs its program. Says how long it takes from nothing to a first call. Needs root and the network; takes ten minutes. The packages
#help are left in build/package/debian/result; with --keep the copies are left beside it, too. What is packaged has the time of the commit, so the
#help packages are the same when they are built again.
#help --build-only: builds them, and tries nothing. --base: uses the bare system in that folder, or makes it there and leaves it. --inside: where
#help the sources are within the copies (/src).
keep='' build_only='' base='' inside=/src
arguments=("$@")
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=1 ;;
    --build-only) build_only=1 ;;
    --base) base=$(realpath -m "${2:?which folder?}"); shift ;;
    --inside) inside=${2:?which path?}; shift ;;
    *) die "unknown argument $1; see ./dev package debian --help" ;;
    esac
    shift
done
[[ $inside = /* && $inside != *[[:space:]]* ]] || die "--inside takes an absolute path without spaces, and not '$inside'"
[ "$(id -u)" = 0 ] || exec sudo "$root/dev" package debian "${arguments[@]}"
command -v apt-get >/dev/null || die "there is no apt-get here: on other systems, see packaging/copyrpc.spec"
work=$packages
umask 022
is_base_ours=''
[ -n "$base" ] || { base=$work/base is_base_ours=1; }
commit_time=$(git -c safe.directory="$root" -C "$root" log -1 --format=%ct)
. "$root/scripts/roots.sh"

# in_copy NAME COMMAND...: in a copy of the bare system.
in_copy() { in_root "$work/$1" SOURCE_DATE_EPOCH="$commit_time" "${@:2}"; }
as_nobody() { in_copy "$1" setpriv --reuid nobody --regid nogroup --clear-groups env HOME=/tmp "${@:2}"; }
install_in() { in_copy "$1" apt-get install -y -q --no-install-recommends "${@:2}"; }

# readme_lines NAME NUMBER: does what a block of the README's "Install it" says, in a copy of the checkout in that root.
readme_lines() {
    local source=$root # for readme_block
    . "$root/docs/tests/readme.sh"
    sudo_for_root "$work/$1"
    readme_block "Install it" sh "$2" > "$work/$1$inside/lines"
    [ -s "$work/$1$inside/lines" ] || die "the README has no block $2 of lines to install by"
    # shellcheck disable=SC2016 # expanded by the shell within
    in_copy "$1" nice sh -euxc 'cd "$1/copyrpc" && . ../lines' sh "$inside"
}
# A copy of the bare system that has a copy of the checkout. Times and modes are those of a commit, not those of this checkout.
prepare() { # NAME
    rm -rf --one-file-system "${work:?}/$1"
    cp -a "$base" "$work/$1"
    mkdir -p "$work/$1$inside/copyrpc"
    (cd "$root" && git -c safe.directory="$root" ls-files -co --exclude-standard -z |
        tar --null --files-from - --mtime "@$commit_time" --mode u=rwX,go=rX -cf -) | tar -xpf - -C "$work/$1$inside/copyrpc"
    find "$work/$1$inside/copyrpc" -type d -exec chmod 755 {} + -exec touch --date "@$commit_time" {} +
}

# ---- The first copy: the packages.
source_package() {
    # shellcheck disable=SC2016 # expanded by the shell within
    in_copy builder sh -euxc 'cd "$1/copyrpc" && dpkg-buildpackage --unsigned-source --unsigned-changes --build=source' sh "$inside"
}
# The Python modules call no function that has a hardened twin. What there is of protected control flow, the distribution decides.
check_packages() {
    install_in builder lintian devscripts
    # shellcheck disable=SC2016 # expanded by the shell within
    in_copy builder sh -euxc 'cd "$1/copyrpc/debian"
        hardening-check --nocfprotection $(find copyrpc-tools/usr/bin simnic libcopyrpc0 libnccl-net-copyrpc -type f "(" -path "*/bin/*" -o -name "lib*.so*" ")")
        cd ..
        lintian --allow-root -i --pedantic --fail-on error,warning ../*.changes' sh "$inside"
}

# ---- The second: a user who installs packages.
control_field() { # FIELD TEST
    awk -v field="$1:" -v test="$2" 'BEGIN { RS = ""; FS = "\n" } $1 == "Tests: " test {
        for (i = 1; i <= NF; i++) if (sub("^" field " *", "", $i)) { gsub(",", "", $i); print $i } }' "$root/debian/tests/control"
}
run_test() { # NAME [ROOT [VARIABLE=VALUE...]]
    local words name=$1 in=${2:-user}
    shift $(($# < 2 ? $# : 2))
    read -ra words <<< "$(control_field Depends "$name")"
    install_in "$in" "${words[@]}"
    as_nobody "$in" "$@" "$inside/copyrpc/debian/tests/$name"
}
serve_packages() { # ROOT: so that apt finds the packages as those of any other archive
    prepare "$1"
    mkdir "$work/$1/packages"
    cp "$work/result/"*.deb "$work/$1/packages/"
    # shellcheck disable=SC2016 # expanded by the shell within
    in_copy builder sh -euc 'cd "$1" && dpkg-scanpackages .' sh "$inside" > "$work/$1/packages/Packages"
    echo 'deb [trusted=yes] file:/packages ./' >> "$work/$1/etc/apt/sources.list"
}

mkdir -p "$work/logs" "$work/result"
remove_roots() {
    rm -rf --one-file-system "${work:?}"/{builder,user,simnic,meson}
    [ -z "$is_base_ours" ] || rm -rf --one-file-system "${base:?}"
}
# What is left belongs to whom it was built for, and can be deleted by him.
finish() {
    [ -n "$keep" ] || remove_roots
    [ -z "${SUDO_UID:-}" ] || chown -R "$SUDO_UID:${SUDO_GID:?}" "$work/logs" "$work/result"
    [ -z "${SUDO_UID:-}" ] || chown "$SUDO_UID:${SUDO_GID:?}" "$work"
}
trap finish EXIT
remove_roots
base_root "$base"
step "a system for the build" prepare builder
step "updating it" in_copy builder apt-get update -q
step "building and installing by the README" readme_lines builder 1
step "the source package" source_package
[ -n "$build_only" ] || step "lintian and hardening-check" check_packages
rm -f "$work/result/"*
cp "$work/builder$inside/"*_* "$work/result/"
[ -z "$build_only" ] || exit 0

step "a system for a user of packages" serve_packages user
begun=$SECONDS
step "updating that" in_copy user apt-get update -q
step "test hello" run_test hello
say "from a bare system to the first call in C: $((SECONDS - begun)) s"
begun=$SECONDS
step "test python" run_test python
say "and then to that in Python: $((SECONDS - begun)) s"
mapfile -t tests < <(sed -n 's/^Tests: //p' "$root/debian/tests/control")
for name in "${tests[@]}"; do
    case $name in
    hello|python|simnic) ;;
    *) step "test $name" run_test "$name" ;;
    esac
done

step "a system for a user of simnic alone" serve_packages simnic
step "updating it for simnic" in_copy simnic apt-get update -q
step "test simnic" run_test simnic simnic SIMNIC_ALONE=1

step "a system for a user of meson" prepare meson
begun=$SECONDS
step "updating the last" in_copy meson apt-get update -q
step "getting jansson for simnic" install_in meson libjansson-dev
step "installing by the README with meson" readme_lines meson 2
step "the README's program" as_nobody meson "$inside/copyrpc/debian/tests/hello"
say "from a bare system to the first call in C by meson: $((SECONDS - begun)) s"
say "the packages are in ${work#"$root/"}/result"

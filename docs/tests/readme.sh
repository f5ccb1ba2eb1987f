# shellcheck shell=bash disable=SC2154
# readme.sh: what README.md prints, for tests that do it. Sourced with $source set, and $readme where it is another file.

# readme_block HEADING LANGUAGE [NUMBER]: the block of code in that language below the heading: the first, unless a number is given.
readme_block() {
    awk -v heading="## $1" -v fence="\`\`\`$2" -v number="${3:-1}" '
        /^## / { here = $0 == heading }
        here && $0 == fence && ++seen == number { inside = 1; next }
        inside && /^```$/ { exit }
        inside' "${readme:-$source/README.md}"
}

# A PATH in which `sudo` installs no package and changes nothing of this machine: apt only has to know the packages, and
# meson installs below $DESTDIR.
without_root() {
    local folder=$1
    mkdir -p "$folder"
    cat > "$folder/sudo" << 'SUDO'
#!/bin/sh
case $1 in
apt)
    shift 2
    for package; do
        dpkg-query -W "$package" > /dev/null 2>&1 || apt-cache show "$package" > /dev/null || exit 1
    done ;;
meson) exec "$@" ;;
ldconfig) ;;
*) echo "what is this test to do with sudo $*?" >&2; exit 1 ;;
esac
SUDO
    chmod +x "$folder/sudo"
    echo "$folder:/usr/bin:/bin"
}

# A new folder without a space in its path, whatever TMPDIR is: what pkg-config says is split at spaces in the README's lines, and a
# virtual environment's programs begin with #! and their path.
work_folder() {
    local temporary=${TMPDIR:-/tmp}
    [[ $temporary != *[[:space:]]* ]] || temporary=/tmp
    mktemp -d "$temporary/readme.XXXXXX"
}

# copy_of_checkout FOLDER: the README's lines build in the checkout, which is not the test's to change.
copy_of_checkout() {
    mkdir -p "$1"
    (cd "$source" && find . -mindepth 1 -maxdepth 1 ! -name build ! -name '.git*' -exec cp -R {} "$1/" \;)
}

# packages_alone FOLDER NAME...: as PKG_CONFIG_LIBDIR, FOLDER has pkg-config know these and what they require, and nothing else.
packages_alone() {
    local folder=$1 name required
    shift
    mkdir -p "$folder"
    for name; do
        [ -e "$folder/$name.pc" ] && continue
        cp "$(pkg-config --variable pcfiledir "$name")/$name.pc" "$folder/"
        mapfile -t required < <(pkg-config --print-requires --print-requires-private "$name" | sed 's/ .*//')
        packages_alone "$folder" "${required[@]}"
    done
}

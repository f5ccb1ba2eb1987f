# readme.sh: what README.md prints, for tests that do it. Sourced with $source set.

# readme_block HEADING LANGUAGE [NUMBER]: the block of code in that language below the heading: the first, unless a number is given.
readme_block() {
    awk -v heading="## $1" -v fence="\`\`\`$2" -v number="${3:-1}" '
        /^## / { here = $0 == heading }
        here && $0 == fence && ++seen == number { inside = 1; next }
        inside && /^```$/ { exit }
        inside' "$source/README.md"
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
        dpkg-query -W "$package" > /dev/null 2>&1 || { echo "the README names $package, which ./dev setup does not install" >&2; exit 1; }
    done ;;
meson) exec "$@" ;;
ldconfig) ;;
*) echo "what is this test to do with sudo $*?" >&2; exit 1 ;;
esac
SUDO
    chmod +x "$folder/sudo"
    echo "$folder:/usr/bin:/bin"
}

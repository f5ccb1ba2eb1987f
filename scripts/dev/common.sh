# common.sh: what the words of ./dev share. Sourced with $root set.

say() { echo "dev: $*" >&2; }
die() { echo "dev: $*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "this needs root, and there is no sudo: $*"
    fi
}

# Packages of the list, without comments; a line may name alternatives, "a | b".
package_lines() { sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$root/scripts/packages-debian.txt"; }

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

# Prints one package for each line of the list of which nothing is installed.
missing_packages() {
    local line name names
    package_lines | while read -r line; do
        IFS='|' read -ra names <<< "$line"
        for name in "${names[@]}"; do
            installed "${name// /}" && continue 2
        done
        for name in "${names[@]}"; do
            if apt-cache show "${name// /}" >/dev/null 2>&1; then
                echo "${name// /}"
                continue 2
            fi
        done
        echo "${names[0]// /}"
    done
}

setup() {
    command -v apt-get >/dev/null || {
        echo "dev: no apt-get here. Install the equivalents of these Debian packages by hand:" >&2
        package_lines >&2
        exit 1
    }
    local missing
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    say "installing $(echo $missing)"
    mkdir -p "$root/build"
    as_root apt-get update > "$root/build/setup.log" 2>&1 || say "apt-get update failed; trying without"
    missing=$(missing_packages)   # names of alternatives are known only now
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing \
        >> "$root/build/setup.log" 2>&1 || {
        tail -n 15 "$root/build/setup.log" >&2
        die "the packages could not be installed; the whole log is build/setup.log"
    }
}

# configure NAME COMPILER [MESON OPTIONS]: makes build/NAME, once.
configure() {
    local name=$1 compiler=$2 cxx=g++
    shift 2
    [ "$compiler" = clang ] && cxx=clang++
    [ -e "$root/build/$name/build.ninja" ] && return 0
    say "configuring build/$name ($compiler $*)"
    mkdir -p "$root/build"
    rm -rf "$root/build/$name"
    # Meson from the distribution runs on the distribution's Python, whatever else is first in PATH.
    CC=$compiler CXX=$cxx meson setup "$root/build/$name" "$root" "$@" > "$root/build/$name.log" 2>&1 || {
        tail -n 15 "$root/build/$name.log" >&2
        die "configuring failed; the whole log is build/$name.log"
    }
}

compile() {
    local name=$1
    say "compiling build/$name"
    ninja -C "$root/build/$name" > "$root/build/$name.log" 2>&1 || {
        grep -E 'error|warning|FAILED|undefined' "$root/build/$name.log" | head -n 40 >&2
        die "compiling failed; the whole log is build/$name.log"
    }
}

# The builds that there are: NAME is gcc, clang, sanitize or release.
build() {
    case $1 in
    gcc) configure gcc gcc -Dwerror=true ;;
    clang) configure clang clang -Dwerror=true ;;
    sanitize) configure sanitize gcc -Dwerror=true -Db_sanitize=address,undefined -Db_lundef=false ;;
    thread) configure thread gcc -Dwerror=true -Db_sanitize=thread -Db_lundef=false ;;
    release) configure release gcc -Dbuildtype=release ;;
    *) die "no build is called '$1'" ;;
    esac
    compile "$1"
}

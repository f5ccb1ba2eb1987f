# shellcheck shell=bash
# go_folders.sh: for scripts that build Go, also for a user without a home. Sourced.

# export_go_build SOURCE GO BUILD: exports what building programs takes that use the package of SOURCE and the library of BUILD.
export_go_build() {
    export PKG_CONFIG_PATH=$3/meson-uninstalled LD_LIBRARY_PATH=$3/capi COPYRPC=$1
    export GOFLAGS=-buildvcs=false GOTOOLCHAIN=local GOPROXY=off PATH=${2%/*}:$PATH
    export_go_folders python3 "$2" "$3"
}

# export_go_folders PYTHON GO BUILD: exports what go_folders.py prints.
export_go_folders() {
    local folder
    while IFS= read -r folder; do
        export "${folder?}"
    done < <("$1" "$(dirname "${BASH_SOURCE[0]}")/go_folders.py" "$2" "$3")
}

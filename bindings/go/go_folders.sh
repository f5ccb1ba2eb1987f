# shellcheck shell=bash
# go_folders.sh: for scripts that build Go, also for a user without a home. Sourced.

# export_go_folders PYTHON GO BUILD: exports what go_folders.py prints.
export_go_folders() {
    local folder
    while IFS= read -r folder; do
        export "${folder?}"
    done < <("$1" "$(dirname "${BASH_SOURCE[0]}")/go_folders.py" "$2" "$3")
}

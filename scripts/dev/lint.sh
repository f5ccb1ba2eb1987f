# what: checks C, shell, Python and Go without running them
#help
#help Usage: ./dev lint [--fix]
#help
#help C: clang-format and clang-tidy. Shell: shellcheck. Python: ruff, and mypy, which is strict with the package copyrpc. Go: vet and
#help staticcheck. Shows what each finds, and at the end which were not clean. What PyPI and the Go proxy have to bring comes in
#help versions that are fixed here and in scripts/lint, once. The first run takes minutes; later ones look at what has changed.
#help --fix formats C and mends what ruff can mend safely, and checks nothing.
setup
cd "$root"
. bindings/go/go_folders.sh
fix='' unclean=()
case ${1:-} in
--fix) fix=1 ;;
'') ;;
*) die "unknown option $1; see ./dev lint --help" ;;
esac
tools=$root/build/tools lint=$root/build/lint
mkdir -p "$tools" "$lint"
export STATICCHECK_CACHE=$lint/staticcheck

# files PATTERN...: those that git knows, for an array.
files() { git ls-files "$@" || die "git cannot list the files of $root: see above"; }
mapfile -t sources < <(files '*.c' '*.h' '*.cpp' '*.hpp')
mapfile -t python < <(files '*.py' '*.pyi')
if [ ${#sources[@]} = 0 ] || [ ${#python[@]} = 0 ]; then
    die "git finds no files to check in $root"
fi

# check NAME COMMAND...: runs it, and notes whether it was clean.
check() {
    say "$1"
    "${@:2}" || unclean+=("$1")
}

# ruff and mypy, if they are not there in these versions, for this Python.
setup_python_tools() {
    local wanted
    wanted=$(/usr/bin/python3 --version; cat scripts/lint/requirements.txt)
    [ "$(cat "$tools/lint/wanted" 2>/dev/null)" != "$wanted" ] || return 0
    say "installing ruff and mypy in build/tools/lint"
    rm -rf "$tools/lint" "$lint/mypy" # whose cache says which packages there are
    if ! { /usr/bin/python3 -m venv "$tools/lint" &&
        "$tools/lint/bin/python" -m pip install --disable-pip-version-check -r scripts/lint/requirements.txt; } > "$lint/pip.log" 2>&1; then
        tail -n 3 "$lint/pip.log" >&2
        say "ruff and mypy are missing: PyPI did not bring them (the whole log is build/lint/pip.log)"
        return 1
    fi
    printf '%s\n' "$wanted" > "$tools/lint/wanted"
}

# The staticcheck that goes with this Go; each wants a Go as new as itself.
setup_staticcheck() {
    local version go_version
    go_version=$(GOTOOLCHAIN=local "$go" env GOVERSION) || return 1
    case ${go_version#go1.} in
    21*) version=v0.4.7 ;;
    22*) version=v0.5.1 ;;
    23*|24*) version=v0.6.1 ;;
    25*) version=v0.7.0 ;;
    *) version=v0.8.2 ;;
    esac
    staticcheck=$tools/staticcheck-$version-$go_version
    [ ! -x "$staticcheck" ] || return 0
    say "installing staticcheck $version"
    if ! GOTOOLCHAIN=local GOFLAGS='' GOBIN=$lint/bin "$go" install "honnef.co/go/tools/cmd/staticcheck@$version" > "$lint/staticcheck.log" 2>&1; then
        tail -n 3 "$lint/staticcheck.log" >&2
        say "staticcheck is missing: the Go proxy did not bring it (the whole log is build/lint/staticcheck.log)"
        return 1
    fi
    mv "$lint/bin/staticcheck" "$staticcheck"
}

if [ -n "$fix" ]; then
    say "formatting ${#sources[@]} files"
    clang-format -i "${sources[@]}"
    setup_python_tools || exit 1
    "$tools/lint/bin/ruff" check --fix --quiet "${python[@]}" || say "./dev lint tells what ruff leaves to people"
    exit 0
fi

formatted() { printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 50 clang-format --dry-run -Werror; }

tidy() {
    local units
    mapfile -t units < <(files 'capi/*.c' 'core/*.c' 'tools/*.c' 'examples/*.c' 'nccl/*.c' 'simnic/*.c' 'conformance/*.c' | grep -v /tests/)
    /usr/bin/python3 scripts/lint/clang_tidy.py build/clang "${units[@]}"
}

# Scripts by their name, or by a first line that names a shell.
shell() {
    local scripts
    mapfile -t scripts < <({ files '*.sh'; git grep -lIE '^#!.*[/ ](ba|da|)sh( |$)' -- ':!*.md' ':!*.c' ':!*.py'; } | LC_ALL=C sort -u)
    printf '%s\0' "${scripts[@]}" | xargs -0 -P "$(nproc)" -n 6 shellcheck --format gcc --external-sources
}

# Folder by folder, each with a cache of its own, since files of different folders may have the same name.
types() {
    local failed=0
    (cd bindings/python && "$tools/lint/bin/mypy" --cache-dir "$lint/mypy/package" --no-error-summary) || failed=1
    # shellcheck disable=SC2016 # sh expands these, for each folder
    printf '%s\n' "${python[@]}" | grep -v '^bindings/python/copyrpc/' | sed 's#/[^/]*$##' | LC_ALL=C sort -u | MYPYPATH=$root/bindings/python \
        xargs -P "$(nproc)" -I{} sh -c '"$0" --config-file scripts/lint/mypy.ini --cache-dir "$1/$2" --no-error-summary "$2"/*.py' "$tools/lint/bin/mypy" "$lint/mypy" {} || failed=1
    return $failed
}

# go_modules COMMAND...: runs it in every module, but for those that need a newer Go.
go_modules() {
    local failed=0 module
    while read -r module; do
        if (cd "$(dirname "$module")" && GOTOOLCHAIN=local "$go" list -m 2>&1) | grep 'requires go >='; then
            say "$module is left out"
            continue
        fi
        (cd "$(dirname "$module")" && PKG_CONFIG_PATH=$root/build/clang/meson-uninstalled GOFLAGS=-buildvcs=false GOTOOLCHAIN=local \
            PATH=$(dirname "$go"):$PATH "$@") || failed=1
    done < <(files '*go.mod')
    return $failed
}

check clang-format formatted
check shellcheck shell
if setup_python_tools; then
    check ruff "$tools/lint/bin/ruff" check --quiet --output-format concise "${python[@]}"
    check mypy types
else
    unclean+=(ruff mypy)
fi
build clang
check clang-tidy tidy
if go=$(find_go); then
    export_go_folders /usr/bin/python3 "$go" "$lint"
    check "go vet" go_modules "$go" vet ./...
    if setup_staticcheck; then
        check staticcheck go_modules "$staticcheck" ./...
    else
        unclean+=(staticcheck)
    fi
else
    say "go vet and staticcheck are missing: there is no Go of at least $(oldest_go)"
    unclean+=("go vet" staticcheck)
fi
[ ${#unclean[@]} = 0 ] || die "not clean: $(printf '%s, ' "${unclean[@]}" | sed 's/, $//')"
say "clean"

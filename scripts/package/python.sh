# shellcheck shell=bash
# kind: for Python: a source distribution and wheels, tried with each Python that is here
#help
#help Usage: ./dev package python [--no-tests | --build-only] [--root FOLDER]...
#help
#help What is committed is packaged. Makes a source distribution, from that a wheel for each Python that is older than the stable ABI which the
#help package needs, and one wheel for all later ones. They are for this machine's glibc, or a later one; who has containers can make wheels for older
#help ones with cibuildwheel, which bindings/python/pyproject.toml configures. Then each Python of the range that is here, with venv and its
#help headers, installs its wheel in a fresh environment, runs the package's README and, without --no-tests, the package's tests on simnic.
#help What is built has the time of the commit, by tools whose versions are in scripts/package, so the files are the same when they are built again.
#help --build-only: makes and looks at them, and tries nothing.
#help --root: does the README's lines for Python in that root folder of a distribution, a new one of debootstrap's, as root; then installs the
#help source distribution and a wheel there, and makes the first call. It stays, with what was installed in it.
# shellcheck disable=SC2154 # $root and $packages are those of the word
tests=1 build_only='' roots=()
while [ $# -gt 0 ]; do
    case $1 in
    --no-tests) tests='' ;;
    --build-only) build_only=1 ;;
    --root) roots+=("$(realpath "${2:?which folder?}")"); shift ;;
    *) die "unknown option $1; see ./dev package python --help" ;;
    esac
    shift
done
cd "$root" || exit
. docs/tests/readme.sh
# shellcheck disable=SC2034 # readme.sh's
source=$root
unset PYTHONPATH VIRTUAL_ENV PIP_REQUIRE_VIRTUALENV
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Wheels and the source distribution have these times and modes, and no path of where they were built.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH PIP_CONSTRAINT=$root/scripts/package/build-constraints.txt PIP_BUILD_CONSTRAINT=$root/scripts/package/build-constraints.txt
umask 022
! pkg-config --exists copyrpc || die "pkg-config knows an installed copyrpc, which the wheels would need; PKG_CONFIG_LIBDIR hides it"
rm -rf "$packages"
mkdir -p "$packages/built" "$packages/try"
log=$packages/log

# quietly COMMAND...: what it prints is shown if it fails.
quietly() {
    "$@" > "$log" 2>&1 || { tail -n 30 "$log" >&2; die "failed: $*"; }
}

tools=$(realpath -m "$root/build/tools/package") # the folder itself: what is installed there has its path, and build/tools may be a link
if [ "$(cat "$tools/wanted" 2>/dev/null)" != "$(cat scripts/package/requirements.txt)" ]; then
    say "installing what packages are made with in build/tools/package"
    rm -rf "$tools"
    quietly /usr/bin/python3 -m venv "$tools"
    PIP_CONSTRAINT='' quietly "$tools/bin/pip" install -r scripts/package/requirements.txt
    cp scripts/package/requirements.txt "$tools/wanted"
fi

project() { /usr/bin/python3 scripts/package/python_project.py "$@"; }

# Prints the first Python $1 that is here with what it takes to build and install: "3.14t" is one without a GIL.
find_python() {
    local candidate
    for candidate in "/usr/bin/python$1" "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/"python$1"; do
        [ -x "$candidate" ] && "$candidate" -c 'import ensurepip, os, sysconfig, venv
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null && { echo "$candidate"; return; }
    done
    return 1
}

if [ -z "$build_only" ]; then
    build gcc simnic/simnic simnic/libsimnic.so
    simnic=$root/build/gcc/simnic/simnic
fi

say "the source distribution"
quietly "$tools/bin/python" -m build --sdist --outdir "$packages" bindings/python
sdist=("$packages"/copyrpc-*.tar.gz)
quietly /usr/bin/python3 scripts/package/python_look.py "${sdist[0]}"

# Which Pythons are here, oldest first; and with which of them the wheel is made that is good for later ones.
pythons=() stable=$(project stable)
while read -r version; do
    if python=$(find_python "$version"); then
        pythons+=("$version $python")
    else
        say "there is no Python $version here: it is left out"
    fi
done < <(project pythons)
[ ${#pythons[@]} != 0 ] || die "there is no Python of the range here"

is_made=''
for each in "${pythons[@]}"; do
    read -r version python <<< "$each"
    # A wheel for all later Pythons is there once; one without a GIL needs its own.
    [[ $version != *t ]] && [ -n "$is_made" ] && continue
    if [[ $version != *t ]] && project is-stable "$version"; then
        is_made=1
        [ "$version" = "$stable" ] || say "without Python $stable, the wheel for all later ones begins with $version"
    fi
    say "the wheel of Python $version"
    quietly "$python" -m venv "$packages/try/build$version"
    quietly "$packages/try/build$version/bin/pip" wheel --no-deps --wheel-dir "$packages/built" "${sdist[0]}"
done
for wheel in "$packages"/built/*.whl; do
    quietly env PATH="$tools/bin:$PATH" bindings/python/repair_wheel.sh "$wheel" "$packages"
done
rm -rf "$packages/built"
for wheel in "$packages"/*.whl; do
    quietly /usr/bin/python3 scripts/package/python_look.py "$wheel"
    [[ $wheel != *-abi3-* ]] || quietly "$tools/bin/abi3audit" --strict "$wheel"
done
quietly "$tools/bin/twine" check --strict "${sdist[0]}" "$packages"/*.whl

if [ -n "$build_only" ]; then
    rm -rf "$packages/try" "$log"
    return 0
fi

readme=bindings/python/README.md readme_block "A first call" python > "$packages/hello.py"
readme=bindings/python/README.md readme_block "A first call" text > "$packages/hello.txt"
[ -s "$packages/hello.py" ] || die "bindings/python/README.md has no first call"
# first_call PYTHON: the README's program, with nothing of the checkout beside it.
first_call() (
    cd "$packages/try" || exit
    "$simnic" run --private -- "$1" "$packages/hello.py" 127.0.0.1:7471 > output && cmp output "$packages/hello.txt"
)
for each in "${pythons[@]}"; do
    read -r version python <<< "$each"
    place=$packages/try/$version begun=$SECONDS
    say "Python $version: $python"
    quietly "$python" -m venv "$place"
    quietly "$place/bin/pip" install --only-binary copyrpc --find-links "$packages" copyrpc
    quietly first_call "$place/bin/python"
    say "Python $version: the first call is answered $((SECONDS - begun)) s after the environment was begun"
    [ -n "$tests" ] || continue
    quietly "$place/bin/pip" install numpy pytest tap.py
    # The package that is installed, not the one of the checkout: conftest.py is elsewhere.
    quietly env TEST_SOURCE="$root" TEST_BUILD="$root/build/gcc" TEST_ADDRESS=127.0.0.1 "$simnic" run --private -- "$place/bin/python" \
        bindings/python/tests/run.py bindings/python/tests/test_{calls,connections,lifetime,bad_input,asyncio,arrays,channels,queues,lanes,payloads,interrupts,threads}.py
    ! grep -q '^not ok' "$log" || { grep -A 30 '^not ok' "$log" | head -n 60 >&2; die "tests fail with Python $version"; }
    say "Python $version: $(grep -c '^ok' "$log") tests pass"
done

for folder in "${roots[@]}"; do
    . scripts/package/python_root.sh
    try_in_root "$folder"
done
rm -rf "$packages/try" "$packages"/hello.* "$log"
say "made: $(cd "$packages" && echo *)"

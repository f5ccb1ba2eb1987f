#!/usr/bin/env bash
# install_test.sh SIMNIC BUILD: what a newcomer does: the README's lines and its program as printed, with the system's own Python; mypy;
# and what pip says where something is missing. Prints TAP. Packages come from PyPI, as for the newcomer.
simnic=$1 build=$2
source=$(cd "$(dirname "$0")/../../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
work=$(work_folder) || exit 1
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH PIP_REQUIRE_VIRTUALENV VIRTUAL_ENV
# `python3` is the distribution's, whatever other Python comes first in PATH.
PATH=$(without_root "$work/bin")
export PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1

copy_of_checkout "$work/copyrpc"
readme_block "In Python" sh > "$work/commands"
readme_block "In Python" python > "$work/hello.py"
check "the README says how to install" test -s "$work/commands" -a -s "$work/hello.py"
check "its Python is the system's" test "$(command -v python3)" = /usr/bin/python3

/usr/bin/python3 -m venv "$work/probe" || exit 1
if ! "$work/probe/bin/pip" download -q --no-deps -d "$work/probe" pycparser > "$work/probe.log" 2>&1; then
    skip "the README's lines" "no package index: $(tail -n 1 "$work/probe.log")"
    plan
    exit 0
fi

# A copyrpc that this machine may have would be linked with; the checkout's is to be built along.
packages_alone "$work/rdma-core" libibverbs libmlx5 librdmacm
export PKG_CONFIG_LIBDIR=$work/rdma-core
export CFLAGS=-O0 # what is built here is soon built; docs/tests/install_test.sh has the compiler optimise
unset PKG_CONFIG_PATH
check "the README's lines, as printed" bash -c "cd '$work/copyrpc' && sh -e '$work/commands'"
venv=$work/copyrpc/build/python/bin
check "they made an environment of the system's Python" test "$(readlink -f "$venv/python")" = "$(readlink -f /usr/bin/python3)"
check "the package is there, with types" test -e "$("$venv/python" -c 'import copyrpc, os; print(os.path.dirname(copyrpc.__file__))')/py.typed"
check "nothing else is: no libibverbs, no libcopyrpc" bash -c "! find '$work/copyrpc/build' -name '*ibverbs*' -o -name 'libcopyrpc*' | grep ."
check "libibverbs is the system's" bash -c "ldd \"\$('$venv/python' -c 'import copyrpc._native as n; print(n.__file__)')\" | grep -q 'libibverbs.so.1 => /'"
check "numpy is not needed" bash -c "! '$venv/python' -c 'import numpy' 2>/dev/null"

check "the README's program, as printed" bash -c "timeout 60 '$simnic' run --session readme.\$\$ -- '$venv/python' '$work/hello.py' 127.0.0.1:7475 > '$work/output'"
check "it prints what came back" test "$(cat "$work/output")" = "b'hello'
[b'one', b'two', b'three']"
check "without a device it says so" bash -c "! '$venv/python' -c 'import copyrpc; copyrpc.Context(\"none0\")' 2> '$work/error' && grep -q 'NoDevice' '$work/error'"

check "installing mypy, meson-python and cffi" "$venv/pip" install -q mypy meson-python cffi ninja meson numpy opentelemetry-api
check "mypy --strict on the package" bash -c "cd '$work' && '$venv/mypy' --strict -p copyrpc"
check "mypy --strict on the README's program" bash -c "cd '$work' && '$venv/mypy' --strict hello.py"
cat > "$work/typed.py" <<'END'
import copyrpc

def use(endpoint: copyrpc.Endpoint) -> None:
    reveal_type(endpoint.call(b"x", timeout=1.0))
    reveal_type(endpoint.call_many([b"x", bytearray(1), memoryview(b"x")]))
    endpoint.call("text")
    endpoint.call(b"x", timeout="1")

def move(channel: copyrpc.Channel) -> list[int]:
    first: int = channel.post_receive(bytearray(1)).wait()
    return [first, channel.send(b"x", 1), channel.receive(bytearray(1)), *channel.post_receive([bytearray(1)], [1]).wait()]
END
check "mypy knows types, and sees wrong ones" bash -c "cd '$work' && '$venv/mypy' --strict typed.py > mypy.out; grep -q 'Revealed type is \".*bytes\"' mypy.out && grep -q 'Revealed type is \".*list\[.*bytes\]\"' mypy.out && grep -q ':6: error: Argument 1' mypy.out && grep -q ':7: error: Argument \"timeout\"' mypy.out && grep -q 'Found 2 errors' mypy.out || { cat mypy.out; false; }"

DESTDIR=$work/root meson install -C "$build" --no-rebuild > "$work/install.log" 2>&1
installed=$(dirname "$(find "$work/root" -name copyrpc.pc)")
sed -i "s#^prefix=#prefix=$work/root#" "$installed/copyrpc.pc"
check "with a libcopyrpc that is installed" bash -c "cd '$source' && PKG_CONFIG_PATH='$installed' '$venv/pip' install -q --force-reinstall --no-deps --no-build-isolation ./bindings/python"
check "that one is linked with" bash -c "find '$work/copyrpc/build' -name '_native.*.so' -exec readelf -d {} + | grep -q 'NEEDED.*libcopyrpc.so.0'"

mkdir "$work/alone"
cp -r "$source/bindings/python/"{copyrpc,meson.build,pyproject.toml,README.md,LICENSE,build_native.py,add_library_source.py} "$work/alone"
check "no library and no checkout: pip says what to do" bash -c "! '$venv/pip' install --no-deps --no-build-isolation '$work/alone' > '$work/alone.log' 2>&1 && grep -q 'libcopyrpc is not installed' '$work/alone.log' && grep -q PKG_CONFIG_PATH '$work/alone.log'"
mkdir "$work/nothing"
check "no libibverbs: pip names the packages" bash -c "! PKG_CONFIG_LIBDIR='$work/nothing' '$venv/pip' install --no-deps --no-build-isolation '$work/alone' > '$work/none.log' 2>&1 && grep -q 'apt install libibverbs-dev librdmacm-dev' '$work/none.log'"
plan

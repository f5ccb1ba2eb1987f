#!/usr/bin/env bash
# consumers_test.sh BUILD SIMNIC ECHO_SERVER: projects of others find the library: with CMake what BUILD installs, wherever it lies; with meson as a
# subproject, of which nothing but the library is built; and with CMake what that project installs, which is static. Prints TAP.
build=$1 simnic=$2 echo_server=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
work=$(work_folder) || exit 1
trap 'rm -rf "$work"' EXIT
unset CMAKE_PREFIX_PATH PKG_CONFIG_PATH DESTDIR CFLAGS LDFLAGS
readme_block "A program" c > "$work/hello.c"

DESTDIR=$work/root check "installing" meson install -C "$build" --no-rebuild
shared=$(dirname "$(dirname "$(find "$work/root" -name copyrpc.h)")")
# shellcheck disable=SC2016 # CMake expands it
printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(hello C)' 'find_package(copyrpc ${wanted} REQUIRED)' \
    'find_package(copyrpc ${wanted} REQUIRED)' 'add_executable(hello hello.c)' 'target_link_libraries(hello PRIVATE copyrpc::copyrpc)' \
    > "$work/CMakeLists.txt"
configure() { # PREFIX FOLDER VERSION
    cmake -S "$work" -B "$work/$2" -DCMAKE_PREFIX_PATH="$1" -Dwanted="$3"
}
refused() { # VERSION
    local said
    if said=$(configure "$shared" refused "$1" 2>&1) || ! grep -q 'copyrpc-config.cmake, version: ' <<< "$said"; then
        echo "$said"
        return 1
    fi
}
answered() { # PROGRAM
    # shellcheck disable=SC2016 # the shell within expands it
    timeout 120 "$simnic" run --private -- bash -euc '
        "$1" 127.0.0.1:7471 > "$2.log" 2>&1 &
        until grep -q "^listening" "$2.log"; do
            kill -0 $! || { cat "$2.log"; exit 1; }
            sleep 0.1
        done
        [ "$("$2" 127.0.0.1:7471)" = "CRPC_OK: hello" ]
        kill $!' answered "$echo_server" "$1"
}

version=$("$source/scripts/version.sh")
check "CMake finds the library" configure "$shared" shared "$version"
check "and builds a program with it" cmake --build "$work/shared"
check "which loads it" bash -c "readelf -d '$work/shared/hello' | grep -q 'NEEDED.*libcopyrpc.so.0'"
check "and is answered" answered "$work/shared/hello"
check "no version: any" configure "$shared" any ""
check "a range of versions" configure "$shared" range "0.0.9...$version"
check "a range without this one is refused" refused "0.0.9...<$version"
check "a later version is refused" refused 0.999
check "one with another first number is, too" refused 1.0

# A project with a folder subprojects, which is a link here and what meson's wrap files fetch elsewhere.
mkdir -p "$work/whole/subprojects"
cp "$work/hello.c" "$work/whole"
ln -s "$source" "$work/whole/subprojects/copyrpc"
printf '%s\n' "project('whole', 'c', default_options: ['default_library=static'])" \
    "copyrpc = dependency('copyrpc', version: '>=$version', fallback: 'copyrpc')" \
    "executable('hello', 'hello.c', dependencies: copyrpc)" > "$work/whole/meson.build"
packages_alone "$work/rdma-core" libibverbs libmlx5 librdmacm
export PKG_CONFIG_LIBDIR=$work/rdma-core # where there is nobody's copyrpc
check "meson has it as a subproject" meson setup --prefix=/usr "$work/whole/build" "$work/whole"
check "of which the library is built, and no tests, tools or plugin" bash -c "
    meson introspect --targets '$work/whole/build' | jq -r '.[].name' | sort > '$work/targets'
    grep -qx copyrpc '$work/targets' && ! grep -E 'test|perf|simnic|nccl|echo' '$work/targets'"
check "it builds" ninja -C "$work/whole/build"
check "and the program is answered" answered "$work/whole/build/hello"
DESTDIR=$work/root-of-static check "installing that" meson install -C "$work/whole/build" --no-rebuild
check "CMake finds a static library" configure "$work/root-of-static/usr" static "$version"
check "and builds a program that has it within" bash -c "cmake --build '$work/static' && ! readelf -d '$work/static/hello' | grep copyrpc"
check "which is answered" answered "$work/static/hello"
plan

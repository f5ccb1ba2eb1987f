#!/usr/bin/env bash
# install_test.sh BUILD: the lines of README.md that install the library, as printed, where nothing but rdma-core's packages is found;
# then the README's program against what was installed. Prints TAP. BUILD has simnic and the echo server.
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
work=$(work_folder) || exit 1
server=
trap '[ -n "$server" ] && kill $server 2>/dev/null; rm -rf "$work"' EXIT

copy_of_checkout "$work/copyrpc"
cd "$work/copyrpc" || exit 1

# Nothing but rdma-core is found by pkg-config, nor a C++ compiler.
packages_alone "$work/rdma-core" libibverbs libmlx5 librdmacm
packages_alone "$work/and-jansson" libibverbs libmlx5 librdmacm jansson
mkdir "$work/nothing"
PATH=$(without_root "$work/bin")
unset PKG_CONFIG_PATH CFLAGS CPPFLAGS LDFLAGS
export PATH PKG_CONFIG_LIBDIR=$work/rdma-core CC=gcc CXX=/bin/false CMAKE=/bin/false DESTDIR=$work/root

commands() { readme_block "Install it" sh 2 > "$work/commands"; test -s "$work/commands"; }
check "the README says how to install" commands
built() { sh -e "$work/commands" > "$work/built" 2>&1 || { cat "$work/built"; return 1; }; }
check "its lines work with rdma-core's two packages alone" built
unwarned() { ! grep -A 4 'warning:' "$work/built"; }
check "and the compiler warns of nothing" unwarned
log=build/install/meson-logs/meson-log.txt
check "nothing else is looked for: no Python, Go or valgrind" bash -c "! grep -E '^Program .*(python|go|valgrind)' $log"

# What was installed.
library=$(dirname "$(find "$DESTDIR" -name libcopyrpc.so)")
files() { (cd "$DESTDIR" && find . -type f -o -type l) | sed 's#.*/##' | sort | tr '\n' ' '; }
version=$(meson introspect --projectinfo build/install | sed 's/.*"version": "\([^"]*\)".*/\1/')
check "installed are the library, its header, its page, what others find it by, and NCCL's plugin, and no test" \
    test "$(files)" = "copyrpc-config-version.cmake copyrpc-config.cmake copyrpc.7 copyrpc.h copyrpc.pc libcopyrpc.so libcopyrpc.so.0 libcopyrpc.so.$version libnccl-net-copyrpc.so "
check "the compiler optimised" grep -q -- '-O3' build/install/compile_commands.json
check "and no warning would have been an error" bash -c "! grep -q -- '-Werror' build/install/compile_commands.json"
check "pkg-config knows the version" test "$(PKG_CONFIG_PATH=$library/pkgconfig pkg-config --modversion copyrpc)" = "$version"

# The README's program.
readme_block "A program" c > hello.c
readme_block "A program" sh > "$work/compile"
readme_block "A program" sh 2 > "$work/run"
export PKG_CONFIG_PATH=$library/pkgconfig PKG_CONFIG_SYSROOT_DIR=$DESTDIR LD_LIBRARY_PATH=$library
check "the README's program builds as printed" sh -e "$work/compile"
check "also as C99 with every warning" bash -c "cc -std=c99 -Wall -Wextra -Werror hello.c -o hello99 \$(pkg-config --cflags --libs copyrpc)"
ln -s "$build" build/gcc
export SIMNIC_SESSION_NAME=install.$$
sed -n 1p "$work/run" > "$work/first"
sed -n 2p "$work/run" > "$work/second"
unanswered() {
    if timeout 60 sh "$work/second" > "$work/output" || ! grep -q 'nobody listens' "$work/output"; then
        cat "$work/output"
        return 1
    fi
}
check "where nobody listens, the README's program says so and ends" unanswered
sh -c "exec $(cat "$work/first")" > "$work/server" 2>&1 & # so that the process below is the program's, not the shell's
server=$!
until grep -q '^listening' "$work/server"; do
    kill -0 $server 2>/dev/null || break
    sleep 0.1
done
check "the README's program is answered, in a second terminal" bash -c "sh '$work/second' > '$work/output'; cat '$work/output' '$work/server'; [ \"\$(cat '$work/output')\" = 'CRPC_OK: hello' ]"
kill $server
wait $server
server=

# Options and what they answer. Nothing is compiled.
configure() { rm -rf "$work/try"; meson setup "$@" "$work/try" > "$work/try.log" 2>&1; }
says() {
    local words
    for words; do grep -Eq -- "$words" "$work/try.log" || { cat "$work/try.log"; return 1; }; done
}
fails() { local words=$1; shift; ! configure "$@" && says "$words"; }
check "plain meson setup leaves out what it has nothing for, and says why" configure
check "the tools" says 'tools *: no, jansson was not found$'
check "simnic" says 'simnic *: no, jansson was not found$'
check "the tests" says 'tests *: no, cmocka and a C\+\+ compiler were not found; they need what is left out: tools, simnic$'
check "the rest is built" says 'nccl *: yes$' 'examples *: yes$'
check "what is asked for is demanded" fails 'Feature tools cannot be enabled: jansson was not found' -Dtools=enabled
check "nothing may be missing from the builds of ./dev" fails 'ERROR: Feature .* cannot be enabled' -Dauto_features=enabled
PKG_CONFIG_LIBDIR=$work/and-jansson check "simnic and the tools need jansson, and no C++" configure
check "so they are built, and the tests are not" says 'simnic *: yes$' 'tools *: yes$' 'tests *: no, cmocka and a C\+\+ compiler were not found$'
check "the tests are not to be had without simnic" fails 'tests cannot be enabled: .*they need what is left out: .*simnic' -Dtests=enabled -Dsimnic=disabled
PKG_CONFIG_LIBDIR=$work/nothing check "without rdma-core, it names the packages" fails 'apt install libibverbs-dev librdmacm-dev' -Dtests=disabled
PKG_CONFIG_LIBDIR=$work/and-jansson check "simnic alone leaves out all else" configure -Dparts=simnic
check "and says so" bash -c "! grep -q 'nccl *:' '$work/try.log'"
check "simnic alone needs jansson too" fails 'Dparts=simnic builds nothing: jansson was not found' -Dparts=simnic

# simnic alone, by its own README.
readme=$source/simnic/README.md readme_block "Build and install" sh > "$work/commands"
rm -rf "$DESTDIR"
PKG_CONFIG_LIBDIR=$work/and-jansson check "the lines of simnic's README work" sh -e "$work/commands"
check "installed are simnic, what it loads, its pages and what shells read" \
    test "$(files)" = "_simnic libsimnic.so simnic simnic simnic-ctl.1 simnic-run.1 simnic.1 simnic.fish "
check "man and shells find them where they look" bash -c "cd '$DESTDIR'/*/*/share && ls man/man1/simnic.1 bash-completion/completions/simnic fish/vendor_completions.d/simnic.fish zsh/site-functions/_simnic"
simnic=$(find "$DESTDIR" -path '*/bin/simnic' -type f)
check "two ports, from where it was installed" bash -c "[ \"\$('$simnic' run --private -- ibv_devices | grep -c mlx5_)\" = 2 ]"
plan

# shellcheck shell=bash
# kind: for Go: the modules as the Go proxy has them of a release, tried in an empty folder
#help
#help Usage: ./dev package go [--build-only]
#help
#help What is committed is packaged. Makes the zips of bindings/go and bindings/go/otel by golang.org/x/mod/zip, as the Go proxy does of a tag, and
#help in a copy of the system's paths that has nothing of this checkout: installs the library, gets the module by the lines of docs/go.md, and makes
#help the first call on simnic. The same with otel, if the Go proxy brings what that needs. Says how long it takes from nothing to the first call.
#help With --build-only, makes the zips and tries nothing.
# shellcheck disable=SC2154 # $root and $packages are those of the word
build_only=''
[ "${1:-}" != --build-only ] || { build_only=1; shift; }
[ $# = 0 ] || die "unknown argument $1; see ./dev package go --help"
cd "$root" || exit
. docs/tests/readme.sh
go=$(find_go) || die "there is no Go of at least $(oldest_go)"
# shellcheck disable=SC2034 # readme.sh's
source=$root
rm -rf "$packages"
mkdir -p "$packages/tree" "$packages/hello" "$packages/otel"
log=$packages/log
quietly() {
    "$@" > "$log" 2>&1 || { tail -n 30 "$log" >&2; die "failed: $*"; }
}
export GOTOOLCHAIN=local GOWORK=off PATH=${go%/*}:$PATH
unset GOFLAGS COPYRPC

say "the zips"
version=v$(scripts/version.sh)
git archive HEAD bindings/go | tar -x -C "$packages/tree"
# shellcheck disable=SC2016 # the shell within expands these
quietly sh -c 'cd scripts/package/go_zip && exec "$1" run . "$2/tree" "$2/proxy" "$3"' sh "$go" "$packages" "$version"

if [ -n "$build_only" ]; then
    rm -rf "${packages:?}"/{tree,hello,otel,log}
    return 0
fi

say "the library"
build gcc simnic/simnic simnic/libsimnic.so
begun=$SECONDS
quietly meson setup --prefix "$packages/installed" --buildtype=release -Dtests=disabled -Dtools=disabled -Dsimnic=disabled -Dnccl=disabled \
    -Dexamples=disabled "$packages/built" "$root"
quietly meson install -C "$packages/built"
say "it is built and installed after $((SECONDS - begun)) s"
pc=$(find "$packages/installed" -name copyrpc.pc)
export PKG_CONFIG_PATH=${pc%/*} LD_LIBRARY_PATH=${pc%/pkgconfig/*}

# The caches of modules and of what was compiled are new, and gone afterwards: as for a newcomer.
export GOMODCACHE=$packages/modules GOCACHE=$packages/cache
upstream=$("$go" env GOPROXY)
begun=$SECONDS
readme=docs/go.md readme_block "A first call" go > "$packages/hello/main.go"
readme=docs/go.md readme_block "A first call" text > "$packages/hello.txt"
readme=docs/go.md readme_block "Install" sh > "$packages/lines"
[[ -s $packages/hello/main.go && -s $packages/lines ]] || die "docs/go.md has no lines and no program"
# shellcheck disable=SC2016 # the shell within expands these
quietly env GOPROXY="file://$packages/proxy" GOSUMDB=off GOFLAGS=-modcacherw sh -euxc 'cd "$1/hello" && . ../lines' sh "$packages"
first_call() (
    cd "$packages/hello" || exit
    "$root/build/gcc/simnic/simnic" run --private -- ./hello 127.0.0.1:7471 > ../output && cmp ../output ../hello.txt
)
quietly first_call
say "the first call is answered $((SECONDS - begun)) s after go mod init"

cd "$packages/otel" || exit
printf 'package main\n\nimport _ "github.com/copyrpc/copyrpc/bindings/go/otel"\n\nfunc main() {}\n' > main.go
# shellcheck disable=SC2016
if env GOPROXY="file://$packages/proxy,$upstream" GONOSUMDB='github.com/copyrpc/*' GOFLAGS=-modcacherw sh -euxc \
    'go mod init traced && go get "github.com/copyrpc/copyrpc/bindings/go/otel@$1" && go build -o traced .' sh "$version" > "$log" 2>&1; then
    quietly grep "bindings/go $version" go.mod
    say "otel builds with it"
elif grep -q 'dial tcp\|no such host\|timeout' "$log"; then
    say "otel is left out: the Go proxy does not bring what it needs: $(tail -n 1 "$log")"
else
    tail -n 30 "$log" >&2
    die "a program that uses otel does not build"
fi
cd "$root" || exit
rm -rf "${packages:?}"/{tree,hello,otel,modules,cache,built,installed,output,hello.txt,lines,log}
say "made: $(cd "$packages/proxy" && find . -name '*.zip' | LC_ALL=C sort | paste -sd ' ')"

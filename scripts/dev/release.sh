# what: makes what a release uploads, the same bytes each time
#help
#help Usage: ./dev release [--trial] [--output FOLDER] [--without KIND]... [--base FOLDER] [--inside PATH]
#help        ./dev release --check [--trial] [--without KIND]...
#help        ./dev release --abi
#help
#help Makes in build/release/result, or in a FOLDER that is new or empty, of the commit that is checked out: the source, what ./dev package makes for
#help Debian, Python and Go, the release notes, an SBOM (SPDX 2.3) and SHA256SUMS. Times in them are the commit's. It tags nothing and uploads
#help nothing: docs/releasing.md says what to do with it. Refuses, and says what to do, where the tree or the CHANGELOG is not ready.
#help --trial: also of a version that the CHANGELOG calls unreleased. --without: debian (which needs root and the network), python or go; a release
#help has all. --base and --inside are those of ./dev package debian.
#help --check: does all of it twice, in two clones at different paths, and says what differs; with diffoscope, if it is here. Takes half an hour.
#help --abi: writes the dump of the library's ABI, for you to commit: see docs/releasing.md, "The ABI".
trial=() without=() for_debian=() word=make_release output=$root/build/release/result
while [ $# -gt 0 ]; do
    case $1 in
    --trial) trial=(--trial) ;;
    --output) output=$(realpath -m "${2:?which folder?}"); shift ;;
    --without)
        case ${2:-} in
        debian|python|go) without+=("$2") ;;
        *) die "--without takes debian, python or go, and not '${2:-}'" ;;
        esac
        shift
        ;;
    --base|--inside) for_debian+=("$1" "${2:?its value is missing}"); shift ;;
    --check) word=check_release ;;
    --abi) word=abi ;;
    *) die "unknown argument $1; see ./dev release --help" ;;
    esac
    shift
done
cd "$root" || exit
has() { [[ " ${without[*]} " != *" $1 "* ]]; }
version=$(scripts/version.sh)

# The name says whose dump it is. One of a release stays until the next.
write_dump() {
    local name heading
    command -v abidw > /dev/null || die "abidw is missing: ./dev setup installs it"
    heading=$(grep -m 1 '^## ' CHANGELOG.md)
    case $heading in
    "## $version (unreleased)")
        name=unreleased
        [ -e capi/abi/copyrpc-unreleased.abi ] || die "the dump of the last release stays until CHANGELOG.md has the date of $version: its heading is '$heading'"
        ;;
    "## $version ("*)
        name=$version
        ! git rev-parse -q --verify "refs/tags/v$version" > /dev/null || die "$version was released: its dump stays, and the next release has another version"
        ;;
    *) die "CHANGELOG.md begins with '$heading', and capi/copyrpc.h says $version: see docs/releasing.md" ;;
    esac
    build gcc "capi/libcopyrpc.so.$version"
    /usr/bin/python3 capi/tests/abi_dump_test.py capi/copyrpc.h capi/copyrpc.map "build/gcc/capi/libcopyrpc.so.$version" capi/abi --write "$name" || exit
    say "capi/abi/copyrpc-$name.abi is written"
}

# What is made depends on the commit, not on who makes it, where and when.
make_release() {
    local commit commit_time file
    [ "$output" != "$root/build/release/result" ] || rm -rf "$output"
    [ -z "$(ls -A "$output" 2>/dev/null)" ] || die "there is something in $output: name another folder, or remove it"
    mkdir -p "$output" || exit
    python_packages=$root/build/tools/python-packages
    setup_python_packages
    PYTHONPATH=$python_packages /usr/bin/python3 -c 'import spdx_tools' 2> /dev/null || die "spdx-tools is missing: see build/setup.log"
    commit=$(git rev-parse HEAD)
    commit_time=$(git log -1 --format=%ct)
    export LC_ALL=C.UTF-8 TZ=UTC SOURCE_DATE_EPOCH=$commit_time
    unset CFLAGS CPPFLAGS CXXFLAGS LDFLAGS DEB_BUILD_OPTIONS
    umask 022
    say "the source"
    scripts/release/source.sh "$root" "$version" "$output" || die "the source could not be packed"
    if has go; then
        "$root/dev" package go --build-only || exit
        cp "build/package/go/proxy/github.com/copyrpc/copyrpc/bindings/go/@v/v$version.zip" "$output/copyrpc-go-$version.zip"
        cp "build/package/go/proxy/github.com/copyrpc/copyrpc/bindings/go/otel/@v/v$version.zip" "$output/copyrpc-go-otel-$version.zip"
    fi
    if has python; then
        "$root/dev" package python --build-only || exit
        cp build/package/python/*.tar.gz build/package/python/*.whl "$output"
    fi
    if has debian; then
        "$root/dev" package debian --build-only "${for_debian[@]}" || exit
        cp build/package/debian/result/*.deb build/package/debian/result/*.dsc build/package/debian/result/*.tar.xz "$output"
        # With what it was built. When, is not the commit's; and .changes files have no use without an archive.
        for file in build/package/debian/result/*_"$(dpkg --print-architecture)".buildinfo; do
            grep -v '^Build-Date:' "$file" > "$output/${file##*/}"
        done
    fi
    say "the release notes, the SBOM"
    /usr/bin/python3 -B scripts/release/changelog.py "$root" > "$output/release-notes.md" || exit
    PYTHONPATH=$python_packages /usr/bin/python3 -B scripts/release/sbom.py "$output" "$version" "$commit" "$commit_time" || exit
    (cd "$output" && find . -maxdepth 1 -type f ! -name '.*' ! -name SHA256SUMS -printf '%f\0' | LC_ALL=C sort -z | xargs -0 sha256sum > .sums && mv .sums SHA256SUMS) || exit
    chmod 644 "$output"/*
    say "$version of commit $commit is in $output: $(wc -l < "$output/SHA256SUMS") files and SHA256SUMS"
    [ ${#trial[@]} = 0 ] || say "this was a trial: nothing of it is to be uploaded"
    [ ${#without[@]} = 0 ] || say "${without[*]} is missing: nothing of it is to be uploaded"
    say "docs/releasing.md says which tags to push then, and what to upload where"
}

# Two clones, so that each thing is built at another path, later, by somebody who has other settings.
check_release() {
    local work=$root/build/release clone arguments
    rm -rf "${work:?}"/{first,second}
    for clone in first/copyrpc second/place/of/copyrpc; do
        git clone -q --no-hardlinks "$root" "$work/$clone" || exit
        git -C "$work/$clone" checkout -q --detach "$(git rev-parse HEAD)" || exit
        mkdir -p "$root/build/tools" "$work/$clone/build"
        ln -s "$root/build/tools" "$work/$clone/build/tools"
    done
    arguments=("${trial[@]}" --base "$work/base")
    for clone in "${without[@]}"; do
        arguments+=(--without "$clone")
    done
    say "the first build"
    (umask 077; TZ=Etc/GMT+12 LC_ALL=C "$work/first/copyrpc/dev" release "${arguments[@]}" --output "$work/first/result") || die "the first build failed"
    sleep 2 # zip knows no shorter times
    say "the second build"
    (umask 002; TZ=Etc/GMT-14 LC_ALL=C.UTF-8 CFLAGS=-O1 "$work/second/place/of/copyrpc/dev" release "${arguments[@]}" --inside /home/another/place \
        --output "$work/second/result") || die "the second build failed"
    scripts/release/compare.sh "$work/first/result" "$work/second/result" || die "the two differ; they are left in build/release"
    rm -rf --one-file-system "${work:?}"/{first,second,base}
    say "both builds are the same"
}

[ "$word" != abi ] || { write_dump; exit; }
git rev-parse --verify -q HEAD > /dev/null || die "this is no checkout of git, of which alone releases are made"
/usr/bin/python3 -B scripts/release/ready.py "$root" "${trial[@]}" || die "not ready; docs/releasing.md has the steps"
"$word"

# shellcheck shell=bash disable=SC2154 # $root, $packages and the functions are those of python.sh, which sources this
# python_root.sh: what a newcomer does on a distribution that has nothing yet, in a root folder made by debootstrap.

. "$root/scripts/roots.sh"

in_folder() { in_root "$1" "${trusting[@]}" "${@:2}"; }

# try_in_root FOLDER: the README's lines for Python as printed; then the packages.
try_in_root() {
    local folder=$1 begun work=$1/root/copyrpc
    [ "$(id -u)" = 0 ] || die "--root needs root"
    [ -e "$folder/etc/os-release" ] || die "$folder is no root folder of a distribution"
    say "in $folder: $(sed -n 's/^PRETTY_NAME=//p' "$folder/etc/os-release")"
    rm -rf --one-file-system "$work" "$folder/root/packages"
    mkdir -p "$work" "$folder/root/packages"
    git archive HEAD | tar -x -C "$work"
    sudo_for_root "$folder" -q --no-install-recommends
    trust_in_root "$folder"
    readme_block "In Python" sh > "$work/lines"
    readme_block "In Python" python > "$work/hello.py"
    [[ -s $work/lines && -s $work/hello.py ]] || die "the README has no lines for Python"
    cp "$packages"/copyrpc-*.tar.gz "$packages"/copyrpc-*.whl build/gcc/simnic/simnic build/gcc/simnic/libsimnic.so "$folder/root/packages"
    quietly in_folder "$folder" apt-get update -q
    begun=$SECONDS
    quietly in_folder "$folder" sh -euxc 'cd /root/copyrpc && . ./lines'
    say "the README's lines: $((SECONDS - begun)) s"
    quietly in_folder "$folder" apt-get install -q -y --no-install-recommends libjansson4 ibverbs-providers
    # Not in the checkout, so that nothing of it is found.
    for form in "" "--no-binary copyrpc" "--only-binary copyrpc"; do
        if [ -n "$form" ]; then
            # shellcheck disable=SC2016 # the shell within expands it
            quietly in_folder "$folder" sh -euxc 'rm -rf /root/try && python3 -m venv /root/try && /root/try/bin/pip install $1 --find-links /root/packages copyrpc' sh "$form"
        fi
        # shellcheck disable=SC2016
        quietly in_folder "$folder" sh -euxc 'cd / && /root/packages/simnic run --private -- "$1" /root/copyrpc/hello.py 127.0.0.1:7471 > /root/output &&
            [ "$(tail -n 1 /root/output)" = "$2" ]' sh "$([ -n "$form" ] && echo /root/try || echo /root/copyrpc/build/python)/bin/python" "[b'one', b'two', b'three']"
        say "the README's first call is answered, installed from ${form:-the checkout}"
    done
}

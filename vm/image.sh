# shellcheck shell=bash
# image.sh: the VM's kernel and initramfs: made once for each kernel version and for each state of these scripts,
# and kept in the cache. Sourced by run; vm_image prints the folder.

PATH=$PATH:/usr/sbin:/sbin # depmod, for users who have no such folders in theirs
vm_cache=${XDG_CACHE_HOME:-${HOME:-$(cd ~ && pwd)}/.cache}/copyrpc/vm
vm_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

vm_say() { echo "vm: $*" >&2; }

# Which package has the kernel: Debian's name first, then Ubuntu's.
vm_kernel_packages() {
    local meta name
    for meta in linux-image-amd64 linux-image-virtual linux-image-generic; do
        name=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
        [ -n "$name" ] && break
    done
    [ -n "$name" ] || return 1
    echo "$name"
    # Ubuntu keeps modules apart; rdma_rxe is among the extra ones.
    local version=${name#linux-image-} part
    for part in "linux-modules-$version" "linux-modules-extra-$version"; do
        apt-cache show "$part" >/dev/null 2>&1 && echo "$part"
    done
    return 0
}

# The folder of a cached image that fits these scripts, if there is one: no network, no apt.
vm_cached() {
    local stamp=$1 folder
    for folder in "$vm_cache"/*-"$stamp"; do
        [ -e "$folder/initramfs" ] && { echo "$folder"; return 0; }
    done
    return 1
}

vm_build() {
    local folder=$1 packages names version
    packages=$(vm_kernel_packages) || {
        vm_say "apt has no package lists yet; updating them"
        if [ "$(id -u)" = 0 ]; then apt-get -qq update; else sudo apt-get -qq update; fi
        packages=$(vm_kernel_packages) || {
            vm_say "apt knows no kernel package: see vm/README.md for what is needed"
            return 1
        }
    }
    mapfile -t names <<< "$packages"
    vm_say "downloading ${packages%%$'\n'*} (once)"
    (cd "$folder" && apt-get -o APT::Sandbox::User=root -qq download "${names[@]}") || {
        vm_say "the download failed; run 'apt-get update' and try again"
        return 1
    }
    local package
    for package in "$folder"/*.deb; do
        dpkg -x "$package" "$folder/root" || return 1
        rm "$package"
    done
    # Where /lib is a link in the package's world, modules lie under usr.
    [ -d "$folder/root/lib/modules" ] || ln -s usr/lib "$folder/root/lib"
    version=$(basename "$(find "$folder/root/lib/modules" -mindepth 1 -maxdepth 1 | head -n 1)")
    depmod -b "$folder/root" "$version" || return 1
    python3 "$vm_here/unpack_kernel.py" "$folder/root/boot/vmlinuz-$version" "$folder/kernel" || return 1
    "$vm_here/initramfs.sh" "$folder/root" "$version" "$folder/initramfs.new" || return 1
    rm -rf "$folder/root"
    mv "$folder/initramfs.new" "$folder/initramfs"
}

# Prints the folder with `kernel` and `initramfs`. Safe to call from several processes at once.
vm_image() {
    local stamp folder
    stamp=$(cat "$vm_here"/{image.sh,initramfs.sh,guest-init.sh,guest-main.sh,unpack_kernel.py} | sha256sum | cut -c1-12)
    vm_cached "$stamp" && return 0
    if ! mkdir -p "$vm_cache" 2> /dev/null || [ ! -w "$vm_cache" ]; then # no home, or one that is not this user's
        vm_cache=$vm_here/../build/vm
        vm_cached "$stamp" && return 0
        mkdir -p "$vm_cache" || return 1
    fi
    (
        flock 8
        vm_cached "$stamp" && exit 0
        folder=$(mktemp -d "$vm_cache/new.XXXXXX") || exit 1
        if vm_build "$folder" >&2; then
            mv "$folder" "$vm_cache/$(uname -m)-$stamp" && vm_cached "$stamp"
        else
            rm -rf "$folder"
            exit 1
        fi
    ) 8> "$vm_cache/lock"
}

#!/usr/bin/env bash
# initramfs.sh KERNEL_ROOT VERSION OUT: the first file system: busybox, the modules to reach this machine's root by
# 9p, and those of Soft-RoCE. crc32_generic is needed for rdma_rxe, and modules.dep does not say so. Newer kernels, as Ubuntu 26.04's, have it built in.
set -eu -o pipefail
kernel_root=$1 version=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d); trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{bin,proc,sys,dev,lower,upper,root,modules}
cp "$(command -v busybox)" "$tree/bin/busybox"
for word in cp insmod ln mkdir mount switch_root; do # what guest-init.sh runs; the guest would take longer to link all
    ln -s busybox "$tree/bin/$word"
done
cp "$here/guest-init.sh" "$tree/init"
cp "$here/guest-main.sh" "$tree/main"
chmod +x "$tree/init"

# Copies modules and what they need, in the order of loading, and lists them.
add() {
    local list=$1 module file name
    shift
    for module; do
        modprobe -d "$kernel_root" -S "$version" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
        name=$(basename "$file")
        case $name in
        *.zst) zstd -dqf "$file" -o "$tree/modules/${name%.zst}"; name=${name%.zst} ;;
        *.xz) xz -dc "$file" > "$tree/modules/${name%.xz}"; name=${name%.xz} ;;
        *) strip --strip-debug -o "$tree/modules/$name" "$file" ;;
        esac
        grep -qsx "$name" "$tree/modules/first" "$tree/modules/second" || echo "$name" >> "$tree/modules/$list"
    done
}
add first virtio_pci virtio_console 9p 9pnet_virtio overlay
# shellcheck disable=SC2046 # no word, or one
add second $(find "$kernel_root"/lib/modules/"$version"/ -name 'crc32_generic.ko*' -printf crc32_generic -quit) rdma_rxe ib_uverbs rdma_ucm dummy
(cd "$tree" && find . | cpio -o -H newc --quiet) > "$out"

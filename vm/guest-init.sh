#!/bin/busybox sh
# shellcheck shell=dash # the nearest to busybox's
# guest-init.sh: first process of the guest: loads modules, puts this machine's root under a memory-backed layer, and
# goes on there in guest-main.sh.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
load() { while read -r module; do insmod "/modules/$module" || echo "vm: insmod $module failed" > /dev/kmsg; done < "$1"; }
load /modules/first
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose root /lower || echo "vm: no 9p root" > /dev/kmsg
mount -t tmpfs -o size=75% tmpfs /upper
mkdir /upper/changes /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/changes,workdir=/upper/work overlay /root
mkdir -p /root/proc /root/sys /root/dev /root/run /root/tmp
mount -t tmpfs tmpfs /root/run
mkdir -p /root/run/share
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=none share /root/run/share 2>/dev/null
load /modules/second
cp /main /root/run/main
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
mkdir -p /root/dev/pts /root/dev/shm
ln -s /proc/self/fd /root/dev/fd
mount -t devpts devpts /root/dev/pts
mount -t tmpfs shm /root/dev/shm
exec switch_root /root /bin/bash /run/main

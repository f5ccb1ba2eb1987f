#!/bin/bash
# guest-main.sh: the guest with this machine's programs: makes two rails, runs the command, reports its status, ends.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8
for port in /sys/class/virtio-ports/*; do
    case $(<"$port/name") in
    vm.output) output=/dev/${port##*/} ;;
    vm.status) status=/dev/${port##*/} ;;
    esac
done
for word in $(</proc/cmdline); do
    case $word in vm.command=*) command=${word#*=} ;; esac
done
# On a busy machine the kernel may measure the TSC wrongly, and then all clocks run several times too fast, with
# every timeout of a test. The clock began as the RTC's, which the host drives: they must still agree. Else: once more.
# The time is taken before and after the RTC's, without starting a program, so that standing still meanwhile looks like no error.
printf -v before '%(%s)T' -1
rtc=$(</sys/class/rtc/rtc0/since_epoch)
printf -v after '%(%s)T' -1
[ -n "$rtc" ] && { [ $((before - rtc)) -gt 3 ] || [ $((rtc - after)) -gt 3 ]; } && {
    echo clock > "$status"
    echo b > /proc/sysrq-trigger
    sleep 10
}
exec </dev/null >"$output" 2>&1
echo rails > /proc/sys/kernel/hostname
ulimit -l unlimited
ulimit -n 65536
# A program takes long to start here: one makes all links, and one all devices.
links='link set lo up' devices=
for rail in 0 1; do
    # The MTU has room for RoCE's headers around a 4096-byte packet.
    links+="
link add rail$rail type dummy
address add 10.99.$rail.1/24 dev rail$rail
address add fd10:99:$rail::1/64 dev rail$rail nodad
link set rail$rail mtu 4200 up"
    devices+="link add rxe$rail type rxe netdev rail$rail
"
    echo "10.99.$rail.1 rail$rail" >> /etc/hosts
    export TEST_LINK${rail}_DOWN="ip link set rail$rail down" TEST_LINK${rail}_UP="ip link set rail$rail up"
done
# An address that outlives its link: tests take links down and up again.
echo 1 > /proc/sys/net/ipv6/conf/default/keep_addr_on_down
ip -batch - <<< "$links"
rdma -b - <<< "$devices"
echo start > "$status"
# shellcheck source=/dev/null # vm/run writes it
(. "$command") # in a copy of this bash, which is there already
result=$?
exec >/dev/null 2>&1
echo "status $result" > "$status"
echo b > /proc/sysrq-trigger   # with -no-reboot qemu ends at once
sleep 10

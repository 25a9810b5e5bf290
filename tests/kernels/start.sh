#!/bin/sh
# The first process of a machine: runs inside.py, whose answer leaves over the serial line that /line names, and ends the machine.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/project
mount -t proc none /proc
mount -t sysfs none /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
for place in /dev/shm /tmp /run; do mount -t tmpfs none $place; done
ip link set lo up
line=/dev/$(cat /line)
exec 3> "$line" # open for all the time: what is set stays
stty -F "$line" raw
[ ! -d /built ] || export NETINIT_PLUGIN=/built/netinit-cni NETINIT_LAUNCHER=/built/netinit NETINIT_EXECUTABLE=/built/executable # of this machine
export NETINIT_PROBE_SECONDS=5 # of an emulated clock, on which waiting takes no time; the kernel asks for a neighbour's address again after one
cd /project
python3 tests/kernels/inside.py "$line" "$(cat /parts)"
stty -F "$line" sane # waits until all of it has left
echo b > /proc/sysrq-trigger
sleep 10

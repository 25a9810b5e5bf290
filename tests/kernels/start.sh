#!/bin/sh
# The first process of a machine: runs inside.py, whose answer leaves over the second serial line, and ends the machine.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/project
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
for place in /dev/shm /tmp /run; do mount -t tmpfs none $place; done
ip link set lo up
exec 3> /dev/ttyS1 # open for all the time: what is set stays
stty -F /dev/ttyS1 raw
cd /project
python3 tests/kernels/inside.py /dev/ttyS1 "$(cat /parts)"
stty -F /dev/ttyS1 sane # waits until all of it has left
echo b > /proc/sysrq-trigger
sleep 10

# The first process of a machine, after the start: runs inside.py, writes its answer to the last disk, and ends the machine.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/project
mount -t tmpfs none /tmp
mount -t tmpfs none /run
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
ip link set lo up
cd /project
python3 tests/kernels/inside.py /dev/vdd "$1"
sync
echo b > /proc/sysrq-trigger
sleep 10

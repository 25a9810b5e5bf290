# Makes ROOT the root of this process, in whose namespaces nothing of the machine's is changed, and runs inside.py there.
# sh enter.sh ROOT PROJECT ANSWER PARTS [EXECUTABLE]
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind "$2" "$1/project"
mount -o remount,bind,ro "$1/project"
mount -t proc none "$1/proc"
mount -t sysfs none "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs none "$1/tmp"
mount -t tmpfs none "$1/run"
touch "$1/tmp/answer"
mount --bind "$3" "$1/tmp/answer"
[ -z "${5:-}" ] || touch "$1/tmp/executable"
[ -z "${5:-}" ] || mount --bind "$5" "$1/tmp/executable"
ip link set lo up
cd "$1"
mkdir -p run/old
pivot_root . run/old
umount -l /run/old
cd /project
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/project \
  ${5:+NETINIT_EXECUTABLE=/tmp/executable} python3 tests/kernels/inside.py /tmp/answer "$4"

#!/usr/bin/env bash
# Slurm epilog, run as root on each node of a job after it ended: takes away what prolog.sh mounted.
# Name it in slurm.conf: Epilog=/etc/slurm/presagio-epilog.sh
set -u

# As in prolog.sh.
PRESAGIO_ROOT=${PRESAGIO_ROOT:-/presagio}
PRESAGIO_RUN=${PRESAGIO_RUN:-/run/presagio-jobs}

job=${SLURM_JOB_ID:?}
root=$(realpath -e "$PRESAGIO_ROOT" 2>/dev/null) || exit 0
dir=$root/$job

# Root may not look into another user's FUSE mount, so mountpoint(1) cannot say: the kernel's table does.
is_mounted() {
    local at
    while read -r _ _ _ _ at _; do
        printf -v at %b "$at" # a space is \040 there
        [ "$at" = "$dir" ] && return 0
    done </proc/self/mountinfo
    return 1
}

# By the kernel: what is still in use there goes when its user does. The process that serves it then ends by itself.
if is_mounted; then
    umount "$dir" || umount --lazy "$dir"
fi
pid=$(cat "$PRESAGIO_RUN/$job.pid" 2>/dev/null)
serves() { [ "$(cat "/proc/${pid:-none}/comm" 2>/dev/null)" = runuser ]; }
for _ in $(seq 100); do
    serves || break
    sleep 0.1
done
serves && kill "$pid"
# Who was killed may still be leaving.
for _ in $(seq 100); do
    is_mounted || break
    sleep 0.1
done

rmdir "$dir" 2>/dev/null
rm -f "$PRESAGIO_RUN/$job.pid" "$PRESAGIO_RUN/$job.log"
exit 0

#!/usr/bin/env bash
# Slurm epilog, run as root on each node of a job after it ended: takes away what prolog.sh mounted.
# Name it in slurm.conf: Epilog=/etc/slurm/presagio-epilog.sh
set -u

# As in prolog.sh.
PRESAGIO_ROOT=${PRESAGIO_ROOT:-/presagio}
PRESAGIO_RUN=${PRESAGIO_RUN:-/run/presagio-jobs}

job=${SLURM_JOB_ID:?}
dir=$PRESAGIO_ROOT/$job

# By the kernel: what is still in use there goes when its user does. The process that serves it then ends by itself.
if mountpoint -q "$dir"; then
    umount "$dir" || umount --lazy "$dir"
fi
pid=$(cat "$PRESAGIO_RUN/$job.pid" 2>/dev/null)
serves() { [ "$(cat "/proc/${pid:-none}/comm" 2>/dev/null)" = runuser ]; }
for _ in $(seq 100); do
    serves || break
    sleep 0.1
done
serves && kill "$pid"

rmdir "$dir" 2>/dev/null
rm -f "$PRESAGIO_RUN/$job.pid" "$PRESAGIO_RUN/$job.log"
exit 0

#!/usr/bin/env bash
# Slurm prolog, run as root on each node of a job before it begins: mounts what the I/O nodes serve, for this job's user,
# at $PRESAGIO_ROOT/$SLURM_JOB_ID. Name it in slurm.conf: Prolog=/etc/slurm/presagio-prolog.sh
#
# A failure here never keeps a job from running: without the mount it uses the file system as it always did.
set -u

# What your site wants to change.
PRESAGIO_NODES=${PRESAGIO_NODES:-tcp:io1:5640,tcp:io2:5640} # the I/O nodes
PRESAGIO_ROOT=${PRESAGIO_ROOT:-/presagio}                   # where jobs find their mounts
PRESAGIO_RUN=${PRESAGIO_RUN:-/run/presagio-jobs}            # who serves them
PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin${PRESAGIO_PATH:+:$PRESAGIO_PATH}

job=${SLURM_JOB_ID:?}
user=${SLURM_JOB_USER:?}

mkdir -p "$PRESAGIO_RUN" "$PRESAGIO_ROOT" || exit 0
root=$(realpath "$PRESAGIO_ROOT") || exit 0
dir=$root/$job
install -d -m 0700 -o "$user" "$dir" || exit 0

# Root may not look into another user's FUSE mount, so mountpoint(1) cannot say: the kernel's table does.
is_mounted() {
    local at
    while read -r _ _ _ _ at _; do
        printf -v at %b "$at" # a space is \040 there
        [ "$at" = "$dir" ] && return 0
    done </proc/self/mountinfo
    return 1
}

# As the job's user: what it proves to the nodes is who it is. In a session of its own: it outlives this script.
setsid runuser -u "$user" -- presagio mount "$PRESAGIO_NODES" "$dir" \
    </dev/null >"$PRESAGIO_RUN/$job.log" 2>&1 &
echo $! >"$PRESAGIO_RUN/$job.pid"

# The job begins when the mount is there, or without it.
for _ in $(seq 100); do
    is_mounted && exit 0
    kill -0 "$(cat "$PRESAGIO_RUN/$job.pid")" 2>/dev/null || break
    sleep 0.1
done
logger -t presagio "job $job runs without its mount: $(tail -n 1 "$PRESAGIO_RUN/$job.log")" 2>/dev/null
exit 0

#!/usr/bin/env bash
# Slurm task prolog, run as the user before each task: what it prints as "export NAME=VALUE" is the task's environment.
# Name it in slurm.conf: TaskProlog=/etc/slurm/presagio-task-prolog.sh
#
# Tells the job where its mount is, if prolog.sh made one.
set -u
dir=${PRESAGIO_ROOT:-/presagio}/${SLURM_JOB_ID:?}
if mountpoint -q "$dir"; then
    echo "export PRESAGIO_MOUNT=$dir"
fi

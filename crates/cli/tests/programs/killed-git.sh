#!/bin/bash
# Clones and commits in $FAR while its node is killed, until there is $OUTSIDE/stop. git gives up where nobody can tell
# (EIO), says so, and can be asked again; what it said is done is done.
set -euo pipefail
export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e@x GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e@x
git init -q "$OUTSIDE/source"; cd "$OUTSIDE/source"
for i in $(seq 40); do mkdir -p d$((i%7)); head -c $((i*900)) /dev/urandom > d$((i%7))/f$i; done
git add -A; git commit -qm one
cd "$FAR"
again() { # a command, after what it left of its last attempt was removed
    for attempt in $(seq 10); do
        if "$@" 2>> "$OUTSIDE/errors"; then return 0; fi
        # That may fail like anything else.
        rm -rf "$PWD/.git/index.lock" "$PWD/.git/HEAD.lock" "$PWD"/.git/refs/heads/*.lock 2>> "$OUTSIDE/errors" || true
    done
    return 1
}
say() { echo "$1" > "$2"; }
clone() { rm -rf "$1"; git clone -q "$OUTSIDE/source" "$1"; }
n=0
while [ ! -e "$OUTSIDE/stop" ]; do
    n=$((n + 1))
    again clone clone$n; cd clone$n
    git fsck --full --strict 2>> "$OUTSIDE/errors"
    for k in 1 2 3; do
        # To cut a file is to be done once, too.
        again say "$n $k" d1/f1; again git add -A
        again git commit -qm "commit $k" --allow-empty
    done
    test "$(git rev-list --count HEAD)" -ge 4
    git fsck --full; test -z "$(git status --porcelain)"; test "$(cat d1/f1)" = "$n 3"
    diff -r --exclude=.git --exclude=f1 . "$OUTSIDE/source"
    cd ..
done
echo $n clones

#!/bin/bash
# Three programs write to one database in $FAR while its node is killed, until there is $OUTSIDE/stop. What SQLite said is
# committed must be there. If the node cannot tell (EIO), SQLite says so, and its caller does it again.
set -euo pipefail
cd "$FAR"
until sqlite3 db 'create table if not exists t(w integer, i integer, b blob, primary key(w, i));' 2>> "$OUTSIDE/errors"; do
    sleep 0.1
done
writer() {
    local i=0
    while [ ! -e "$OUTSIDE/stop" ]; do
        i=$((i + 1))
        until sqlite3 -cmd '.timeout 60000' db \
            "insert or ignore into t values ($1, $i, randomblob(3000)); select 1;" \
            > "$OUTSIDE/said$1" 2>> "$OUTSIDE/errors"; do sleep 0.1; done
        echo $i > "$OUTSIDE/committed$1"
    done
}
for w in 1 2 3; do writer $w & done; wait
test "$(sqlite3 db 'pragma integrity_check;')" = ok
for w in 1 2 3; do
    test "$(sqlite3 db "select count(*), max(i) from t where w=$w;")" = \
        "$(cat "$OUTSIDE/committed$w")|$(cat "$OUTSIDE/committed$w")"
done
echo committed: $(cat "$OUTSIDE"/committed*)
if grep -vE 'disk I/O error|locked' "$OUTSIDE/errors"; then echo "is said of it too"; exit 1; fi

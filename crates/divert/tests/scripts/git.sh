# A repository and clones of it. $1 is where.
set -e
cd "$1"
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 LC_ALL=C
export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main repo
cd repo
mkdir -p src/deep
for i in $(seq 20); do
    echo "file $i" > src/f$i
    seq $i 500 > src/deep/g$i
done
git add .
git commit -q -m one
git mv src/f1 src/f01
echo x >> src/f2
rm src/f3
git commit -q -a -m two
git log --format=%H
git status --short
git checkout -q -b other
echo o > src/f4
git commit -q -a -m three
git checkout -q main
git merge -q --no-edit other
git rev-parse HEAD HEAD^{tree}
echo dirty >> src/f5
git stash -q
git stash pop -q
git diff --stat
git checkout -q .
git gc -q
git fsck --full
cd ..
git clone -q repo clone
git clone -q --no-local repo copy
for one in clone copy; do
    git -C $one fsck
    git -C $one rev-parse HEAD
    git -C $one status --short
    diff -r repo/src $one/src
done
echo pushed > clone/new
git -C clone add new
git -C clone commit -q -m four
git -C clone push -q origin main:pushed
git -C repo log --format='%H %s' pushed | head -n 1
git -C copy pull -q origin pushed
cat copy/new
git -C copy grep -c 499 | sort | tail -n 1
rm -rf repo/.git clone/.git copy/.git

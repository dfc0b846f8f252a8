# What shells do themselves: redirections, pipes, here-documents, `cd`, globbing. $1 is where.
cd "$1" || exit 1
pwd
mkdir -p d/e/f
cd d/e
pwd
/bin/pwd
echo hi > f/x
cat f/x
cat < f/x
echo more >> f/x
cat f/x | wc -c
cat <<END > here
line1
line2 $((1 + 2))
END
cat here
ls -1
echo *
echo f/*
echo ../*/f/x
echo "$1"/*/e/h*
cd f
cd ..
cd -
pwd
cd ../../..
pwd
for i in 1 2 3; do echo $i; done > loop
cat loop
while read -r line; do echo "got $line"; done < loop
exec 3> fd3
echo three >&3
exec 3>&-
cat fd3
exec 4< loop
read -r a <&4
read -r b <&4
echo $a $b
exec 4<&-
exec 5<> loop
read -r a <&5
echo over >&5
exec 5>&-
cat loop
(echo sub; ls) > sub
cat sub
{ echo e1 >&2; ls /nonexistent; } 2> errs
cat errs
mv loop loop2
ln -s loop2 sl
ln loop2 hl
ls -1
readlink sl
cat sl hl
[ -f loop2 ] && echo isfile
[ -d d ] && echo isdir
[ -L sl ] && echo islink
[ -x loop2 ] || echo notx
test d/e/f/x -nt /etc/passwd && echo newer
set -o noclobber 2> /dev/null || set -C
(echo no > loop2) 2> /dev/null || echo kept
set +C
umask 027
touch u
mkdir ud
stat -c '%a %n' u ud
printf '#!/bin/sh\necho script $0 $1; pwd\n' > run.sh
chmod +x run.sh
./run.sh arg
(cd d && ../run.sh arg)
printf 'echo no interpreter $1\n' > bare
chmod +x bare
./bare arg
cp /bin/echo ./ownecho
./ownecho a program
PATH=$1:$PATH
ownecho found "in the path"
echo "$(cat loop2)" "$(./run.sh sub)" > captured
cat captured
. ./bare sourced
(sleep 0.1; echo late > background) &
wait
cat background
ls none 2>&1
mkdir q/r 2>&1
cd none 2> /dev/null || echo no such place
tail -n +2 loop2 | (cd d; cat > tailed; wc -l < tailed)
cat /dev/stdin < loop2

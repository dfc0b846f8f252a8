# What file utilities do. $1 is where.
set -e
cd "$1"
export LC_ALL=C
mkdir -p t/a/b
seq 1000 > t/a/1
seq 5000 > t/a/b/2
ln -s a/1 t/l
ln t/a/1 t/h
mkfifo t/fifo
touch -d 2001-02-03T04:05:06.123456789 t/a/1
chmod 640 t/a/b/2
tar cf t.tar t
mkdir out
tar xpf t.tar -C out
diff -r --no-dereference t/a out/t/a
ls -l --full-time out/t/a/1 | awk '{print $1,$6,$7}'
readlink out/t/l
stat -c '%h %F %a' out/t/h out/t/fifo
tar czf t.tgz t
tar tzf t.tgz | sort
tar df t.tar
rm t/fifo out/t/fifo t.tar t.tgz
cp -a t t2
diff -r t t2
cp -r t/a t3
mv t3 t4
mv t4/1 t4/one
ls -1R t4
ls -lR --time-style=+%s t/a/b | awk '{print $1,$2,$5,$7}'
mkdir m
mv t4 m
find m | sort
find . -name 2 -type f | sort
find . -type l -printf '%p %l\n' | sort
find t -newer t/a/1 -type d | sort
find t -maxdepth 2 -empty
find t -type f -exec wc -l {} + | sort
find t2 -delete
cp -al t t5
stat -c %h t/a/b/2
rm -rf t5 m out
du --apparent-size -b t/a/b/2
chmod -R go-w t
chown -R 0:0 t || true
touch -r /etc/passwd t/a/1
stat -c %Y t/a/1 | cmp - <(stat -c %Y /etc/passwd)
truncate -s 100 cut
stat -c %s cut
dd if=t/a/b/2 of=copied bs=777 status=none
cmp t/a/b/2 copied
dd if=/dev/zero of=copied bs=10 count=3 seek=5 conv=notrunc status=none
md5sum copied
cat t/a/1 | tee -a copied t6 | wc -c
md5sum copied
sed -i s/1/one/ t/a/1
head -n 3 t/a/1
tail -n 2 t/a/1
seq 100000 | sort -R --random-source=/dev/zero | sort -n -S 1M -T . > sorted
sort -r sorted -o sorted
md5sum sorted
awk '{s += $1} END {print s > "awkout"}' sorted
cat awkout
split -n 4 sorted part.
cat part.* | cmp - sorted
perl -e 'open F, "+<", "sorted"; seek F, 10, 0; print F "perl"; close F; open F, "sorted"; read F, $x, 20; print $x'
grep -c 7 sorted
xargs -a sorted -n 1000 echo | wc -l
install -m 750 t/a/1 installed
stat -c %a installed
csplit -s sorted 5 10
cat xx00
paste xx00 xx00
uniq xx00 u
gzip -k u
zcat u.gz
gunzip -f u.gz
tac u
cp --reflink=auto --sparse=always sorted sparse
cmp sorted sparse
mkdir -p s/1 s/2
rsync -a t/ r1/
diff -r t r1
echo change >> t/a/1
rsync -a --delete --checksum t/ r1/
diff -r t r1
rsync -ai t/ r1/
rsync -a --inplace r1/ r2/
diff -r r1 r2
rm -r s
ls -1
rm -rf r1 r2 part.* t

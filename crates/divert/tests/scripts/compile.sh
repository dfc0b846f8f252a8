# Programs are compiled and run; a database is filled. $1 is where.
set -e
cd "$1"
export LC_ALL=C
cat > p.c <<'END'
#include <stdio.h>
#include "h.h"
int main(int count, char **arguments) {
    printf("%s %d %s\n", MESSAGE, count, arguments[count - 1]);
    FILE *file = fopen("made", "w");
    fprintf(file, "made %d\n", count);
    return fclose(file);
}
END
echo '#define MESSAGE "hello"' > h.h
gcc -O1 -o p p.c
./p 1 2
cat made
gcc -g -c p.c -o p.o
ar rcs library.a p.o
nm library.a | grep -c main
gcc p.o -o p2
./p2
cat > q.cc <<'END'
#include <fstream>
#include <iostream>
#include <string>
int main() {
    std::ofstream out("lines");
    for (int i = 0; i < 10000; i++)
        out << i << "\n";
    out.close();
    std::ifstream in("lines");
    std::string line;
    int count = 0;
    while (std::getline(in, line))
        count++;
    std::cout << count << std::endl;
    std::fstream both("lines", std::ios::in | std::ios::out | std::ios::binary);
    both.seekp(4);
    both << "XX";
    both.seekg(0);
    for (int i = 0; i < 4; i++)
        std::getline(both, line), std::cout << line << "\n";
    std::cerr << "an error\n";
}
END
g++ q.cc -o q
./q
./q > out 2> err
cat out err
printf 'all: x y\nx:\n\techo x > x\ny: x\n\tcp x y\n\t./p2 y\n' > Makefile
make -s
make -s
cat y
sqlite3 db.sqlite "create table t(a integer primary key, b text);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 3000) insert into t select x, hex(x * 7) from c;
select count(*), sum(length(b)) from t; create index i on t(b); pragma integrity_check;
delete from t where a % 3 = 0; vacuum; select count(*) from t;"
for i in 1 2 3 4; do
    sqlite3 -cmd '.timeout 60000' db.sqlite "begin immediate; insert into t select max(a) + 1, 'writer' from t; commit" &
done
wait
sqlite3 db.sqlite "select count(*) from t where b = 'writer'; pragma integrity_check"
sqlite3 db.sqlite .dump | md5sum
rm p p2 q *.o *.a db.sqlite

#!/bin/bash
# Makes docs/images/report.png anew, from the root of a checkout in which `make build` and `make test-needs` were made.
#
# Ten times over a program reads parts of a cold file at even distances, works on each, writes a result and works on that;
# `presagio run --report` says what that was, and the top of the page is the picture.
set -euo pipefail

presagio=${PRESAGIO:-$PWD/target/release/presagio}
root=$PWD
place=$(realpath "$(mktemp -d "${1:-.}/picture-XXXXXX")")
trap 'rm -rf "$place"' EXIT

cat > "$place/analysis.c" <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 10, BASKETS = 160, BASKET = 32 << 10, DISTANCE = 256 << 10, RESULT = 1 << 20 };
static char basket[BASKET], result[RESULT];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void work(double seconds) {
    double end = now() + seconds;
    while (now() < end)
        for (int i = 0; i < BASKET; i++) result[i] += basket[i];
}

__attribute__((noinline)) static void read_basket(int in, long number) {
    if (pread(in, basket, BASKET, number * DISTANCE) != BASKET) exit(1);
}

__attribute__((noinline)) static void write_histogram(int out) {
    if (write(out, result, RESULT) != RESULT) exit(1);
}

int main(int argc, char **argv) {
    int in = open(argv[1], O_RDONLY), out = open(argv[argc - 1], O_CREAT | O_TRUNC | O_WRONLY, 0644);
    for (long step = 0; step < STEPS; step++) {
        for (long n = 0; n < BASKETS; n++) {
            read_basket(in, step * BASKETS + n);
            work(0.0003);
        }
        write_histogram(out);
        work(0.06);
    }
    return 0;
}
C
cd "$place"
gcc -g -O1 -o analysis analysis.c
head -c 420000000 /dev/urandom > events.root
sync
# Nothing of it is in memory when the program begins.
dd if=events.root iflag=nocache count=0 status=none
"$presagio" run --no-model --report analysis.html -- ./analysis events.root histograms.out

cat > "$root/crates/cli/tests/browser/picture.tmp.mjs" <<'JS'
import { chromium } from 'playwright-core';
const [from, to] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 1280 }, colorScheme: 'light' });
await page.goto('file://' + from);
await page.waitForSelector('html[data-ready=true]');
// Down to the end of the timeline.
const end = await page.evaluate(() => document.getElementById('timeline').getBoundingClientRect().bottom);
await page.screenshot({ path: to, clip: { x: 0, y: 0, width: 1280, height: Math.ceil(end) + 16 } , fullPage: true });
await browser.close();
JS
trap 'rm -rf "$place" "$root/crates/cli/tests/browser/picture.tmp.mjs"' EXIT
node "$root/crates/cli/tests/browser/picture.tmp.mjs" "$PWD/analysis.html" "$root/docs/images/report.png"

// Opens a report in a browser as a person would: looks at every chart, hovers, clicks, types, resizes, prints.
//
//   node report.mjs PAGE.html FIGURES.json CHART,CHART,... [TEXTS.json]
//
// The charts may be none: "". FIGURES.json is what `presagio report --json` printed for the same input; TEXTS.json lists what a reader has to find when all is
// opened. Ends with status 0 if all is well, and says what is not otherwise.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';
import { legible } from './legible.mjs';
import { fault, shown_figures } from './written.mjs';

const [page_path, figures_path, charts, texts_path] = process.argv.slice(2);
const texts = texts_path ? JSON.parse(readFileSync(texts_path, 'utf8')) : [];
const figures = JSON.parse(readFileSync(figures_path, 'utf8'));
const expected = charts.split(',').filter(Boolean);
/** Figures that a page has at least; one of nothing has few. */
const FEW = expected.length ? 20 : 8;
/** Elements of a page with everything that its limits allow, and all of it unfolded. */
const NODES_MAX = 12_000;
const problems = [];
const check = (holds, what) => { if (!holds) problems.push(what); };

// The unit of a figure, by its place in the document.
const UNITS = [
  [/^comparison\.measures\.\d+\.values/, (path) => ({ ns: 'time', bytes: 'bytes', count: 'count', share: 'percent' })[figures.comparison.measures[path.split('.')[2]].unit]],
  [/_ns(\.\d+)?$|latencies\.\d+\.(min|median|p90|p99|max|mean)$|buckets\.\d+\.3$/, () => 'time'],
  [/(^|\.)bytes\w*$|\.(reach|memory|len)$|\.(read|written)\.\d+$|cells\.\d+\.[23]$|(sizes|strides)\.\d+\.0$|sizes\.\d+\.(min|median|p90|p99|max|mean)$/, () => 'bytes'],
  [/share$|confidence$|hit_ratio$|in_phases$|differs\.\d+$/, () => 'percent'],
  [/_times$/, () => 'times'],
  [/correlation\.\d+$/, () => 'value'],
  [/./, () => 'count'],
];
const unit = (path) => UNITS.find(([pattern]) => pattern.test(path))[1](path);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});

async function open(width, height, scheme) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  const name = `${width} px, ${scheme}`;
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) problems.push(`${name}: console: ${message.text()}`); });
  page.on('pageerror', (error) => problems.push(`${name}: ${error}`));
  page.on('dialog', (dialog) => { problems.push(`${name}: a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith('file:')) problems.push(`${name}: fetches ${request.url()}`); });
  await page.addInitScript(() => new MutationObserver(() => { if (document.documentElement?.dataset.ready) window.__ready ??= performance.now(); }).observe(document, { attributes: true, subtree: true }));
  await page.goto(pathToFileURL(page_path).href);
  await page.waitForSelector('html[data-ready=true]');
  return { context, page, name };
}

/** Every chart is there, has a size, and something is drawn on it. */
async function charts_render(page, name) {
  const drawn = await page.evaluate(() => [...document.querySelectorAll('[data-chart]')].map((chart) => {
    const box = chart.getBoundingClientRect();
    const canvas = chart.querySelector('canvas');
    let marks = chart.querySelectorAll('svg rect, .piece, .line').length;
    if (canvas && canvas.width) {
      // A copy: to read from the page's own canvas would make the browser complain.
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
      for (let i = 3; i < pixels.length; i += 4) if (pixels[i] > 0) marks++;
    }
    return { chart: chart.dataset.chart, width: box.width, height: box.height, marks };
  }));
  for (const wanted of expected) check(drawn.some((d) => d.chart === wanted), `${name}: no chart ${wanted}`);
  for (const d of drawn) check(d.width > 200 && d.height > 18 && d.marks > 0, `${name}: ${d.chart} is not drawn: ${JSON.stringify(d)}`);
}

async function fits(page, name) {
  const wide = await page.evaluate(() => [...document.querySelectorAll('main *, header *, footer *')].filter((node) => {
    if (node.closest('.scroll, .code, nav') || node.closest('svg')) return false;
    const box = node.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
  }).map((node) => `${node.tagName}.${node.className}`).slice(0, 5));
  check(wide.length === 0, `${name}: wider than the window: ${wide.join(', ')}`);
  const scrolls = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  check(!scrolls, `${name}: the page scrolls sideways`);
}

/** The steps of a program that are not calls, and the figures that each of them has to show. */
function* loop_figures(steps, path) {
  for (const [n, step] of steps.entries()) {
    const here = `${path}.${n}`;
    if (step.kind === 'more') yield `${here}.steps`;
    if (['loop', 'again'].includes(step.kind) && step.times > 1) yield `${here}.times`;
    if (['loop', 'again', 'more'].includes(step.kind)) yield `${here}.operations`;
    if (step.kind === 'loop') yield* loop_figures(step.body, `${here}.body`);
  }
}

/** What says something in words says its figures as figures: how often loops run, usual sizes, phases, and how well each part was foreseen. */
async function no_figure_is_left_out(page, name) {
  const shown = new Set((await shown_figures(page)).map((figure) => figure.path));
  const run = figures.runs[0], wanted = [];
  if (run.loops.length) wanted.push(...loop_figures(run.loops[0].steps, 'runs.0.loops.0.steps'));
  run.accesses.slice(0, 12).forEach(({ way }, n) => { if (way.sizes.length && way.sizes[0][1] * 2 > way.operations) wanted.push(`runs.0.accesses.${n}.way.sizes.0.0`); });
  if (run.phases.period && run.phases.count) wanted.push('runs.0.phases.count');
  if (run.prediction) wanted.push(...['context_share', 'offset_share', 'transfers'].map((key) => `runs.0.prediction.all.${key}`));
  run.prediction?.processes.slice(0, 12).forEach((_, n) => wanted.push(...['context_share', 'offset_share'].map((key) => `runs.0.prediction.processes.${n}.all.${key}`)));
  const missing = wanted.filter((path) => !shown.has(path));
  check(missing.length === 0, `${name}: not shown as figures: ${missing.slice(0, 5).join(', ')}`);
}

/** A card at the top: the figures that it shows, and what it says below the first. */
const card_of = (page, title) => page.evaluate((title) => { const stat = [...document.querySelectorAll('#overview .stat')].find((it) => it.firstChild.textContent === title); return stat && { figures: [...stat.querySelectorAll('[data-figure]')].map((it) => it.dataset.figure), note: stat.querySelector('small').textContent }; }, title);

/** A share is of what the page says that it is of: what nobody judged was not foreseen. */
async function shares_are_of_what_was_judged(page, name) {
  const { prediction, totals } = figures.runs[0];
  if (!prediction) return;
  const card = await card_of(page, 'Foreseen exactly'), { all, operations_without } = prediction;
  check(JSON.stringify(card?.figures) === JSON.stringify(['runs.0.prediction.all.right_share', 'runs.0.prediction.all.operations']) && /^of .* operations? that w(as|ere) judged$/.test(card.note), `${name}: the card of what was foreseen says ${JSON.stringify(card)}`);
  check(Math.abs(all.right_share * all.operations - all.right) <= all.operations * 1e-4, `${name}: ${JSON.stringify(all)} does not add up`);
  if (prediction.from === 'trace') check(all.operations + operations_without === totals.operations, `${name}: ${all.operations} judged and ${operations_without} not are not ${totals.operations}`);
  const shown = new Set((await shown_figures(page, '#prediction')).map((figure) => figure.path));
  check(operations_without === 0 || shown.has('runs.0.prediction.operations_without'), `${name}: it is not shown how many operations nobody judged`);
}

/** A share that stands below a figure is one of that figure. */
async function captions_belong_to_their_figures(page, name) {
  const prefetch = figures.runs[0].prefetch;
  if (!prefetch || prefetch.useful_share === null) return;
  const card = await card_of(page, 'Loaded ahead');
  check(JSON.stringify(card.figures) === JSON.stringify(['runs.0.prefetch.bytes_loaded', 'runs.0.prefetch.useful_share']) && card.note.endsWith('of it then read'), `${name}: the card of what was loaded ahead says ${JSON.stringify(card)}`);
  check(Math.abs(prefetch.bytes_loaded * prefetch.useful_share - prefetch.bytes_useful) <= prefetch.bytes_loaded * 1e-4, `${name}: ${JSON.stringify(prefetch)} does not add up`);
}

/** A page is as large as its limits let it become, whatever was recorded: what is drawn once is drawn on a canvas, not as elements. */
async function stays_small(page, name) {
  const nodes = await page.evaluate(() => document.querySelectorAll('*').length);
  check(nodes <= NODES_MAX, `${name}: ${nodes} elements`);
  console.log(`${name}: ${nodes} elements`);
}

/** How long it took until the page was there, and takes to draw all charts anew: printed, and not judged. */
async function says_how_quick_it_is(page, name) {
  const [ready, drawn] = await page.evaluate(() => {
    const began = performance.now();
    for (const _ of [1, 2]) document.getElementById('theme').click();
    return [window.__ready, (performance.now() - began) / 2];
  });
  console.log(`${name}: ready after ${Math.round(ready)} ms, all charts drawn anew in ${Math.round(drawn)} ms`);
}

/** What a reader sees of each figure is the figure of the document under the path that it names, in the unit that it has. */
async function figures_equal(page, name, within = 'body', least = FEW) {
  const shown = await shown_figures(page, within);
  check(shown.length >= least, `${name}: only ${shown.length} figures`);
  for (const figure of shown) { const wrong = fault(figures, figure, unit); check(!wrong, `${name}: ${wrong}`); }
}

const is_tip_shown = (page) => page.evaluate(() => !document.getElementById('tip').hidden && document.getElementById('tip').textContent.length > 3);
// What scrolls hides the tip, and the page may still be scrolling to where the pointer or the focus is now: then it is tried again.
async function until_tip(page, again) {
  for (let tries = 0; tries < 50; tries++) {
    await again(tries);
    if (await is_tip_shown(page)) return true;
    await page.waitForTimeout(100);
  }
  return false;
}
const close_all = (page) => page.evaluate(() => document.querySelectorAll('.pinned .close').forEach((button) => button.click()));
/** The title of what was pinned in a chart's section since `close_all`. */
async function pinned_title(page, chart) {
  const title = page.locator(`section:has([data-chart="${chart}"]) .pinned h3`).first();
  await title.waitFor({ timeout: 20_000 }).catch(() => {});
  return await title.count() ? title.textContent() : null;
}
/** Where in a chart there is something to see. Of a map of a file, which has empty cells, the middle of the one that is nearest to its middle. */
async function place_in(page, chart, box) {
  if (chart !== 'heat') return [box.x + box.width * 0.5, box.y + Math.min(box.height * 0.5, 60)];
  const shown = await page.locator('[data-chart=heat] h3').textContent();
  const { heat } = figures.runs[0].files.find((file) => file.heat && file.name === shown);
  const from_middle = ([column, row]) => Math.hypot(column / heat.columns - 0.5, row / heat.rows - 0.5);
  const [column, row] = heat.cells.reduce((best, cell) => (from_middle(cell) < from_middle(best) ? cell : best));
  const left = box.width < 560 ? 62 : 84, bottom = box.height - 22;
  return [box.x + left + (column + 0.5) * (box.width - left) / heat.columns, box.y + bottom - (row + 0.5) * bottom / heat.rows];
}

async function hover_and_click(page, name) {
  for (const chart of expected) {
    const holder = page.locator(`[data-chart="${chart}"]`).first();
    const target = holder.locator('canvas, svg .hit, .piece, button.line').first();
    if (await target.count() === 0) { check(false, `${name}: nothing to hover in ${chart}`); continue; }
    // What is closed makes the page shorter: charts below it move.
    await close_all(page);
    await target.scrollIntoViewIfNeeded();
    const box = await target.boundingBox();
    const point = await place_in(page, chart, box);
    await page.mouse.move(...point);
    if (chart !== 'loops') {
      const is_shown = await until_tip(page, (tries) => page.mouse.move(point[0], point[1] + tries % 2));
      check(is_shown, `${name}: hovering over ${chart} shows nothing`);
      if (!is_shown) continue;
      const tip = await page.locator('#tip').boundingBox();
      const window_width = page.viewportSize().width;
      check(tip && tip.x >= 0 && tip.x + tip.width <= window_width + 1, `${name}: the tip of ${chart} leaves the window`);
      await figures_equal(page, `${name}: the tip of ${chart}`, '#tip', chart === 'heat' ? 2 : 1);
    }
    await page.mouse.click(...point);
    const title = await pinned_title(page, chart);
    check(title, `${name}: clicking on ${chart} shows no evidence`);
    if (chart === 'lanes') check(figures.runs[0].timeline.lanes.some((lane) => lane.label === title), `${name}: clicking on a process shows “${title}”`);
    await figures_equal(page, `${name}: the evidence of ${chart}`, `section:has([data-chart="${chart}"]) .pinned`, chart === 'heat' ? 2 : 1);
  }
}

async function findings_lead_to_evidence(page, name) {
  const count = await page.locator('.finding').count();
  check(count >= 1, `${name}: no findings`);
  for (let n = 0; n < count; n++) {
    const finding = page.locator('.finding').nth(n);
    await finding.click();
    const box = page.locator('.findings > li').nth(n).locator('.evidence');
    check(await box.isVisible(), `${name}: finding ${n} shows no evidence`);
    check(await box.locator('[data-figure]').count() > 0, `${name}: finding ${n} has no figures`);
    const go = box.locator('[data-goto]');
    if (await go.count() === 0) continue;
    const section = await go.getAttribute('data-goto');
    await go.click();
    check(await page.evaluate(() => document.getAnimations().length) === 0, `${name}: something moves, though the reader wants no motion`);
    const focused = await page.evaluate(() => document.activeElement.id);
    check(focused === section, `${name}: finding ${n} leads to ${focused}, not ${section}`);
  }
}

async function keyboard(page, name) {
  if (expected.includes('activity')) await zooms_by_keys(page, name);
  // Arrows go through a chart, or the focus shows what has it; Enter shows the evidence.
  for (const chart of expected) {
    const target = page.locator(`[data-chart="${chart}"]`).first().locator('canvas, svg.plot, .piece, button.line').first();
    await close_all(page);
    await target.focus();
    if (chart !== 'loops') {
      const arrow = chart === 'lanes' ? 'ArrowDown' : 'ArrowRight';
      const is_shown = await until_tip(page, async () => { await target.evaluate((node) => node.blur()); await target.focus(); await page.keyboard.press(arrow); });
      check(is_shown, `${name}: keys show nothing in ${chart}`);
    }
    await page.keyboard.press('Enter');
    check(await pinned_title(page, chart), `${name}: Enter shows no evidence in ${chart}`);
  }
  for (const table of ['accesses', 'files', 'latencies']) {
    const row = page.locator(`#${table} tr.pick`).first();
    if (await row.count() === 0) continue;
    await close_all(page);
    await row.focus();
    await page.keyboard.press('Enter');
    const is_chosen = table === 'files' ? await row.getAttribute('aria-selected') === 'true' : await page.locator(`#${table} .pinned h3`).first().isVisible();
    check(is_chosen, `${name}: Enter does not choose a row of ${table}`);
  }
}

/** Lists that are cut say so, and can be had whole. */
async function unfolds(page, name) {
  const run = figures.runs[0];
  const lists = { accesses: run.accesses, files: run.files, slowest: run.slowest, processes: run.prediction?.processes, waits: run.prefetch?.waits, decided: run.prefetch && run.decided, phases: run.phases.phases };
  const more = page.locator('section .button').filter({ hasText: /^Show (all )?\d/ });
  while (await more.count() > 0) await more.first().click();
  for (const [list, all] of Object.entries(lists)) {
    const rows = await page.locator(`[data-list=${list}] > *`).count();
    // One phase is no list.
    check(rows === (all?.length ?? 0) || all?.length === 1, `${name}: all ${list} are ${rows} of ${all?.length}`);
  }
  const { count, phases } = run.phases;
  if (phases.length < count) check((await page.locator('#phases').innerText()).includes(`The first ${phases.length} of ${count} are listed`), `${name}: it is not said that there are more phases`);
}

/** Reads go up to the highest of reads, and writes down to that of writes; runs that are compared share both scales. */
async function scales_are_right(page, name) {
  const drawn = await page.evaluate(() => [...document.querySelectorAll('canvas[data-scale]')].map((node) => {
    const copy = new OffscreenCanvas(node.width, node.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(node, 0, 0);
    const { data } = copy.getImageData(0, 0, node.width, node.height), ratio = node.width / node.clientWidth;
    const chart = node.closest('[data-chart]').dataset.chart, left = Math.ceil((chart === 'activity' ? 168 : 104) * ratio);
    // How far bars of a colour reach from the middle, right of the labels.
    const reach = (name) => {
      const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim(), colour = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
      const is_it = (x, y) => colour.every((part, n) => data[(y * node.width + x) * 4 + n] === part) && data[(y * node.width + x) * 4 + 3] === 255;
      const rows = Array.from({ length: node.height }, (_, y) => y).filter((y) => { for (let x = left; x < node.width; x++) if (is_it(x, y)) return true; return false; });
      return rows.length / ratio;
    };
    return { chart, scale: node.dataset.scale, read: reach('--read'), write: reach('--write'), half: node.clientHeight / 2 };
  }));
  const runs = drawn.filter((it) => it.chart.startsWith('run-'));
  check(new Set(runs.map((it) => it.scale)).size <= 1, `${name}: runs are on different scales: ${JSON.stringify(runs)}`);
  for (const key of ['read', 'write']) {
    for (const it of drawn.filter((it) => it.chart === 'activity' && it[key] > 0)) check(it[key] > it.half * 0.8, `${name}: ${key}s are not on a scale of their own: ${JSON.stringify(it)}`);
    if (runs.length) check(Math.max(...runs.map((it) => it[key])) > runs[0].half * 0.8, `${name}: no run reaches the top of the scale of all: ${JSON.stringify(runs)}`);
  }
  const [slow, fast] = ['slow', 'fast'].map((word) => runs.find((_, n) => figures.runs[n].name.includes(word)));
  if (slow && fast) check(slow.read < fast.read * 0.7, `${name}: a run that reads half as much looks the same: ${JSON.stringify(runs)}`);
}

async function zooms_by_keys(page, name) {
  const chart = page.locator('[data-chart=activity] canvas');
  await chart.focus();
  check(await until_tip(page, () => page.keyboard.press('ArrowRight')), `${name}: an arrow key shows nothing`);
  await page.keyboard.press('+');
  check(await page.locator('#timeline').getByText('Show all').isVisible(), `${name}: plus does not zoom`);
  await page.keyboard.press('Enter');
  check(await page.locator('#timeline .pinned dl').isVisible(), `${name}: Enter shows nothing`);
  await page.keyboard.press('Escape');
  check(!await page.locator('#timeline').getByText('Show all', { exact: true }).isVisible(), `${name}: Escape does not show all`);
  await page.keyboard.press('Tab');
  const next = await page.evaluate(() => document.activeElement.tagName);
  check(next !== 'BODY', `${name}: Tab leads nowhere`);
}

/** On paper charts keep their shape, and no column is missing. */
async function prints(page) {
  await page.emulateMedia({ media: 'print' });
  check(!await page.locator('nav').isVisible(), 'the navigation is printed');
  const pdf = await page.pdf({ format: 'A4' });
  check(pdf.length > 10_000, `the printed page has ${pdf.length} bytes`);
  // A sheet of A4 is 718 pixels wide between its margins; nothing is drawn anew for it.
  const bent = await page.evaluate(() => {
    document.body.style.width = '718px';
    const canvases = [...document.querySelectorAll('canvas')].filter((node) => node.clientWidth > 0);
    const bent = canvases.filter((node) => Math.abs(node.clientHeight / node.clientWidth - node.height / node.width) > 0.02);
    document.body.style.width = '';
    return [canvases.length, bent.map((node) => node.getAttribute('aria-label'))];
  });
  check((bent[0] > 0 || !expected.includes('activity')) && bent[1].length === 0, `the paper bends ${bent[1]}`);
  await page.setViewportSize({ width: 718, height: 1000 });
  const hidden = await page.evaluate(() => [...document.querySelectorAll('.wide')].filter((node) => getComputedStyle(node).display === 'none').length);
  check(hidden === 0, `${hidden} cells are not printed`);
}

/** What a reader has to find, when call stacks of all accesses were opened one after the other. */
async function every_text_is_there(page, name) {
  if (texts.length === 0) return;
  let seen = await page.locator('main').innerText();
  for (const row of await page.locator('#accesses tr.pick').all()) {
    await row.click();
    seen += await page.locator('#accesses .pinned').innerText();
  }
  for (const text of texts) check(seen.includes(text), `${name}: nowhere is “${text}”`);
}

async function theme(page, name) {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await ground();
  await page.locator('#theme').click();
  check(before !== await ground(), `${name}: the theme does not change`);
  await legible(page, name + ', other theme', check);
  await charts_render(page, name + ', other theme');
}

async function nothing_was_injected(page, name) {
  const found = await page.evaluate(() => ({ ran: window.__injected !== undefined, scripts: document.scripts.length, images: document.images.length, frames: window.frames.length, links: [...document.links].filter((a) => !a.getAttribute('href').startsWith('#')).length }));
  check(JSON.stringify(found) === JSON.stringify({ ran: false, scripts: 2, images: 0, frames: 0, links: 0 }), `${name}: something was injected: ${JSON.stringify(found)}`);
}

for (const [width, height, scheme] of [[1280, 900, 'light'], [390, 844, 'dark']]) {
  const { context, page, name } = await open(width, height, scheme);
  await says_how_quick_it_is(page, name);
  await charts_render(page, name);
  if (width === 1280) await scales_are_right(page, name);
  await fits(page, name);
  await figures_equal(page, name);
  await captions_belong_to_their_figures(page, name);
  await shares_are_of_what_was_judged(page, name);
  await no_figure_is_left_out(page, name);
  await legible(page, name, check);
  await findings_lead_to_evidence(page, name);
  await hover_and_click(page, name);
  await keyboard(page, name);
  await unfolds(page, name);
  await figures_equal(page, name + ', all opened');
  await stays_small(page, name + ', all opened');
  await fits(page, name + ', all opened');
  await every_text_is_there(page, name);
  const runs = await page.locator('.runs button').count();
  for (let n = 1; n < runs; n++) {
    await page.locator('.runs button').nth(n).click();
    await figures_equal(page, `${name}, run ${n}`);
    await fits(page, `${name}, run ${n}`);
  }
  await theme(page, name);
  await nothing_was_injected(page, name);
  if (width === 1280) await prints(page);
  await context.close();
}
await browser.close();
if (problems.length) { console.error(problems.slice(0, 30).join('\n')); process.exit(1); }
console.log('all is well');

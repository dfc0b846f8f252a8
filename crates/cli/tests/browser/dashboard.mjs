// Opens a live dashboard in a browser as an administrator would, while what it shows is switched, killed and started again.
//
//   node dashboard.mjs URL PLAN.json
//
// PLAN.json: { node, arms: [two policies], token (if there is one), wrong_token }. What has to be done to the service meanwhile
// is said on stdout as a line "! WHAT", and done when a line comes back on stdin: "order ARM", "kill", "start". Ends with status 0 if
// all is well, and says what is not otherwise.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';
import { legible } from './legible.mjs';
import { fault, shown_figures } from './written.mjs';

const [url, plan_path] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(plan_path, 'utf8'));
const LONG = 120_000;
const problems = [];
const check = (holds, what) => { if (!holds) problems.push(what); };
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function please(what) { console.log('! ' + what); await answers.next(); }

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
  timeout: LONG,
});

/** `told` is what the page is told instead of what the service says, again and again. `quiet` is whether the service stays where it is. */
async function open(width, height, scheme, told) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(LONG);
  page.setDefaultNavigationTimeout(LONG);
  const state = { page, context, name: `${width} px, ${scheme}${told ? ', told' : ''}`, quiet: true, told };
  page.on('console', (message) => { if (state.quiet && ['error', 'warning'].includes(message.type())) problems.push(`${state.name}: console: ${message.text()}`); });
  page.on('pageerror', (error) => problems.push(`${state.name}: ${error}`));
  page.on('dialog', (dialog) => { problems.push(`${state.name}: a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(url) && !request.url().startsWith('data:')) problems.push(`${state.name}: fetches ${request.url()}`); });
  // The page itself notes with which event, and when, it shows another policy.
  await page.addInitScript((node) => {
    window.__events = 0;
    window.__shown = [];
    const note = () => {
      const policy = [...document.querySelectorAll('[data-node]')].find((it) => it.dataset.node === node)?.querySelector('[data-policy]').textContent;
      if (policy !== window.__shown.at(-1)?.policy) window.__shown.push({ policy, event: window.__events, at: Date.now() });
    };
    const Real = window.EventSource;
    window.EventSource = class extends Real { addEventListener(kind, f) { super.addEventListener(kind, (e) => { window.__events++; f(e); note(); }); } };
  }, plan.node);
  if (told) {
    const body = () => `event: snapshot\ndata: ${JSON.stringify(state.told)}\n\n`;
    await page.route('**/events', (route) => route.fulfill({ status: 200, contentType: 'text/event-stream', body: body() }));
  }
  await page.goto(url);
  await page.waitForSelector('main[data-ready=yes]', { timeout: LONG });
  return state;
}

/** Every chart is there, has a size, and something is drawn on it. */
async function charts_render({ page, name }, expected) {
  for (const chart of expected) {
    await page.waitForFunction((chart) => [...document.querySelectorAll(`[data-chart="${chart}"]`)].some((it) => {
      const box = it.getBoundingClientRect();
      const curves = [...it.querySelectorAll('path.edge')].some((p) => (p.getAttribute('d') || '').includes('L'));
      return box.width > 60 && box.height > 20 && (curves || it.querySelectorAll('.strip i, td').length > 0);
    }), chart, { timeout: LONG }).catch(() => check(false, `${name}: ${chart} is not drawn`));
  }
}

async function fits({ page, name }) {
  const wide = await page.evaluate(() => [...document.querySelectorAll('body *')].filter((node) => {
    if (node.closest('.scroll, svg, #tip') || node.closest('nav ul')) return false;
    const box = node.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1) && !node.closest('.skip');
  }).map((node) => `${node.tagName}.${node.className}`).slice(0, 5));
  check(wide.length === 0, `${name}: wider than the window: ${wide.join(', ')}`);
  check(!await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), `${name}: the page scrolls sideways`);
}

// The unit of a figure, by its place in the snapshot; nothing where a word or a plain number stands.
const UNITS = [
  [/bytes_per\w*s$/, 'rate'], [/window_us$/, 'window'], [/_ns(_p\d+)?$/, 'time'], [/_ms$/, 'clock'], [/(^|\.)(value|share)$|^patterns\.next\.1$/, 'percent'], [/served_bytes$/, 'bytes'],
  [/totals\.\w+$|\.(queued|in_flight|tries)$|votes\.\d+\.1$/, 'each'], [/_s$/, 'seconds'], [/(size_mean|distance)$/, 'rounded'],
];
const unit = (path) => UNITS.find(([pattern]) => pattern.test(path))?.[1];

/** What a reader sees of each figure is the figure of the snapshot under the path that it names, in the unit that it has. */
async function figures_equal({ page, name }, snapshot, within = 'body', least = 10) {
  const shown = await shown_figures(page, within);
  check(shown.length >= least, `${name}: only ${shown.length} figures`);
  for (const figure of shown) { const wrong = fault(snapshot, figure, unit); check(!wrong, `${name}: ${wrong}`); }
  return shown;
}

/** A snapshot with all there can be: votes and patterns, whatever this service does. */
function with_everything(snapshot) {
  const all = structuredClone(snapshot);
  all.patterns = { known: 1234, next: [7, 0.625], list: [{ id: 7, times: 1500, requests: 9, shape: [0, 1, 0.5] }, { id: 8, times: 1, requests: 12, shape: [1, 0] }], chain: [{ from: 'pattern 7', to: 'pattern 8', times: 5, share: 0.625 }, { from: 'pattern 7', to: 'pattern 7', times: 3, share: 0.375 }, { from: 'pattern 8', to: 'pattern 7', times: 4, share: 1 }] };
  const candidate = { arm: 'SJF', value: 0.875, tries: 3, barred: false };
  const told = { id: 1e6, revision: 1e6, at_ms: all.at_ms - 61_000, last_ms: all.at_ms, times: 1200, node: plan.node, by: 'council', context: null, before: 'NOOP', chosen: 'SJF', own: null, explores: false, why: 'by votes', consensus: 'majority', evidence: { requests: 4321, served_bytes: 1572864, busy_s: 0.75 }, candidates: [candidate], votes: [['SJF', 2.4], ['NOOP', 1]] };
  all.decisions = [told, ...all.decisions];
  return all;
}

/** A click on a decision shows its situation, evidence, candidates and why. */
async function decisions_explain({ page, name }, snapshot, above = 0) {
  const number = snapshot.decisions.findIndex((d) => d.candidates.length > 0 && d.context);
  check(number >= 0, `${name}: no decision that can be explained`);
  if (number < 0) return;
  const row = page.locator('#decisions .rows > li').nth(number + above);
  await row.locator('button.row').click();
  const told = await row.locator('.evidence').innerText();
  const decision = snapshot.decisions[number];
  for (const [what, text] of [['the situation', decision.context], ['why', decision.why], ['what was chosen', decision.chosen], ['a candidate', decision.candidates[0].arm], ['evidence', 'Requests']]) {
    check(told.includes(text), `${name}: a decision does not show ${what}: ${text}`);
  }
  check(await row.locator('.evidence table tbody tr').count() === decision.candidates.length, `${name}: candidates are missing`);
  const situation = page.locator('#situations button.row').first();
  await situation.click();
  check(await page.locator('#situations .evidence table tbody tr').first().isVisible(), `${name}: a situation does not unfold`);
}

async function hovering_shows_figures({ page, name }, snapshot) {
  for (const chart of ['throughput', 'node-throughput', 'node-latency', 'node-queue']) {
    const target = page.locator(`[data-chart=${chart}]`).first();
    await target.scrollIntoViewIfNeeded();
    let is_shown = false;
    // What scrolls hides the tip.
    for (let tries = 0; tries < 100 && !is_shown; tries++) {
      const box = await target.boundingBox();
      await page.mouse.move(box.x + box.width - 3 - tries % 2, box.y + box.height / 2);
      is_shown = await page.evaluate(() => !document.getElementById('tip').hidden && document.getElementById('tip').textContent.length > 3);
      if (!is_shown) await page.waitForTimeout(50);
    }
    check(is_shown, `${name}: hovering over ${chart} shows nothing`);
    // What a chart of all nodes shows are sums; what that of one node shows stands in the snapshot.
    if (snapshot && chart !== 'throughput') await figures_equal({ page, name: `${name}: the tip of ${chart}` }, snapshot, '#tip', 2);
  }
}

/** Who has no pointer gets the same figures by keys. */
async function keys_show_figures({ page, name }, snapshot) {
  for (const chart of ['throughput', 'node-throughput']) {
    const target = page.locator(`[data-chart=${chart}]`).first();
    const is_shown = async () => { await target.evaluate((node) => node.blur()); await target.focus(); await page.keyboard.press('ArrowLeft'); return page.evaluate(() => !document.getElementById('tip').hidden); };
    await until_shown(page, `what a key shows in ${chart}`, is_shown);
    if (snapshot && chart !== 'throughput') await figures_equal({ page, name: `${name}: what a key shows in ${chart}` }, snapshot, '#tip', 2);
  }
  await page.evaluate(() => document.activeElement.blur());
}

/** The bar leads to each section that is there, and to no other. */
async function the_bar_leads_everywhere({ page, name }) {
  const [links, sections] = await page.evaluate(() => [[...document.querySelectorAll('#bar li')].filter((it) => !it.hidden).map((it) => it.dataset.to), [...document.querySelectorAll('main > section')].filter((it) => !it.hidden && it.id !== 'throughput').map((it) => it.id)]);
  check(JSON.stringify(links) === JSON.stringify(sections), `${name}: the bar leads to ${links}, and there are ${sections}`);
}

async function theme_changes({ page, name }) {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await ground();
  await page.locator('#theme').click();
  check(before !== await ground(), `${name}: the theme does not change`);
  await legible(page, `${name}, other theme`, check);
  await page.locator('#theme').click();
  await legible(page, name, check);
}

async function nothing_was_injected({ page, name }) {
  const found = await page.evaluate(() => ({ ran: window.__injected !== undefined, scripts: document.scripts.length, images: document.images.length, frames: window.frames.length, bold: document.querySelectorAll('main b b, main i b').length }));
  check(JSON.stringify(found) === JSON.stringify({ ran: false, scripts: 1, images: 0, frames: 0, bold: 0 }), `${name}: something was injected: ${JSON.stringify(found)}`);
}

const hostile = (text) => `${text}<img src=x onerror="window.__injected=1"><script>window.__injected=1</script>"'\u202e\n\u0007<b>`;
function made_hostile(snapshot) {
  const copy = structuredClone(snapshot);
  const rename = new Map(copy.nodes.map((n) => [n.name, hostile(n.name)]));
  copy.name = hostile(copy.name);
  for (const n of copy.nodes) { n.name = rename.get(n.name); n.why = hostile(n.why || ''); n.context = hostile(n.context || ''); n.policy = hostile(n.policy || ''); }
  for (const c of copy.contexts) { c.context = hostile(c.context); c.choice = hostile(c.choice || ''); c.nodes = c.nodes.map(hostile); c.arms.forEach((a) => { a.arm = hostile(a.arm); }); }
  for (const l of copy.chain) { l.from = hostile(l.from); l.to = hostile(l.to); }
  for (const d of copy.decisions) { for (const key of ['node', 'chosen', 'before', 'why', 'context', 'own', 'consensus']) d[key] = hostile(d[key] || ''); d.evidence[hostile('key')] = hostile('value'); d.candidates.forEach((c) => { c.arm = hostile(c.arm); }); d.votes.push([hostile('vote'), 1]); }
  copy.patterns = { known: 2, next: [7, 0.5], list: [{ id: 7, times: 3, requests: 9, shape: [0, 1, 0.5] }], chain: [{ from: hostile('pattern 7'), to: hostile('pattern 8'), times: 2, share: 1 }] };
  return copy;
}

const policy_of = (page) => page.evaluate((node) => [...document.querySelectorAll('[data-node]')].find((it) => it.dataset.node === node)?.querySelector('[data-policy]').textContent, plan.node);
/** Waits until the page shows something, and says whether it does. */
async function until_shown(page, what, is_so) {
  const at = Date.now();
  while (!await is_so()) {
    if (Date.now() - at > LONG) { check(false, `it is never shown: ${what}`); return false; }
    await page.waitForTimeout(20);
  }
  console.log(`${what}: shown after ${Date.now() - at} ms`);
  return true;
}

/** Every switch is shown, without a reload. How soon is printed and not judged: that the next event has it is tried without a browser. */
async function a_switch_is_followed({ page }) {
  const taken = [];
  for (const arm of plan.arms) taken.push(await one_switch(page, arm));
  console.log(`switches: ${JSON.stringify(taken)}`);
}
async function one_switch(page, arm) {
  const shown = arm.replace(/:(.*)ms/, ' $1 ms');
  const before = await page.evaluate(() => window.__shown.length), ordered = Date.now();
  await please(`order ${arm}`);
  const given = await page.evaluate(() => window.__events);
  const found = () => page.evaluate(([before, shown]) => window.__shown.slice(before).find((it) => it.policy === shown) ?? null, [before, shown]);
  const is_shown = await until_shown(page, `switch to ${arm}`, async () => await policy_of(page) === shown && await found() !== null);
  const note = is_shown && await found();
  return note ? { ms: note.at - ordered, events: Math.max(0, note.event - given) } : 'never';
}

/** A service that was started anew numbers its decisions from the beginning: what was unfolded of another does not stay so. */
async function another_life_is_another(snapshot) {
  const decision = (why) => ({ id: 1, revision: 1, at_ms: snapshot.at_ms, last_ms: snapshot.at_ms, times: 1, node: plan.node, by: 'council', context: null, before: null, chosen: 'SJF', own: null, explores: false, why, consensus: null, evidence: {}, candidates: [], votes: [] });
  const life = (life, why, takes_orders) => ({ ...structuredClone(snapshot), life, takes_orders, decisions: [decision(why)] });
  const state = await open(1280, 900, 'light', life('one', 'the first reason', false));
  state.quiet = false;
  const row = state.page.locator('#decisions .rows > li').first();
  await row.locator('button.row').click();
  check(await row.locator('.evidence').isVisible(), 'a decision does not unfold');
  check(await state.page.locator('.order').count() === 0, 'orders are offered that nobody takes');
  state.told = life('two', 'another reason', true);
  await until_shown(state.page, 'another life', async () => (await row.locator('.text').innerText()).includes('another reason'));
  check(!await row.locator('.evidence').isVisible(), 'what another life decided is unfolded');
  await row.locator('button.row').click();
  check((await row.locator('.evidence').innerText()).includes('another reason'), 'an old reason is unfolded');
  check(await state.page.locator('.order').count() === snapshot.nodes.length, 'orders that are taken now are not offered');
  state.told = life('three', 'a third reason', false);
  await until_shown(state.page, 'no more orders', async () => await state.page.locator('.order').count() === 0);
  await state.context.close();
}

/** Who comes when as many watch as may is told so, and not that nobody answers; and comes in when there is room. */
async function who_finds_no_place_is_told_why() {
  const state = await open(1280, 900, 'light'), { page, context } = state;
  state.quiet = false;
  const told = (route) => route.fulfill({ status: 503, contentType: 'text/plain', body: '16 watch already' });
  await page.route('**/events', told);
  await page.reload();
  await until_shown(page, 'there is no place', async () => (await page.locator('.banner').innerText()).includes('as many watch it as may'));
  await page.unroute('**/events', told);
  await until_shown(page, 'there is a place', async () => !await page.locator('.banner').isVisible() && await page.locator('#status.live').count() === 1);
  await context.close();
}

/** Samples that come early or late are of the same throughput: the chart of all nodes has no peaks and no holes for that. */
async function a_late_sample_changes_nothing(snapshot) {
  const told = structuredClone(snapshot), sample = snapshot.nodes[0].recent.at(-1);
  const first = Math.floor(told.at_ms / 1000) * 1000 - 10_000, ends = [1000, 1960, 3480, 4020, 5000, 7000].map((ms) => first + ms);
  const recent = ends.map((at_ms, n) => ({ ...sample, at_ms, span_ms: at_ms - (ends[n - 1] ?? first), read_bytes_per_s: 4e6, write_bytes_per_s: 0 }));
  told.nodes = [{ ...told.nodes[0], recent }];
  const { page, context } = await open(1280, 900, 'light', told);
  const curve = await page.evaluate(() => document.querySelector('[data-chart=throughput] path.edge.c-read').getAttribute('d'));
  const heights = curve.split(/[ML]/).slice(1).map((point) => point.split(' ')[1]);
  check(heights.length === 7 && new Set(heights).size === 1, `the same throughput looks like ${curve}`);
  await context.close();
}

async function state_of_node(page) {
  return page.evaluate((node) => [...document.querySelectorAll('[data-node]')].find((it) => it.dataset.node === node)?.className ?? 'none', plan.node);
}

/** What is killed is said to be gone, and comes back by itself under the open page. */
async function a_restart_is_survived(state) {
  const { page } = state;
  const live = () => page.evaluate(() => document.querySelector('#status').classList.contains('live'));
  state.quiet = false;
  await please('kill');
  if (plan.council) await until_shown(page, 'the node is gone', async () => (await state_of_node(page)) === 'node gone');
  else await until_shown(page, 'nothing answers', async () => !await live() && await page.locator('.banner').isVisible());
  await please('start');
  await until_shown(page, 'the node is back', async () => await live() && (await state_of_node(page)) === 'node here');
  check(!await page.locator('.banner').isVisible(), 'the page still says that nothing answers');
  if (plan.council) {
    await please('kill council');
    await until_shown(page, 'the council is away', async () => !await live() && await page.locator('.banner').isVisible());
    await please('start council');
    await until_shown(page, 'the council is back', async () => await live() && (await state_of_node(page)) === 'node here');
  }
  state.quiet = true;
}

async function orders_need_the_token({ page, name }) {
  const box = page.locator('.order');
  if (!plan.token) { check(await box.count() === 0, `${name}: it offers to take orders`); return; }
  const order = async (arm, token) => {
    await box.locator('input').nth(0).fill(arm);
    await box.locator('input').nth(1).fill(token);
    await box.locator('button').click();
  };
  const said = () => box.locator('.said').innerText();
  await order('SJF', 'not the right token');
  await until_shown(page, 'a wrong token is refused', async () => (await said()).includes('not the token'));
  await order('TWINS:4ms', plan.token);
  await until_shown(page, 'the order is carried out', async () => (await said()).includes('TWINS:4ms') && await policy_of(page) === 'TWINS 4 ms');
}

const CHARTS = ['throughput', 'node-throughput', 'node-latency', 'node-queue', ...(plan.learns ? ['situations', 'chain'] : [])];
const wide = await open(1280, 900, 'light');
await charts_render(wide, CHARTS);
await fits(wide);
await hovering_shows_figures(wide);
await keys_show_figures(wide);
await the_bar_leads_everywhere(wide);
await theme_changes(wide);
await a_switch_is_followed(wide);
if (plan.token || !plan.council) { wide.quiet = false; await orders_need_the_token(wide); wide.quiet = true; }

const snapshot = await (await fetch(url + 'snapshot')).json();
const everything = with_everything(snapshot);
for (const [width, height, scheme] of [[1280, 900, 'light'], [390, 844, 'dark'], [390, 844, 'light']]) {
  const told = await open(width, height, scheme, everything);
  await charts_render(told, [...CHARTS, 'pattern']);
  await figures_equal(told, everything);
  if (plan.learns) await decisions_explain(told, snapshot, 1);
  await told.page.locator('#decisions .rows > li').first().locator('button.row').click();
  const shown = await figures_equal(told, everything);
  for (const path of ['decisions.0.votes.1.1', 'decisions.0.candidates.0.value', 'patterns.known', 'patterns.next.1', 'patterns.list.0.times', 'patterns.chain.0.share']) check(shown.some((it) => it.path === path), `${told.name}: ${path} is not shown`);
  await hovering_shows_figures(told, everything);
  await keys_show_figures(told, everything);
  await the_bar_leads_everywhere(told);
  await fits(told);
  await theme_changes(told);
  await told.context.close();
}
const narrow = await open(390, 844, 'dark');
await charts_render(narrow, CHARTS);
await fits(narrow);
await narrow.context.close();
const evil = await open(390, 844, 'dark', made_hostile(snapshot));
for (const row of await evil.page.locator('button.row').all()) await row.click();
await fits(evil);
await nothing_was_injected(evil);
await evil.context.close();
await another_life_is_another(snapshot);
await a_late_sample_changes_nothing(snapshot);
await who_finds_no_place_is_told_why();

await a_restart_is_survived(wide);
await fits(wide);
await nothing_was_injected(wide);
await browser.close();
if (problems.length) { console.error(problems.slice(0, 30).join('\n')); process.exit(1); }
console.log('all is well');
process.exit(0);

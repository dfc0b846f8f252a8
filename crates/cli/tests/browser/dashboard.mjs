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

/** `told` is what the page is told instead of what the service says. `quiet` is whether the service stays where it is. */
async function open(width, height, scheme, told) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(LONG);
  page.setDefaultNavigationTimeout(LONG);
  const state = { page, context, name: `${width} px, ${scheme}${told ? ', told' : ''}`, quiet: true };
  page.on('console', (message) => { if (state.quiet && ['error', 'warning'].includes(message.type())) problems.push(`${state.name}: console: ${message.text()}`); });
  page.on('pageerror', (error) => problems.push(`${state.name}: ${error}`));
  page.on('dialog', (dialog) => { problems.push(`${state.name}: a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(url) && !request.url().startsWith('data:')) problems.push(`${state.name}: fetches ${request.url()}`); });
  await page.addInitScript(() => {
    window.__events = 0;
    const Real = window.EventSource;
    window.EventSource = class extends Real { addEventListener(kind, f) { super.addEventListener(kind, (e) => { window.__events++; f(e); }); } };
  });
  if (told) {
    const body = `event: snapshot\ndata: ${JSON.stringify(told)}\n\n`;
    await page.route('**/events', (route) => route.fulfill({ status: 200, contentType: 'text/event-stream', body }));
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

/** Each figure on the page is the figure of the snapshot, under the path that it names. */
async function figures_equal({ page, name }, snapshot) {
  const lookUp = (path) => path.split('.').reduce((at, key) => (at === null || at === undefined ? at : at[key]), snapshot);
  const shown = await page.evaluate(() => [...document.querySelectorAll('[data-figure]')].map((node) => ({ path: node.dataset.figure, value: node.dataset.value, text: node.textContent })));
  check(shown.length >= 10, `${name}: only ${shown.length} figures`);
  for (const { path, value, text } of shown) {
    check(JSON.stringify(lookUp(path) ?? null) === value, `${name}: ${path} shows ${value}, not ${JSON.stringify(lookUp(path))}`);
    check(text.length > 0, `${name}: ${path} shows nothing`);
  }
}

/** A click on a decision shows its situation, evidence, candidates and why. */
async function decisions_explain({ page, name }, snapshot) {
  const number = snapshot.decisions.findIndex((d) => d.candidates.length > 0 && d.context);
  check(number >= 0, `${name}: no decision that can be explained`);
  if (number < 0) return;
  const row = page.locator('#decisions .rows > li').nth(number);
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

async function hovering_shows_figures({ page, name }) {
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
  }
}

async function theme_changes({ page, name }) {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await ground();
  await page.locator('#theme').click();
  check(before !== await ground(), `${name}: the theme does not change`);
  await page.locator('#theme').click();
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
  copy.patterns = { known: 2, next: [7, 0.5], list: [{ id: 7, times: 3, requests: 9, shape: [0, 1, 0.5] }], chain: [{ from: hostile('pattern 7'), to: hostile('pattern 8'), times: 2 }] };
  return copy;
}

const policy_of = (page) => page.evaluate((node) => [...document.querySelectorAll('[data-node]')].find((it) => it.dataset.node === node)?.querySelector('[data-policy]').textContent, plan.node);
/** Waits until the page shows something; how many updates that took. */
async function until_shown(page, what, is_so) {
  const begin = await page.evaluate(() => window.__events), at = Date.now();
  while (!await is_so()) {
    if (Date.now() - at > LONG) { check(false, `it is never shown: ${what}`); return Infinity; }
    await page.waitForTimeout(20);
  }
  console.log(`${what}: shown after ${Date.now() - at} ms`);
  return (await page.evaluate(() => window.__events)) - begin;
}

/** The page is told once a second at least; a switch is shown with the first or second of these updates. */
async function a_switch_is_followed({ page, name }) {
  const updates = [];
  for (const arm of [...plan.arms, ...plan.arms]) {
    await please(`order ${arm}`);
    const shown = arm.replace(/:(.*)ms/, ' $1 ms');
    updates.push(await until_shown(page, `switch to ${arm}`, async () => await policy_of(page) === shown));
  }
  check(Math.min(...updates) <= 2, `${name}: a switch is shown after ${updates.join(', ')} updates`);
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
await theme_changes(wide);
await a_switch_is_followed(wide);
if (plan.token || !plan.council) { wide.quiet = false; await orders_need_the_token(wide); wide.quiet = true; }

const snapshot = await (await fetch(url + 'snapshot')).json();
for (const [width, height, scheme] of [[1280, 900, 'light'], [390, 844, 'dark'], [390, 844, 'light']]) {
  const told = await open(width, height, scheme, snapshot);
  await charts_render(told, CHARTS);
  await figures_equal(told, snapshot);
  if (plan.learns) await decisions_explain(told, snapshot);
  await figures_equal(told, snapshot);
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

await a_restart_is_survived(wide);
await fits(wide);
await nothing_was_injected(wide);
await browser.close();
if (problems.length) { console.error(problems.slice(0, 30).join('\n')); process.exit(1); }
console.log('all is well');
process.exit(0);

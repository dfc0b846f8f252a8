// Draws what /events tells: a snapshot at first, then what is new. `NOW` is always what GET /snapshot would answer; every figure
// on the page is looked up in it. Text goes into the page as text nodes only, whatever it contains.
(() => {

const SPAN_MS = 180e3;               // how far charts reach back
const KEPT = 180, LISTED = 240;      // samples of a node and decisions: as many as the service keeps
const QUIET_MS = 5000;               // after so long without an event the service is away
const RETRY_MS = [500, 1000, 2000, 4000];

let NOW = null;                      // the snapshot
const open = new Set();              // what is unfolded
const show = { decisions: 'all', find: '', most: 20 };

const rate = (v) => bytes(Math.round(v)) + '/s';
const each = (v) => count(Math.round(v));
const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');
const seconds = (s) => time(s * 1e9);
const window_ = (us) => (us >= 1000 ? digits(us / 1000) + ' ms' : digits(us) + ' µs');
Object.assign(FORMATS, { rate, each, clock, seconds, window: window_, rounded: (v) => bytes(Math.round(v)) });
const lookUpOne = (path) => path.split('.').reduce((at, key) => (at === null || at === undefined ? at : at[key]), NOW);
const lookUp = (path) => (path.includes(' + ') ? sum(path.split(' + ').map(lookUpOne)) : lookUpOne(path));

// A figure of the snapshot, with the path under which it stands there; or a sum of several.
function put(node, path, kind) {
  const value = lookUp(path) ?? null;
  set(node, 'data-figure', path);
  set(node, 'data-kind', kind);
  set(node, 'data-value', JSON.stringify(value));
  text(node, format(value, kind));
  return node;
}
const fig = (path, kind) => put(el('span'), path, kind);
const set = (node, name, value) => { if (node.getAttribute(name) !== value) node.setAttribute(name, value); };
const text = (node, value) => { if (node.textContent !== value) node.textContent = value; };
const klass = (node, value) => { if (node.className !== value) node.className = value; };

// Children that stay as long as what they show: `make` once, `update` each time.
function keyed(holder, items, key, make, update) {
  holder.parts = holder.parts || new Map();
  const wanted = new Set();
  let before = null;
  items.forEach((item, index) => {
    const id = key(item);
    wanted.add(id);
    let part = holder.parts.get(id);
    if (!part) { part = make(item); holder.parts.set(id, part); }
    update(part, item, index);
    const place = before ? before.nextSibling : holder.firstChild;
    if (place !== part.node) holder.insertBefore(part.node, place);
    before = part.node;
  });
  for (const [id, part] of holder.parts) if (!wanted.has(id)) { part.node.remove(); holder.parts.delete(id); }
}

// ---------- charts ----------
const WIDE = 1000;
function curve(samples, height, max, get, from, closed) {
  let path = '', last = null, first = null;
  const x = (s) => ((s.at_ms - from) / SPAN_MS) * WIDE;
  const end = () => { if (closed && last) path += `L${x(last).toFixed(1)} ${height}L${first.toFixed(1)} ${height}Z`; };
  for (const sample of samples) {
    const value = get(sample);
    if (value === null || value === undefined) { end(); last = null; continue; }
    const gap = last && sample.at_ms - last.at_ms > Math.max(3500, 3 * sample.span_ms);
    if (gap) { end(); last = null; }
    const y = height - Math.min(1, value / max) * (height - 2) - 1;
    if (!last) first = x(sample);
    path += `${last ? 'L' : 'M'}${x(sample).toFixed(1)} ${y.toFixed(1)}`;
    last = sample;
  }
  end();
  return path;
}
function nice(max) {
  if (!(max > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 1.5, 2, 3, 5, 7.5, 10].find((n) => n * power >= max) * power;
}

// A chart of a few series over the last minutes. Each series: { name, c, get, kind, filled }.
function plot(name, height, series) {
  const paths = series.map((s) => [s.filled ? svg('path', { class: `fill c-${s.c}` }) : null, svg('path', { class: `edge c-${s.c}` })]);
  const marks = svg('path', { class: 'switch', fill: 'none' });
  const picture = svg('svg', { class: 'line', viewBox: `0 0 ${WIDE} ${height}`, preserveAspectRatio: 'none', height: height, 'aria-hidden': 'true' },
    svg('path', { class: 'base', d: `M0 ${height - 0.5}H${WIDE}` }), marks, ...paths.flat().filter(Boolean));
  const max = el('span', { class: 'max' });
  const cursor = el('span', { class: 'cursor', hidden: true });
  const box = el('div', { class: 'plotbox', 'data-chart': name, role: 'img', tabindex: 0 }, picture, max, cursor);
  let shown = { samples: [], from: 0, at: null }, on = null;
  const nearest = (at) => shown.samples.reduce((best, s) => (!best || Math.abs(s.at_ms - at) < Math.abs(best.at_ms - at) ? s : best), null);
  const left = (sample) => clamp((sample.at_ms - shown.from) / SPAN_MS, 0, 1);
  const pick = (sample, event) => {
    if (!sample) return;
    on = sample;
    cursor.hidden = false;
    cursor.style.left = left(sample) * 100 + '%';
    const value = (s) => (shown.at ? fig(`${shown.at(sample)}.${s.key}`, s.kind) : format(s.get(sample), s.kind));
    tip(event, clock(sample.at_ms), series.map((s) => [s.name, value(s)]));
  };
  const point = (event) => {
    const r = box.getBoundingClientRect();
    pick(nearest(shown.from + ((event.clientX - r.left) / r.width) * SPAN_MS), event);
  };
  // The charts move on while somebody reads: a key goes on from where the sample is by now, from the newest one at first.
  const press = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !shown.samples.length) return;
    event.preventDefault();
    const last = shown.samples.length - 1, from = on ? shown.samples.indexOf(nearest(on.at_ms)) : last + 1;
    const sample = shown.samples[clamp(from + step, 0, last)];
    pick(sample, at(box, left(sample) * box.clientWidth, height / 2));
  };
  const leave = () => { on = null; cursor.hidden = true; hideTip(); };
  box.addEventListener('pointermove', point);
  box.addEventListener('pointerdown', point);
  box.addEventListener('pointerleave', leave);
  box.addEventListener('keydown', press);
  box.addEventListener('blur', leave);
  return {
    node: box,
    // `path` is where the snapshot has these samples, if it has them.
    draw(all, now, switches, path) {
      const from = now - SPAN_MS, samples = all.filter((s) => s.at_ms >= from);
      shown = { samples, from, at: path ? (sample) => `${path}.${all.indexOf(sample)}` : null };
      const stacked = series.some((s) => s.on);
      const top = (s) => (sample) => { const v = s.get(sample); return v === null || v === undefined ? v : stacked && s.on ? v + (s.on(sample) || 0) : v; };
      const greatest = nice(Math.max(0, ...series.flatMap((s) => samples.map((it) => top(s)(it) || 0))));
      series.forEach((s, n) => {
        if (paths[n][0]) set(paths[n][0], 'd', curve(samples, height, greatest, top(s), from, true));
        set(paths[n][1], 'd', curve(samples, height, greatest, top(s), from, false));
      });
      set(marks, 'd', (switches || []).filter((at) => at >= from).map((at) => `M${(((at - from) / SPAN_MS) * WIDE).toFixed(1)} 0V${height}`).join(''));
      text(max, samples.length ? format(greatest, series[0].kind) : '');
      set(box, 'aria-label', `${name}; arrow keys go through it: ${series.map((s) => `${s.name} ${format(samples.length ? s.get(samples[samples.length - 1]) : null, s.kind)}`).join(', ')}`);
    },
  };
}
const READ = { name: 'Read', c: 'read', kind: 'rate', key: 'read_bytes_per_s', get: (s) => s.read_bytes_per_s, filled: true };
const WRITE = { name: 'Written', c: 'write', kind: 'rate', key: 'write_bytes_per_s', get: (s) => s.write_bytes_per_s, on: (s) => s.read_bytes_per_s, filled: true };
const TIMES = [{ name: 'In the queue, 99 % below', c: 'queue', kind: 'time', key: 'queue_ns_p99', get: (s) => s.queue_ns_p99 }, { name: 'In service, 99 % below', c: 'service', kind: 'time', key: 'service_ns_p99', get: (s) => s.service_ns_p99 }];
const DEPTHS = [{ name: 'Waiting', c: 'queue', kind: 'each', key: 'queued', get: (s) => s.queued, filled: true }, { name: 'At the storage', c: 'flight', kind: 'each', key: 'in_flight', get: (s) => s.in_flight }];

// ---------- the frame of the page ----------
const section = (id, title, how, tools) => {
  const body = el('div');
  const note = el('p', { class: 'how' }, how);
  const node = el('section', { class: 'card', id, 'aria-labelledby': id + '-title', tabindex: -1 },
    el('div', { class: 'head' }, el('div', {}, el('h2', { id: id + '-title' }, title), note), tools || null), body);
  return { node, body, note };
};
const legend = (...parts) => el('div', { class: 'legend' }, parts.map(([name, variable]) => el('span', {}, el('i', { background: `var(${variable})` }), name)));

const status = { node: el('span', { class: 'pill', id: 'status', role: 'status' }), text: el('span', {}, 'connecting') };
status.node.append(el('i', { class: 'dot' }), status.text);
const banner = el('div', { class: 'banner', role: 'alert', hidden: true });
const title = el('h1', {}, 'Presagio'), eyebrow = el('p', { class: 'eyebrow' }, 'Presagio, live'), how = el('p', { class: 'sub' });
const theme = el('button', { class: 'button', type: 'button', id: 'theme', onclick: () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark') });
const stats = el('dl', { class: 'cards' });
const whole = { ...section('throughput', 'Throughput', 'All nodes, the last three minutes. Dashed: a policy was switched.', legend(['read', '--read'], ['written', '--write'])), plot: plot('throughput', 132, [WRITE, READ]) };
whole.body.append(whole.plot.node, el('div', { class: 'times' }, el('span', {}, '3 min ago'), el('span', {}, '2'), el('span', {}, '1'), el('span', {}, 'now')));
const nodes = section('nodes', 'I/O nodes', '', legend(['read', '--read'], ['written', '--write'], ['in the queue', '--s3'], ['in service', '--s4'], ['at the storage', '--s2']));
nodes.list = el('div', { class: 'nodes' });
nodes.body.append(nodes.list);
const knows = section('situations', 'Situations, and what works in them', 'A bar for each arm: its average as a share of the best. Dark: chosen. Red: barred. Dashed: not tried yet.');
knows.list = el('ul', { class: 'rows', 'data-chart': 'situations' });
knows.chain = el('div', { class: 'chainbox' });
knows.grid = el('div', { class: 'knows' }, knows.list, knows.chain);
knows.none = el('p', { class: 'bigempty' });
knows.body.append(knows.none, knows.grid);
const patterns = section('patterns', 'Patterns', '');
const filters = el('span', { class: 'segmented', role: 'group', 'aria-label': 'Which decisions' },
  [['all', 'All'], ['switches', 'Switches'], ['trials', 'Trials']].map(([id, name]) => el('button', { type: 'button', 'data-show': id, 'aria-pressed': String(id === 'all'), onclick: () => { show.decisions = id; filters.childNodes.forEach((b) => set(b, 'aria-pressed', String(b.dataset.show === id))); drawDecisions(); } }, name)));
const find = el('input', { class: 'filter', type: 'search', placeholder: 'node, situation or arm', 'aria-label': 'Find decisions', oninput: () => { show.find = find.value.toLowerCase(); drawDecisions(); } });
const decisions = section('decisions', 'Decisions', 'Newest first; the same again is counted. Click for what was seen, what there was to choose from, and why.', el('div', { class: 'tools2' }, filters, find));
decisions.list = el('ul', { class: 'rows' });
decisions.none = el('p', { class: 'bigempty' });
decisions.more = el('button', { class: 'button', type: 'button', onclick: () => { show.most += 60; drawDecisions(); } }, 'Show more');
decisions.body.append(decisions.none, decisions.list, decisions.more);

function frame() {
  const links = [['nodes', 'Nodes'], ['situations', 'Situations'], ['patterns', 'Patterns'], ['decisions', 'Decisions']];
  const go = (id) => (e) => { e.preventDefault(); $(id).scrollIntoView(); $(id).focus({ preventScroll: true }); };
  $('bar').append(el('div', { class: 'in' }, el('ul', {}, links.map(([id, name]) => el('li', { 'data-to': id }, el('a', { href: '#' + id, onclick: go(id) }, name)))), status.node));
  $('top').append(el('div', {}, eyebrow, title, how), el('div', { class: 'tools' }, theme));
  $('main').replaceChildren(banner, stats, whole.node, nodes.node, knows.node, patterns.node, decisions.node);
}

// ---------- figures at the top ----------
const STATS = [
  ['Reading', 'totals.read_bytes_per_s', 'rate', () => ['of all nodes']],
  ['Writing', 'totals.write_bytes_per_s', 'rate', () => ['of all nodes']],
  ['Requests', 'totals.requests_per_s', 'each', () => ['a second']],
  ['Waiting', 'totals.queued', 'each', () => [fig('totals.in_flight', 'each'), ' at the storage']],
  ['I/O nodes', 'totals.nodes_here', 'each', () => (NOW.totals.nodes_gone ? [fig('totals.nodes_gone', 'each'), ' gone'] : ['all here'])],
  ['Decisions', 'totals.decisions', 'each', () => (NOW.totals.decision_ns_p99 ? ['99 % below ', fig('totals.decision_ns_p99', 'time')] : [fig('totals.explorations', 'each'), ' trials'])],
];
function drawTop() {
  const is_council = NOW.service === 'council';
  text(title, is_council ? `Council on ${NOW.name}` : `I/O node ${NOW.name}`);
  document.title = `${NOW.name}: ${is_council ? 'council' : 'I/O node'}, Presagio`;
  const parts = [];
  const { decides, consensus, agreed, period_s, strategy } = NOW.how;
  if (decides === 'given') parts.push('the policy is given');
  if (decides === 'trees') parts.push('trees choose by what arrives');
  if (decides === 'learned') parts.push('policies are learned from what comes of them');
  if (agreed) parts.push(`${consensus} for ${agreed}`);
  if (period_s) parts.push(el('span', {}, 'every ', fig('how.period_s', 'seconds')));
  if (strategy) parts.push(strategy);
  parts.push(el('span', {}, 'up ', fig('up_s', 'seconds')));
  how.replaceChildren(...parts.flatMap((part, n) => (n ? [' · ', part] : [part])));
  keyed(stats, STATS, ([name]) => name, ([name]) => {
    const value = el('span'), note = el('small');
    return { node: el('div', { class: 'stat' }, el('dt', {}, name), el('dd', {}, value, note)), value, note };
  }, (part, [, path, kind, note]) => { put(part.value, path, kind); part.note.replaceChildren(...note()); });
}

// ---------- all nodes together ----------
// Second by second. A sample is of the time before it, which seldom is one of our seconds: each gets its part.
function bySecond() {
  const SECOND = 1000, sums = new Map();
  const add = (s, second, share) => {
    const sum = sums.get(second) || { at_ms: second + SECOND, span_ms: SECOND, read_bytes_per_s: 0, write_bytes_per_s: 0 };
    sum.read_bytes_per_s += s.read_bytes_per_s * share;
    sum.write_bytes_per_s += s.write_bytes_per_s * share;
    sums.set(second, sum);
  };
  for (const s of NOW.nodes.flatMap((node) => node.recent)) {
    const begin = Math.max(s.at_ms - Math.max(s.span_ms, 1), NOW.at_ms - SPAN_MS - SECOND);
    for (let second = Math.floor(begin / SECOND) * SECOND; second < s.at_ms; second += SECOND) {
      add(s, second, (Math.min(s.at_ms, second + SECOND) - Math.max(begin, second)) / SECOND);
    }
  }
  return [...sums.values()].sort((a, b) => a.at_ms - b.at_ms);
}
function drawWhole() {
  // The last second is not over, or has not been told by all nodes yet.
  const told = NOW.nodes.length === 1 ? Math.max(0, ...NOW.nodes[0].recent.map((s) => s.at_ms)) : NOW.at_ms - 1000;
  whole.plot.draw(bySecond().filter((s) => s.at_ms <= told), NOW.at_ms, switches());
  text(whole.note, `${NOW.service === 'council' ? 'All nodes' : 'This node'}, the last three minutes. Dashed: a policy was switched.`);
}
const isSwitch = (d) => d.before !== null && d.before !== d.chosen;
const switches = () => NOW.decisions.filter(isSwitch).map((d) => d.at_ms);

// ---------- nodes ----------
// The policy in force and its window, if it has one.
function putPolicy(chip, node, at) {
  if (!chip.childNodes.length) chip.append(el('span'), el('span'), el('span'));
  const [name, gap, width] = chip.childNodes;
  text(name, node.policy || '–');
  text(gap, node.window_us ? ' ' : '');
  if (node.window_us) put(width, `${at}.window_us`, 'window');
  else width.replaceWith(el('span'));
}
const BY = { council: 'by the council', node: 'by itself', trees: 'by trees', person: 'by hand', start: 'as started' };
function makeNode(node) {
  const part = { dot: el('i', { class: 'dot' }), name: el('b'), chip: el('span', { class: 'chip', 'data-policy': '' }), by: el('span', { class: 'by' }), where: el('p', { class: 'where' }), why: el('p', { class: 'why' }) };
  part.plots = [plot('node-throughput', 46, [WRITE, READ]), plot('node-latency', 46, TIMES), plot('node-queue', 46, DEPTHS)];
  part.values = part.plots.map(() => el('span', { class: 'value' }));
  const names = ['Throughput', 'Latency', 'Queue'];
  part.node = el('article', { class: 'node', 'data-node': node.name },
    el('div', { class: 'title' }, part.dot, part.name, part.chip, part.by),
    el('div', { class: 'plots' }, part.plots.map((p, n) => el('div', {}, el('span', { class: 'label' }, names[n]), part.values[n], p.node))), part.where, part.why);
  part.seen = true;
  watch.observe(part.node);
  part.node.shows = part;
  return part;
}
const watch = new IntersectionObserver((entries) => { for (const e of entries) { e.target.shows.seen = e.isIntersecting; if (e.isIntersecting && NOW) drawPlots(e.target.shows); } }, { rootMargin: '300px' });
function drawPlots(part) {
  const index = NOW.nodes.findIndex((n) => n.name === part.node.dataset.node);
  if (index >= 0) part.plots.forEach((p) => p.draw(NOW.nodes[index].recent, NOW.at_ms, [], `nodes.${index}.recent`));
}
function drawNode(part, node, index) {
  const at = `nodes.${index}`;
  klass(part.node, `node ${node.state}`);
  klass(part.dot, `dot ${node.state}`);
  put(part.name, `${at}.name`, 'text');
  set(part.name, 'title', node.name);
  const before = part.chip.textContent;
  putPolicy(part.chip, node, at);
  if (part.chip.textContent !== before) {
    klass(part.chip, node.policy ? 'chip' : 'chip none');
    if (before !== '') { void part.chip.offsetWidth; part.chip.classList.add('fresh'); }
  }
  const by = node.state === 'gone' ? ['gone since ', fig(`${at}.since_ms`, 'clock')] : [node.state === 'silent' ? 'silent' : BY[node.by] || node.by];
  part.by.replaceChildren(node.explores && node.state === 'here' ? el('span', { class: 'tag' }, 'trial') : '', ' ', ...by);
  const now = `${at}.now`;
  if (node.now) {
    part.values[0].replaceChildren(fig(`${now}.read_bytes_per_s + ${now}.write_bytes_per_s`, 'rate'));
    part.values[1].replaceChildren(fig(`${now}.queue_ns_p99`, 'time'), el('small', {}, ' + '), fig(`${now}.service_ns_p99`, 'time'));
    part.values[2].replaceChildren(fig(`${now}.queued`, 'each'), el('small', {}, ' + '), fig(`${now}.in_flight`, 'each'));
  } else part.values.forEach((v) => text(v, '–'));
  part.where.replaceChildren(...(node.context ? [letter(node.context), ' ', node.context] : ['Too little arrives to tell the situation.']));
  part.where.hidden = NOW.how.decides === 'given';
  text(part.why, node.why || '');
  drawOrders(part);
  if (part.seen) drawPlots(part);
}
// Whether a service takes orders, and which, may be otherwise when it was started anew.
function drawOrders(part) {
  const key = NOW.takes_orders ? JSON.stringify(arms()) : '';
  if (part.orders_for === key) return;
  part.orders_for = key;
  if (part.orders) part.orders.remove();
  part.orders = NOW.takes_orders ? orders() : null;
  if (part.orders) part.node.append(part.orders);
}
const arms = () => [...NOW.how.arms, NOW.how.decides === 'learned' ? 'adaptive' : 'auto'];
function drawNodes() {
  const gone = NOW.totals.nodes_gone ? [', ', fig('totals.nodes_gone', 'each'), ' gone'] : [];
  const more = NOW.nodes_left_out ? [' ', fig('nodes_left_out', 'each'), ' more are not shown.'] : [];
  nodes.note.replaceChildren(...(NOW.nodes.length === 0 ? ['No node is here yet. They come with: presagio ionode --policy adaptive --council ADDRESS'] :
    [fig('totals.nodes_here', 'each'), ' here', ...gone, '. Latency: in the queue and in service, 99 % below; queue: waiting and at the storage.', ...more]));
  keyed(nodes.list, NOW.nodes, (n) => n.name, makeNode, drawNode);
}

// Orders of who has the token: it stays in this page's memory.
function orders() {
  const name = el('input', { class: 'filter', placeholder: 'policy, as TWINS:0.5ms', 'aria-label': 'Policy', list: 'arms' });
  const token = el('input', { class: 'filter', type: 'password', placeholder: 'token', 'aria-label': 'Token', autocomplete: 'off' });
  const said = el('span', { class: 'said', role: 'status' });
  const choices = el('datalist', { id: 'arms' }, arms().map((it) => el('option', { value: it })));
  const give = async () => {
    text(said, '…');
    try {
      const answer = await fetch('/policy?name=' + encodeURIComponent(name.value), { method: 'POST', headers: { Authorization: 'Bearer ' + token.value } });
      text(said, (await answer.text()).trim());
    } catch { text(said, 'no answer'); }
  };
  return el('div', { class: 'order' }, name, choices, token, el('button', { class: 'button', type: 'button', onclick: give }, 'Set'), said);
}

// ---------- situations ----------
const letters = new Map();           // a situation keeps its letter while this page is open
function number(context) {
  if (!letters.has(context)) letters.set(context, letters.size);
  return letters.get(context);
}
function nameOf(context) {
  const n = number(context);
  return n < 26 ? String.fromCharCode(65 + n) : String.fromCharCode(65 + Math.floor(n / 26) % 26) + String.fromCharCode(65 + n % 26);
}
const letter = (context, old) => el('span', { class: old ? 'letter old' : 'letter', title: context }, nameOf(context));
// What is unfolded below a row.
function unfold(part, id, fill) {
  set(part.row, 'aria-expanded', String(open.has(id)));
  part.more_of.hidden = !open.has(id);
  if (open.has(id)) fill();
}
function row(cls, id, redraw, ...children) {
  const box = el('div', { class: 'evidence', hidden: true });
  const button = el('button', { class: `row ${cls}`, type: 'button', 'aria-expanded': 'false', onclick: () => { if (!open.delete(id)) open.add(id); redraw(); } }, ...children);
  return { node: el('li', {}, button, box), row: button, more_of: box };
}
function makeSituation(c) {
  const parts = { letter: el('span'), text: el('span', { class: 'text' }), chip: el('span', { class: 'chip' }), strip: el('span', { class: 'strip', 'aria-hidden': 'true' }), more: el('span', { class: 'more' }) };
  return { ...row('situation', 'c' + c.context, drawSituations, parts.letter, parts.text, parts.chip, parts.strip, parts.more), ...parts };
}
function drawSituation(part, c) {
  const at = `contexts.${NOW.contexts.indexOf(c)}`;
  part.letter.replaceChildren(letter(c.context, c.last_ms === null));
  const where = c.nodes.length ? [`now on ${c.nodes.slice(0, 3).join(', ')}${c.nodes.length > 3 ? ` and ${c.nodes.length - 3} more` : ''}`] : c.last_ms ? ['last at ', fig(`${at}.last_ms`, 'clock')] : ['not since the start'];
  part.text.replaceChildren(c.context, el('small', {}, ...where, ' · best ', put(el('span'), `${at}.best_bytes_per_busy_s`, 'rate'), ' while busy'));
  text(part.chip, c.choice || '–');
  klass(part.chip, c.choice ? 'chip' : 'chip none');
  part.strip.replaceChildren(...c.arms.map((a) => {
    const bar = el('i', { class: a.value === null ? 'untried' : a.barred ? 'barred' : a.arm === c.choice ? 'on' : null });
    if (a.value !== null) bar.style.height = Math.max(4, a.value * 100) + '%';
    return bar;
  }));
  part.more.replaceChildren(put(el('span'), `${at}.tries`, 'each'), ' tries');
  unfold(part, 'c' + c.context, () => part.more_of.replaceChildren(
    c.why ? el('p', {}, el('b', {}, c.choice || ''), ': ', c.why) : '', armTable(c.arms, `${at}.arms`, c.choice, true)));
}
function armTable(arms, at, chosen, with_rates) {
  const head = ['Arm', 'Share of the best', 'Tries', with_rates ? 'Per busy second' : null, ''].filter((it) => it !== null);
  const line = (a, n) => {
    const bar = el('td', { class: 'bar' }, el('i', { 'width%': Math.round((a.value || 0) * 100) }), put(el('span'), `${at}.${n}.value`, 'percent'));
    return el('tr', { class: a.arm === chosen ? 'on' : null }, el('td', { class: 'mono' }, a.arm), bar, el('td', { class: 'num' }, put(el('span'), `${at}.${n}.tries`, 'each')),
      with_rates ? el('td', { class: 'num' }, put(el('span'), `${at}.${n}.bytes_per_busy_s`, 'rate')) : null, el('td', {}, a.arm === chosen ? 'chosen' : a.barred ? 'barred' : a.value === null ? 'not tried' : ''));
  };
  return el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, head.map((h, n) => el('th', { class: n > 1 && n < head.length - 1 ? 'num' : null }, h)))), el('tbody', {}, arms.map(line))));
}
function matrix(links, at, name, mark) {
  const names = [...new Set(links.flatMap((l) => [l.from, l.to]))];
  const weight = (n) => links.reduce((all, l) => all + (l.from === n || l.to === n ? l.times : 0), 0);
  const shown = names.sort((a, b) => weight(b) - weight(a)).slice(0, 6);
  const cell = (from, to) => {
    const number = links.findIndex((it) => it.from === from && it.to === to);
    const td = el('td', {}, number < 0 ? '' : fig(`${at}.${number}.share`, 'percent'));
    if (number >= 0) {
      // No stronger than this, or the figure could not be read on it, in the light or in the dark.
      td.style.background = `color-mix(in srgb, var(--accent) ${Math.round(8 + links[number].share * 40)}%, var(--card))`;
      td.addEventListener('pointermove', (e) => tip(e, `${name(from)} → ${name(to)}`, [['from', from], ['to', to], ['times', fig(`${at}.${number}.times`, 'count')], ['share', fig(`${at}.${number}.share`, 'percent')]]));
      td.addEventListener('pointerleave', hideTip);
    }
    return td;
  };
  return el('div', { class: 'scroll' }, el('table', { class: 'matrix', 'data-chart': 'chain' },
    el('thead', {}, el('tr', {}, el('th', {}, ''), shown.map((to) => el('th', {}, mark(to))))),
    el('tbody', {}, shown.map((from) => el('tr', {}, el('th', {}, mark(from)), shown.map((to) => cell(from, to)))))));
}
function drawSituations() {
  const none = { given: 'The policy is given, so nothing is chosen. Start with --policy adaptive to let the node learn, or auto to let trees choose.', trees: 'Trees choose by what arrives; nothing is learned. --policy adaptive learns.', learned: 'Nothing is known yet: it takes a period with enough requests.' };
  knows.none.hidden = NOW.contexts.length > 0;
  text(knows.none, none[NOW.how.decides] || '');
  knows.grid.hidden = NOW.contexts.length === 0;
  // Those that were tried, or are there now, where they were: letters are given in the order of the first look.
  const list = NOW.contexts.filter((c) => c.tries > 0 || c.nodes.length > 0).sort((a, b) => number(a.context) - number(b.context));
  keyed(knows.list, list, (c) => c.context, makeSituation, drawSituation);
  const has_chain = NOW.chain.length > 0;
  klass(knows.grid, has_chain ? 'knows' : 'knows alone');
  knows.chain.hidden = !has_chain;
  if (has_chain) knows.chain.replaceChildren(el('h3', {}, 'What follows what'), el('p', { class: 'how' }, 'Of the periods in a row’s situation, how many were followed by the column’s.'), matrix(NOW.chain, 'chain', nameOf, (c) => letter(c)));
  const left = NOW.contexts_left_out;
  knows.note.replaceChildren('A bar for each arm: its average as a share of the best. Dark: chosen. Red: barred. Dashed: not tried yet.', ...(left ? [' ', fig('contexts_left_out', 'count'), ' more situations are known.'] : []));
}

// ---------- patterns ----------
function drawPatterns() {
  const link = document.querySelector('#bar [data-to=patterns]');
  patterns.node.hidden = link.hidden = !NOW.patterns;
  if (!NOW.patterns) return;
  const { next, list, chain } = NOW.patterns;
  patterns.note.replaceChildren(fig('patterns.known', 'count'), ' are known.', ...(next ? [' Next, most likely: pattern ', fig('patterns.next.0', 'text'), ' (', fig('patterns.next.1', 'percent'), ').'] : []));
  const shape = (p, n) => {
    const d = p.shape.map((y, n) => `${n ? 'L' : 'M'}${(n / Math.max(1, p.shape.length - 1) * WIDE).toFixed(1)} ${(34 - y * 32).toFixed(1)}`).join('');
    return el('div', { 'data-chart': 'pattern' }, el('b', {}, 'pattern ', fig(`patterns.list.${n}.id`, 'text')), ' × ', fig(`patterns.list.${n}.times`, 'count'), ', ', fig(`patterns.list.${n}.requests`, 'count'), ' requests', svg('svg', { class: 'line', viewBox: `0 0 ${WIDE} 36`, preserveAspectRatio: 'none', height: 36 }, svg('path', { class: 'edge c-read', d })));
  };
  const box = el('div', { class: 'shapes' }, list.map(shape));
  const links = chain.length ? el('div', { class: 'chainbox' }, el('h3', {}, 'What follows what'), matrix(chain, 'patterns.chain', (n) => n, (n) => n.replace('pattern ', ''))) : null;
  patterns.body.replaceChildren(el('div', { class: links ? 'knows' : 'knows alone' }, ...[box, links].filter(Boolean)));
}

// ---------- decisions ----------
const EVIDENCE = { period_s: ['Period', 'seconds'], busy_s: ['Busy', 'seconds'], served_bytes: ['Served', 'bytes'], servers: ['Data servers', 'count'], clients: ['Clients', 'count'], processes: ['Processes', 'count'], operation: ['Mostly', 'text'], requests: ['Requests', 'count'], handles: ['Files', 'count'], size_mean: ['Mean size', 'rounded'], distance: ['Mean distance', 'rounded'], in_force: ['In force', 'text'], bytes_per_busy_s: ['Per busy second', 'rate'], learned: ['Taught', 'text'], class: ['Access', 'text'], files: ['Files', 'count'], ratio: ['Sequential to random', 'count'], tree: ['Tree', 'text'] };
function makeDecision(d) {
  const parts = { at: el('span', { class: 'at' }), who: el('span', { class: 'who' }), what: el('span', { class: 'what' }), text: el('span', { class: 'text' }), more: el('span', { class: 'more' }) };
  return { ...row('decision', 'd' + d.id, drawDecisions, parts.at, parts.who, parts.what, parts.text, parts.more), ...parts };
}
function drawDecision(part, d) {
  const index = NOW.decisions.indexOf(d), at = `decisions.${index}`;
  put(part.at, `${at}.at_ms`, 'clock');
  text(part.who, d.node);
  const key = [d.before, d.chosen, d.explores, d.by].join('|');
  if (part.key !== key) {
    part.key = key;
    const tag = (name) => [' ', el('span', { class: 'tag' }, name)];
    part.what.replaceChildren(...(isSwitch(d) ? [el('span', { class: 'chip was' }, d.before), ' → '] : []), el('span', { class: 'chip' }, d.chosen), ...(d.explores ? tag('trial') : []), ...(d.by === 'person' ? tag('by hand') : []));
  }
  text(part.text, d.why);
  part.more.replaceChildren(...(d.times > 1 ? [put(el('span'), `${at}.times`, 'each'), ' times'] : ['once']));
  unfold(part, 'd' + d.id, () => {
    if (part.shown === d.revision && part.index === index) return;
    part.shown = d.revision; part.index = index;
    const fields = Object.entries(d.evidence).filter(([, v]) => v !== null);
    const evidence = fields.map(([key]) => { const [name, kind] = EVIDENCE[key] || [key.replaceAll('_', ' '), 'text']; return el('div', {}, el('dt', {}, name), el('dd', {}, put(el('span'), `${at}.evidence.${key}`, kind))); });
    part.more_of.replaceChildren(...[
      el('h3', {}, 'Situation'), el('p', {}, ...(d.context ? [letter(d.context), ' ', d.context] : ['not known: too little arrived'])),
      el('h3', {}, 'Why'), el('p', {}, el('b', {}, d.chosen), ', ', BY[d.by] || d.by, ': ', d.why),
      d.times > 1 ? el('p', { class: 'sub' }, fig(`${at}.times`, 'count'), ' times from ', fig(`${at}.at_ms`, 'clock'), ' to ', fig(`${at}.last_ms`, 'clock'), '; what follows is of the last.') : null,
      fields.length ? el('h3', {}, 'What was seen') : null, fields.length ? el('dl', {}, evidence) : null,
      d.candidates.length ? el('h3', {}, 'What there was to choose from') : null,
      d.candidates.length ? armTable(d.candidates, `${at}.candidates`, d.own || d.chosen, false) : null,
      d.votes.length ? el('h3', {}, `Votes, by ${d.consensus}`) : null,
      d.votes.length ? el('p', {}, d.votes.flatMap(([name], n) => [n ? ' · ' : '', name + ' ', fig(`${at}.votes.${n}.1`, 'each')])) : null,
    ].filter(Boolean));
  });
}
function drawDecisions() {
  const wanted = (d) => (show.decisions === 'all' || (show.decisions === 'switches' ? isSwitch(d) : d.explores))
    && (!show.find || [d.node, d.context, d.chosen, d.before, d.why].some((it) => (it || '').toLowerCase().includes(show.find)));
  const all = NOW.decisions.filter(wanted), list = all.slice(0, show.most);
  decisions.more.hidden = all.length <= show.most;
  decisions.none.hidden = list.length > 0;
  text(decisions.none, NOW.decisions.length ? 'None of the last decisions is one of these.' : NOW.how.decides === 'given' ? 'The policy is given: there is nothing to decide.' : 'Nothing was decided yet.');
  keyed(decisions.list, list, (d) => d.id, makeDecision, drawDecision);
}

// ---------- all of it ----------
function draw() {
  if (document.hidden) return;       // it is drawn when somebody looks again
  NOW.contexts.forEach((c) => number(c.context));
  drawTop(); drawWhole(); drawNodes(); drawSituations(); drawPatterns(); drawDecisions();
  const orders_ = NOW.takes_orders ? 'Orders need the token.' : 'This page only shows.';
  const foot = `Every figure is one of /snapshot; presagio top shows the same in a terminal. ${orders_} Presagio ${NOW.presagio}`;
  if ($('foot').textContent !== foot) $('foot').replaceChildren(el('p', {}, foot));
}
// What is new is joined with what was known: the result is the snapshot of now.
function join(news) {
  const known = new Map(NOW.nodes.map((n) => [n.name, n.recent]));
  for (const node of news.nodes) {
    const before = known.get(node.name) || [];
    const last = before.length ? before[before.length - 1].at_ms : 0;
    node.recent = before.concat(node.recent.filter((s) => s.at_ms > last)).slice(-KEPT);
  }
  const all = new Map(NOW.decisions.map((d) => [d.id, d]));
  for (const d of news.decisions) all.set(d.id, d);
  news.decisions = [...all.values()].sort((a, b) => b.id - a.id).slice(0, LISTED);
  return news;
}

// ---------- the line to the service ----------
let source = null, tries = 0, heard = 0, away = null, timer = 0;
function heardFrom(event, is_all) {
  let news;
  try { news = JSON.parse(event.data); } catch { return; }
  heard = Date.now();
  tries = 0;
  const is_anew = NOW !== null && NOW.life !== news.life;
  NOW = is_all || !NOW || is_anew ? news : join(news);
  if (is_anew) forgetDecisions();
  if (away !== null || !$('main').dataset.ready) said('live', 'live');
  away = null;
  $('main').dataset.ready = 'yes';
  draw();
}
// A service that was started anew numbers from the beginning: its first decision is not the first one of before.
function forgetDecisions() {
  for (const id of open) if (id.startsWith('d')) open.delete(id);
  keyed(decisions.list, [], (d) => d.id);
}
function said(state, what) {
  klass(status.node, `pill ${state}`);
  text(status.text, what);
  $('main').classList.toggle('stale', state === 'away' && NOW !== null);
  banner.hidden = state !== 'away';
}
function lost() {
  if (source) source.close();
  source = null;
  away = away || Date.now();
  said('away', 'no answer');
  text(banner, `No answer since ${clock(away)}. ${NOW ? 'What is shown is from then. ' : ''}Trying again by itself.`);
  clearTimeout(timer);
  timer = setTimeout(connect, RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]);
}
// Refused, and not lost: where it answers everything else, as many watch as may.
async function refused() {
  lost();
  try {
    if (!(await fetch('/snapshot')).ok || away === null) return;
    said('away', 'full');
    text(banner, 'It answers, but as many watch it as may at a time. Trying again by itself; presagio top --once needs no such place.');
  } catch { /* no answer indeed */ }
}
function connect() {
  if (source) source.close();
  heard = Date.now();
  source = new EventSource('/events');
  source.addEventListener('snapshot', (e) => heardFrom(e, true));
  source.addEventListener('update', (e) => heardFrom(e, false));
  source.onerror = (event) => (event.target.readyState === EventSource.CLOSED ? refused() : lost());
}
setInterval(() => { if (source && Date.now() - heard > QUIET_MS) lost(); }, 1000);

function setTheme(name, keep = true) {
  document.documentElement.dataset.theme = name;
  palette.clear();
  if (keep) try { localStorage.setItem('presagio-theme', name); } catch { /* there may be no storage */ }
  text(theme, name === 'dark' ? 'Light' : 'Dark');
}
frame();
setTheme(wanted(), false);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (!stored()) setTheme(wanted(), false); });
addEventListener('scroll', hideTip, { passive: true });
document.addEventListener('visibilitychange', () => { if (NOW) draw(); });
connect();
})();

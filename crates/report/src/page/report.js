// Draws the document that `presagio report --json` prints. Every figure on this page is looked up in it; text goes into the
// page as text nodes only, whatever it contains.
(() => {
'use strict';

let DATA, RUN, AT = 0;              // the document, the run that is shown, and its number
let redraws = [];                   // charts that have to be drawn again when sizes or colours change

const lookUp = (path) => path.split('.').reduce((at, key) => (at === null || at === undefined ? at : at[key]), DATA);
// What kind of figure stands under a key of the document.
function kindOf(path) {
  const key = path.split('.').pop();
  if (/(^|_)ns$/.test(key)) return 'time';
  if (/_times$/.test(key)) return 'times';
  if (/\.way\.sizes\.\d+\.0$/.test(path)) return 'bytes';
  if (/\.differs\.\d+$/.test(path)) return 'percent';
  if (/^bytes|^reach$|^memory$/.test(key)) return 'bytes';
  if (/share|confidence|in_phases|hit_ratio/.test(key)) return 'percent';
  if (path.includes('sizes.') && /median|p90|p99|mean|min|max/.test(key)) return 'bytes';
  if (path.includes('latencies.') && /median|p90|p99|mean|min|max/.test(key)) return 'time';
  return 'count';
}

// A figure of the document, with the path under which it stands there.
function fig(path, kind = kindOf(path)) {
  const value = lookUp(path);
  return el('span', { 'data-figure': path, 'data-kind': kind, 'data-value': JSON.stringify(value) }, format(value, kind));
}
// Things with commas between them, or something else.
const listed = (things, between = ', ') => things.flatMap((thing, n) => (n ? [between, thing] : [thing]));
const run = (path) => `runs.${AT}.${path}`;

const LABELS = {
  time_share: 'Share of I/O time', duration_ns: 'First to last operation', time_ns: 'I/O time', read_ns: 'Reading', write_ns: 'Writing',
  other_ns: 'Neither', operations: 'Operations', failed: 'Failed', bytes: 'Bytes', bytes_read: 'Bytes read', bytes_written: 'Bytes written',
  reach: 'Used up to', processes: 'Processes', median: 'Median', p90: '90 % below', p99: '99 % below', max: 'Largest', mean: 'Mean',
  count: 'Requests', small_share: 'Smaller than 32 KiB', count_share: 'Share of calls', from_ns: 'Those of at least', lane_median_ns: 'Process in the middle', not_seen_count: 'Things not seen', with_ns: 'A read waits', without_ns: 'With nothing', hidden_share: 'Hidden', consecutive_share: 'Consecutive', onward_share: 'Onward', period_ns: 'Period', confidence: 'Confidence',
  elapsed_ns: 'Whole run', files: 'Files', phase_ns: 'Length of a phase', in_phases: 'Time within phases', right_share: 'Foreseen exactly', right: 'Foreseen exactly', hit_ratio: 'Hit ratio', context_share: 'Call foreseen', offset_share: 'Offset foreseen',
  bytes_loaded: 'Loaded ahead', bytes_useful: 'Loaded and read', bytes_wasted: 'Loaded in vain', useful_share: 'Share of it then read', read_share: 'Share of bytes read', times: 'Times', length: 'Number',
  sizes: 'Usual size', differs: 'Difference', back_share: 'Back, or again', other_share: 'Share of that time', read_times: 'Times over', lane_most_times: 'As many times as that', lanes_own: 'Processes', perfect_after: 'All known after', operations_without: 'Not judged', error: 'Most frequent error',
};

// ---------- what was clicked, below a chart ----------
function pinned() {
  const box = el('div', { class: 'pinned' });
  box.pin = (title, rows, ...more) => {
    box.replaceChildren(
      el('button', { class: 'button close', type: 'button', onclick: () => box.replaceChildren() }, 'Close'),
      el('h3', {}, title),
      el('dl', {}, rows.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value)))),
      ...more.filter(Boolean));
  };
  return box;
}

function stackOf(number) {
  const site = number === null || number === undefined ? null : RUN.sites[number];
  if (!site) return el('p', { class: 'sub' }, 'The call stack is not known.');
  const frame = (f) => el('li', {},
    f.function ? el('b', {}, f.function) : el('code', {}, `${f.module}+0x${f.offset.toString(16)}`),
    f.file ? ` ${f.file}${f.line ? ':' + f.line : ''}` : '',
    f.function ? el('span', { class: 'sub' }, ` ${f.module.split('/').pop()}`) : '');
  return el('div', {}, el('div', { class: 'sub' }, 'Called from, innermost first:'), el('ol', { class: 'mono' }, site.frames.map(frame)));
}

// ---------- a section ----------
const SECTIONS = [];
const SHORT = { comparison: 'Compared', findings: 'Findings', timeline: 'When', accesses: 'Where', files: 'Files', sizes: 'Sizes', latencies: 'Latency', sequentiality: 'Order', loops: 'Loops', prediction: 'Foresight', prefetch: 'Loaded ahead', phases: 'Rhythm', unseen: 'Not seen' };
function section(id, title, how, ...children) {
  const tools = children.length && children[0] && children[0].isTools ? children.shift() : null;
  const node = el('section', { class: 'card', id, 'aria-labelledby': id + '-title', tabindex: -1 },
    el('div', { class: 'head' }, el('div', {}, el('h2', { id: id + '-title' }, title), how ? el('p', { class: 'how' }, how) : null), tools), ...children);
  SECTIONS.push([id, SHORT[id] || title]);
  $('main').append(node);
  return node;
}
function tools(...children) { const node = el('div', { class: 'tools' }, ...children); node.isTools = true; return node; }

function segmented(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) => el('button', { type: 'button', 'aria-pressed': String(value === chosen), onclick: () => pick(value) }, text));
  const pick = (value) => { buttons.forEach((b, n) => b.setAttribute('aria-pressed', String(options[n][0] === value))); choose(value); };
  return el('div', { class: 'segmented', role: 'group', 'aria-label': label }, ...buttons);
}
const legend = (...items) => el('div', { class: 'legend' }, items.map(([colour, text]) => el('span', {}, el('i', { background: `var(${colour})` }), text)));
const STEP_NAMES = ['first', 'consecutive', 'strided', 'forward', 'backward', 'same place again'];
const STEP_COLOURS = ['--s0', '--s1', '--s2', '--s3', '--s4', '--s5'];
const COLOURS = { read: '--read', write: '--write', other: '--other' };
const kindClass = (action) => (action === 'read' ? 'kind-read' : action === 'write' ? 'kind-write' : 'kind-other');

// The first of a list in its place, and a button for all of them if there are more.
function listedIn(holder, name, list, shown, make) {
  holder.dataset.list = name;
  holder.append(...list.slice(0, shown).map(make));
  if (list.length <= shown) return null;
  const more = el('button', { class: 'button', type: 'button', onclick: () => { holder.append(...list.slice(shown).map((item, n) => make(item, n + shown))); more.remove(); } }, `Show all ${count(list.length)}`);
  return more;
}

// ---------- drawing ----------
// A canvas keeps what was drawn: what follows the pointer is put on top of that, without drawing all of it again.
function canvas(label, height, draw, marks) {
  const node = el('canvas', { role: 'img', 'aria-label': label, tabindex: 0 });
  const redraw = () => {
    const w = node.clientWidth, h = typeof height === 'function' ? height(w) : height, ratio = window.devicePixelRatio || 1;
    if (!w) return;
    node.style.height = h + 'px';
    node.width = Math.round(w * ratio); node.height = Math.round(h * ratio);
    const g = node.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    g.font = '11.5px system-ui, sans-serif';
    draw(g, w, h);
    if (marks) {
      layer.width = node.width; layer.height = node.height;
      layer.getContext('2d').drawImage(node, 0, 0);
      marks(g, w, h);
    }
    node.dataset.drawn = 'true';
  };
  const layer = document.createElement('canvas');
  node.mark = () => {
    const g = node.getContext('2d'), ratio = window.devicePixelRatio || 1;
    if (!layer.width) return redraw();
    g.setTransform(1, 0, 0, 1, 0, 0); g.clearRect(0, 0, node.width, node.height); g.drawImage(layer, 0, 0);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    marks(g, node.clientWidth, node.clientHeight);
  };
  node.redraw = redraw;
  redraws.push(redraw);
  return node;
}

function niceStep(span, most) {
  const rough = span / Math.max(1, most), power = Math.pow(10, Math.floor(Math.log10(rough || 1)));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || power * 10;
}
function niceBytes(span, most) {
  let step = 1;
  while (span / step > most) step *= 2;
  return step;
}

function timeAxis(g, x0, x1, y, from, to) {
  const unit = to >= 7200e9 ? 3600e9 : to >= 120e9 ? 60e9 : 1, step = niceStep((to - from) / unit, (x1 - x0) / 95) * unit, first = Math.ceil(from / step) * step;
  g.fillStyle = css('--soft'); g.textBaseline = 'top';
  for (let t = first; t <= to; t += step) {
    const x = x0 + (t - from) / (to - from) * (x1 - x0);
    g.strokeStyle = css('--grid'); g.beginPath(); g.moveTo(x + .5, y); g.lineTo(x + .5, 0); g.stroke();
    g.textAlign = x > x1 - 26 ? 'right' : x < x0 + 20 ? 'left' : 'center';
    g.fillText(timeLike(t, to), x, y + 5);
  }
}

// A time in the unit of another, so that an axis has one.
function timeLike(ns, like) {
  const [unit, name] = like >= 7200e9 ? [3600e9, 'h'] : like >= 120e9 ? [60e9, 'min'] : like >= 1e9 ? [1e9, 's'] : like >= 1e6 ? [1e6, 'ms'] : like >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
  return ns === 0 ? '0' : String(Number((ns / unit).toPrecision(4))) + '\u00a0' + name;
}

// Sums of bins, for any part of them in constant time: the levels of detail between one bin and all of them.
function prefix(values) {
  const sums = new Float64Array(values.length + 1);
  for (let i = 0; i < values.length; i++) sums[i + 1] = sums[i] + values[i];
  return (a, b) => sums[clamp(b, 0, values.length)] - sums[clamp(a, 0, values.length)];
}

// ---------- sections ----------
function head() {
  const source = RUN.source, began = source.began_s ? new Date(source.began_s * 1000).toISOString().replace('T', ' ').replace(/:\d\d\..*/, ' UTC') : null;
  const facts = [source.hosts.slice(0, 3).join(', '), began, source.format ? `recorded as ${source.format}` : 'summary only',
    source.layer && source.layers.length > 1 ? `figures are of the ${source.layer} layer` : null].filter(Boolean);
  const title = DATA.runs.length > 1 ? DATA.runs.map((r) => r.name).join(' and ') : RUN.name;
  document.title = `${title} · Presagio report`;
  const theme = el('button', { class: 'button', type: 'button', id: 'theme', onclick: () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark') });
  $('top').replaceChildren(
    el('div', {}, el('p', { class: 'eyebrow' }, 'Presagio report'), el('h1', {}, title),
      el('p', { class: 'sub' }, facts.join(' · ')),
      source.commands.length ? el('p', { class: 'sub mono', title: source.commands.join('\n') }, source.commands[0] + (source.commands.length > 1 ? `  and ${source.commands.length - 1} more` : '')) : null),
    el('div', { class: 'tools' }, theme, el('button', { class: 'button', type: 'button', onclick: () => print() }, 'Print')));
  labelTheme();
}

function runPicker() {
  if (DATA.runs.length < 2) return;
  $('main').append(el('div', { class: 'runs', role: 'group', 'aria-label': 'Which run is shown' }, DATA.runs.map((r, n) =>
    el('button', { class: 'button', type: 'button', 'aria-pressed': String(n === AT), onclick: () => show(n) }, r.name))));
}

function overview() {
  const t = RUN.totals;
  const one = t.processes === 1;
  const stat = (name, value, note) => el('div', { class: 'stat' }, el('dt', {}, name), el('dd', {}, value, note ? el('small', {}, note) : null));
  const list = el('dl', { class: 'cards', id: 'overview', tabindex: -1 },
    stat(RUN.timeline ? 'First to last call' : 'Whole run', fig(run('totals.duration_ns')), t.elapsed_ns !== null && RUN.timeline ? el('span', {}, 'whole run ', fig(run('totals.elapsed_ns'))) : null),
    stat('I/O time', fig(run('totals.time_ns')), RUN.timeline ? el('span', {}, fig(run('totals.time_share')), one ? ' of that time' : ' of it, per process') : null),
    stat('Read', fig(run('totals.bytes_read')), el('span', {}, fig(run('totals.read_ns')), ' in reads')),
    stat('Written', fig(run('totals.bytes_written')), el('span', {}, fig(run('totals.write_ns')), ' in writes')),
    stat('Operations', fig(run('totals.operations')), el('span', {}, fig(run('totals.failed')), ' failed')),
    stat('Files', fig(run('totals.files')), el('span', {}, fig(run('totals.processes')), t.processes === 1 ? ' process' : ' processes')),
    RUN.prediction ? stat('Foreseen exactly', fig(run('prediction.all.right_share')), el('span', {}, 'of ', fig(run('prediction.all.operations')), RUN.prediction.all.operations === 1 ? ' operation that was judged' : ' operations that were judged')) : null,
    RUN.prefetch && RUN.prefetch.useful_share !== null ? stat('Loaded ahead', fig(run('prefetch.bytes_loaded')), el('span', {}, fig(run('prefetch.useful_share')), ' of it then read')) : null);
  $('main').append(list);
}

const WEIGHTS = { high: ['!', 'matters most'], medium: ['•', 'worth a look'], low: ['i', 'good to know'], good: ['✓', 'as it should be'] };
function findingList(findings, base) {
  return el('ul', { class: 'findings' }, findings.map((finding) => {
    const [sign, meaning] = WEIGHTS[finding.weight];
    const box = el('div', { class: 'evidence', hidden: true });
    const button = el('button', { class: 'finding', type: 'button', 'aria-expanded': 'false', 'data-finding': finding.id },
      el('span', { class: 'badge ' + finding.weight, title: meaning, role: 'img', 'aria-label': meaning }, sign),
      el('span', { class: 'text' }, finding.text), el('span', { class: 'more' }, 'Evidence'));
    button.addEventListener('click', () => {
      const open = button.getAttribute('aria-expanded') !== 'true';
      button.setAttribute('aria-expanded', String(open));
      box.hidden = !open;
      if (open && !box.childNodes.length) evidence(box, finding, base);
    });
    return el('li', {}, button, box);
  }));
}

function evidence(box, finding, base) {
  const figures = finding.evidence.figures.map((path) => {
    const full = base + path, key = path.split('.').filter((part) => !/^\d+$/.test(part)).pop();
    return el('div', {}, el('dt', {}, LABELS[key] || key.replaceAll('_', ' ')),
      el('dd', {}, fig(full), el('span', { class: 'path', title: 'where presagio report --json has it' }, full)));
  });
  const target = $(finding.evidence.section);
  box.append(...[
    finding.advice ? el('p', { class: 'advice' }, finding.advice) : null,
    el('dl', {}, figures),
    target ? el('button', { class: 'button', type: 'button', 'data-goto': finding.evidence.section, onclick: () => goTo(finding.evidence) }, 'Show where it comes from') : null].filter(Boolean));
}

const SELECT = {};                  // what each section does when a finding leads there
function goTo({ section: id, select }) {
  const target = $(id);
  if (!target) return;
  if (select !== null && SELECT[id]) SELECT[id](select);
  target.scrollIntoView({ block: 'start' });
  target.focus({ preventScroll: true });
  target.classList.remove('flash'); void target.offsetWidth; target.classList.add('flash');
}

function comparison() {
  const c = DATA.comparison;
  if (!c) return;
  const rows = c.measures.map((m, i) => el('tr', {}, el('td', {}, m.name), m.values.map((v, n) => {
    const kind = { ns: 'time', bytes: 'bytes', count: 'count', share: 'percent' }[m.unit], ratio = m.ratios[n];
    const better = m.unit === 'ns' && n > 0 && ratio !== null ? (ratio < .95 ? 'better' : ratio > 1.05 ? 'worse' : '') : '';
    return el('td', { class: 'num' }, v === null ? '–' : fig(`comparison.measures.${i}.values.${n}`, kind),
      n > 0 && ratio !== null ? el('span', { class: 'sub' }, ' × ', el('span', { class: better }, fig(`comparison.measures.${i}.ratios.${n}`, 'count'))) : null);
  })));
  const longest = Math.max(...DATA.runs.map((r) => r.totals.duration_ns), 1);
  const pin = pinned();
  const lines = DATA.runs.map((r, n) => (r.timeline ? runLine(r, n, longest, pin) : null));
  section('comparison', 'The runs side by side', 'Each run against the first one. The charts below share one scale of time, so that a shorter run ends earlier, and one scale of reads (up) and of writes (down).',
    findingList(c.findings, ''),
    el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, ''), DATA.runs.map((r) => el('th', { class: 'num' }, r.name)))), el('tbody', {}, rows))), ...lines.filter(Boolean), pin);
}

// The highest of reads and of writes in any run, as so many columns show them.
function peakOfRuns(longest, width) {
  const all = DATA.runs.filter((r) => r.timeline).map((r) => columnsOf(r.timeline.all, 0, longest, width, 'bytes'));
  return ['up', 'down'].map((key) => Math.max(...all.map((columns) => columns.peak[key]), 0)).reduce((up, down) => ({ up, down }));
}

// What a run did over time, on the scales of all: the longest time, and the highest throughput.
function runLine(r, n, longest, pin) {
  const all = r.timeline.all, most = all.read.length - 1, begin = `runs.${n}.timeline.all`;
  let on = null;
  const gutter = (w) => (w < 560 ? 84 : 104);
  const x = (bin, w) => gutter(w) + (bin + .5) * all.bin_ns / longest * (w - gutter(w));
  const node = canvas(`Activity of ${r.name} over time, on the scales of all runs; arrow keys go through it`, 64, (g, w, h) => {
    const columns = columnsOf(all, 0, longest, w - gutter(w), 'bytes'), peak = peakOfRuns(longest, w - gutter(w));
    drawActivity(g, columns, peak, gutter(w), h - 2);
    peakLabels(g, peak, gutter(w) - 8, h - 2, rateOf);
    node.dataset.scale = JSON.stringify(peak);
  },
    (g, w, h) => { if (on === null) return; g.strokeStyle = css('--ink'); g.globalAlpha = .55; g.beginPath(); g.moveTo(x(on, w), 0); g.lineTo(x(on, w), h); g.stroke(); g.globalAlpha = 1; });
  const told = (bin) => [`${r.name}, ${time(bin * all.bin_ns)} to ${time((bin + 1) * all.bin_ns)}`, [['Read', fig(`${begin}.read.${bin}`, 'bytes')], ['Written', fig(`${begin}.written.${bin}`, 'bytes')], ['Operations', fig(`${begin}.operations.${bin}`, 'count')]]];
  const binAt = (event) => { const box = node.getBoundingClientRect(); return clamp(Math.floor((event.clientX - box.left - gutter(box.width)) / (box.width - gutter(box.width)) * longest / all.bin_ns), 0, most); };
  node.addEventListener('pointermove', (event) => { on = binAt(event); node.mark(); tip(event, ...told(on)); });
  node.addEventListener('pointerleave', () => { on = null; hideTip(); node.mark(); });
  node.addEventListener('blur', hideTip);
  node.addEventListener('click', (event) => pin.pin(...told(binAt(event))));
  node.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Enter' && on !== null) return pin.pin(...told(on));
    if (!step) return;
    event.preventDefault(); on = clamp((on === null ? -1 : on) + step, 0, most); node.mark();
    tip(at(node, x(on, node.clientWidth), 30), ...told(on));
  });
  return el('div', { class: 'chart', 'data-chart': 'run-' + n }, el('h3', {}, r.name), node);
}

// Reads and writes column by column, each the mean of its bins by the nanosecond, and the highest of both.
function columnsOf(a, from, to, width, what) {
  const up = prefix(what === 'bytes' ? a.read : a.read_ns), down = prefix(what === 'bytes' ? a.written : a.write_ns), bins = a.read.length;
  const columns = { ups: [], downs: [], peak: { up: 0, down: 0 } };
  for (let x = 0; x < width; x++) {
    const low = Math.floor((from + x / width * (to - from)) / a.bin_ns), high = Math.max(low + 1, Math.ceil((from + (x + 1) / width * (to - from)) / a.bin_ns));
    const span = Math.max(1, Math.min(high, bins) - low) * a.bin_ns;
    columns.ups.push(up(low, high) / span); columns.downs.push(down(low, high) / span);
    columns.peak.up = Math.max(columns.peak.up, columns.ups[x]); columns.peak.down = Math.max(columns.peak.down, columns.downs[x]);
  }
  return columns;
}

// Reads go up and writes go down, each on a scale of its own: few of the one are seen beside many of the other. What there is
// none of needs no room.
const zeroLine = (peak, y1) => (peak.down === 0 ? y1 - 1 : peak.up === 0 ? 1 : y1 / 2);
function drawActivity(g, { ups, downs }, peak, x0, y1) {
  const zero = zeroLine(peak, y1);
  g.fillStyle = css('--read');
  ups.forEach((value, x) => { if (value > 0) { const h = Math.max(1, value / peak.up * (zero - 1)); g.fillRect(x0 + x, zero - h, 1, h); } });
  g.fillStyle = css('--write');
  downs.forEach((value, x) => { if (value > 0) { const h = Math.max(1, value / peak.down * (y1 - zero - 1)); g.fillRect(x0 + x, zero, 1, h); } });
  g.strokeStyle = css('--line'); g.beginPath(); g.moveTo(x0, zero + .5); g.lineTo(x0 + ups.length, zero + .5); g.stroke();
}
const rateOf = (value) => bytes(Math.round(value * 1e9)) + '/s';
function peakLabels(g, peak, x, y1, written) {
  g.textAlign = 'right';
  const label = (value, y, baseline, colour) => { if (!(value > 0)) return; g.fillStyle = css(colour); g.textBaseline = baseline; g.fillText(written(value), x, y); };
  label(peak.up, 2, 'top', '--read'); label(peak.down, y1 - 2, 'bottom', '--write');
  const zero = zeroLine(peak, y1);
  g.fillStyle = css('--soft'); g.textBaseline = zero > y1 / 2 ? 'bottom' : zero < y1 / 2 ? 'top' : 'middle'; g.fillText('0', x, zero);
}

function timeline() {
  const line = RUN.timeline;
  if (!line || !line.lanes.length) return;
  const all = line.all, total = Math.max(RUN.totals.duration_ns, 1), phases = RUN.phases.phases;
  let from = 0, to = total, what = 'bytes', cursor = null, drag = null, lane = null, chosen = null;
  const gutter = (w) => (w < 560 ? 84 : 168), pin = pinned();
  // Where not all phases are listed, bands would end where the list does.
  const hasBands = phases.length > 1 && phases.length === RUN.phases.count;
  const xOf = (t, w) => gutter(w) + (t - from) / (to - from) * (w - gutter(w));
  const tOf = (x, w) => clamp(from + (x - gutter(w)) / (w - gutter(w)) * (to - from), from, to);
  const bands = (g, w, h) => {
    if (!hasBands) return;
    g.fillStyle = css('--phase');
    for (const p of phases) { const a = xOf(Math.max(p.begin_ns, from), w), b = xOf(Math.min(p.end_ns, to), w); if (p.end_ns > from && p.begin_ns < to) g.fillRect(a, 0, Math.max(1, b - a), h); }
  };
  const marks = (g, w, h) => {
    if (drag) { g.fillStyle = css('--accent'); g.globalAlpha = .16; g.fillRect(Math.min(drag[0], drag[1]), 0, Math.abs(drag[1] - drag[0]), h); g.globalAlpha = 1; }
    if (cursor !== null) { const x = xOf(cursor, w); g.strokeStyle = css('--ink'); g.globalAlpha = .55; g.beginPath(); g.moveTo(x, 0); g.lineTo(x, h); g.stroke(); g.globalAlpha = 1; }
  };
  const top = canvas('Bytes read and written over time, all processes together. Arrow keys move through time, plus and minus zoom.', 190, (g, w, h) => {
    const x0 = gutter(w), y1 = h - 22;
    bands(g, w, y1); timeAxis(g, x0, w, y1, from, to);
    const columns = columnsOf(all, from, to, w - x0, what);
    drawActivity(g, columns, columns.peak, x0, y1);
    peakLabels(g, columns.peak, x0 - 8, y1, what === 'bytes' ? rateOf : (value) => digits(value) + ' in I/O');
    top.dataset.scale = JSON.stringify(columns.peak);
  }, (g, w, h) => marks(g, w, h - 22));
  const rowHeight = line.lanes.length > 48 ? 10 : line.lanes.length > 16 ? 16 : 22;
  const sums = line.lanes.map((l) => ({ read: prefix(l.activity.read_ns), write: prefix(l.activity.write_ns), other: prefix(l.activity.other_ns) }));
  const lanes = canvas('Time in I/O by process. Arrow keys choose process and moment, Enter shows what it did.', line.lanes.length * rowHeight + 4, (g, w, h) => {
    const x0 = gutter(w), width = Math.floor(w - x0);
    bands(g, w, h);
    line.lanes.forEach((l, n) => {
      const y = n * rowHeight + 2, bin = l.activity.bin_ns, s = sums[n];
      if (chosen === n) { g.fillStyle = css('--sunk'); g.fillRect(0, y - 1, w, rowHeight); }
      g.fillStyle = chosen === n ? css('--ink') : css('--soft'); g.textAlign = 'right'; g.textBaseline = 'middle';
      if (rowHeight >= 16 || n % 3 === 0 || chosen === n) g.fillText(fit(g, l.label, x0 - 14), x0 - 8, y + rowHeight / 2 - 1);
      for (let x = 0; x < width; x++) {
        const a = Math.floor((from + x / width * (to - from)) / bin), b = Math.max(a + 1, Math.ceil((from + (x + 1) / width * (to - from)) / bin));
        const r = s.read(a, b), wr = s.write(a, b), o = s.other(a, b), busy = r + wr + o;
        if (busy <= 0) continue;
        g.globalAlpha = .2 + .8 * Math.sqrt(Math.min(1, busy / (bin * (b - a) * l.processes)));
        g.fillStyle = css(r >= wr && r >= o ? '--read' : wr >= o ? '--write' : '--other');
        g.fillRect(x0 + x, y, 1, rowHeight - 3);
      }
      g.globalAlpha = 1;
    });
  }, (g, w, h) => {
    marks(g, w, h);
    if (lane !== null && cursor !== null) { g.strokeStyle = css('--ink'); g.strokeRect(.5, lane * rowHeight + 1.5, w - 1, rowHeight - 1); }
  });
  const mark = () => { top.mark(); lanes.mark(); };
  const redraw = () => { top.redraw(); lanes.redraw(); reset.hidden = from === 0 && to === total; };
  const zoom = (a, b) => { const least = all.bin_ns * 8; if (b - a < least) { const m = (a + b) / 2; a = m - least / 2; b = m + least / 2; } from = clamp(a, 0, Math.max(0, total - least)); to = clamp(b, Math.min(total, from + least), total); redraw(); };
  const reset = el('button', { class: 'button', type: 'button', hidden: true, onclick: () => { from = 0; to = total; redraw(); } }, 'Show all');
  const binAt = (t) => clamp(Math.floor(t / all.bin_ns), 0, all.read.length - 1);
  const phaseAt = (t) => phases.findIndex((p) => t >= p.begin_ns && t <= p.end_ns);
  const inBin = (key, b, kind) => fig(run(`timeline.all.${key}.${b}`), kind);
  const rowsAt = (t) => { const b = binAt(t), p = phaseAt(t); return [['Read', inBin('read', b, 'bytes')], ['Written', inBin('written', b, 'bytes')], ['Operations', inBin('operations', b, 'count')],
    ['Time in reads', inBin('read_ns', b, 'time')], ['Time in writes', inBin('write_ns', b, 'time')], ['Neither', inBin('other_ns', b, 'time')], ...(phases.length > 1 && p >= 0 ? [['Phase', el('span', {}, `${p + 1} of `, fig(run('phases.count')))]] : [])]; };
  const title = (bin, ns) => `${time(bin * ns)} to ${time((bin + 1) * ns)}`;
  const pinAt = (t) => {
    const b = binAt(t);
    const busy = line.lanes.map((l, n) => { const a = l.activity, i = clamp(Math.floor(t / a.bin_ns), 0, a.read.length - 1); return [n, a.read_ns[i] + a.write_ns[i] + a.other_ns[i], a.read[i], a.written[i], i]; })
      .filter((x) => x[1] > 0 || x[2] > 0 || x[3] > 0).sort((x, y) => y[1] - x[1]);
    pin.pin(title(b, all.bin_ns), rowsAt(t), busy.length > 1 ? el('div', {}, el('div', { class: 'sub' }, 'In I/O around then, the busiest first:'),
      el('ol', {}, busy.slice(0, 8).map((x) => el('li', {}, `${line.lanes[x[0]].label}: `, fig(run(`timeline.lanes.${x[0]}.activity.read.${x[4]}`), 'bytes'), ' read, ', fig(run(`timeline.lanes.${x[0]}.activity.written.${x[4]}`), 'bytes'), ' written')))) : null);
  };
  const pinLane = (n, t) => {
    const l = line.lanes[n];
    chosen = lane = n; lanes.redraw();
    pin.pin(l.label, [['Operations', fig(run(`timeline.lanes.${n}.operations`))], ['I/O time', fig(run(`timeline.lanes.${n}.time_ns`))], ['Bytes read', fig(run(`timeline.lanes.${n}.bytes_read`))],
      ['Bytes written', fig(run(`timeline.lanes.${n}.bytes_written`))], ...(l.host ? [['Machine', l.host]] : [])], l.command ? el('p', { class: 'mono' }, l.command) : null);
    if (t !== undefined) cursor = t;
  };
  const laneTip = (event, n, t) => {
    const l = line.lanes[n], a = l.activity, b = clamp(Math.floor(t / a.bin_ns), 0, a.read.length - 1);
    tip(event, l.label, [[title(b, a.bin_ns), ''], ...[['Reading', 'read_ns', 'time'], ['Writing', 'write_ns', 'time'], ['Neither', 'other_ns', 'time'], ['Bytes read', 'read', 'bytes'], ['Bytes written', 'written', 'bytes']]
      .map(([name, key, kind]) => [name, fig(run(`timeline.lanes.${n}.activity.${key}.${b}`), kind)])]);
  };
  for (const node of [top, lanes]) {
    const local = (event) => event.clientX - node.getBoundingClientRect().left;
    const laneOf = (event) => clamp(Math.floor((event.clientY - node.getBoundingClientRect().top - 2) / rowHeight), 0, line.lanes.length - 1);
    node.addEventListener('pointerdown', (event) => { if (event.button === 0 && event.pointerType === 'mouse') { drag = [local(event), local(event)]; node.setPointerCapture(event.pointerId); } });
    node.addEventListener('pointermove', (event) => {
      cursor = tOf(local(event), node.clientWidth);
      if (drag) drag[1] = local(event);
      if (node === top) tip(event, title(binAt(cursor), all.bin_ns), rowsAt(cursor)); else { lane = laneOf(event); laneTip(event, lane, cursor); }
      mark();
    });
    node.addEventListener('pointerup', (event) => {
      const d = drag; drag = null;
      if (d && Math.abs(d[1] - d[0]) > 6) zoom(tOf(Math.min(...d), node.clientWidth), tOf(Math.max(...d), node.clientWidth));
      else if (node === top) pinAt(tOf(local(event), node.clientWidth)); else pinLane(laneOf(event), tOf(local(event), node.clientWidth));
    });
    node.addEventListener('pointercancel', () => { drag = null; mark(); });
    node.addEventListener('pointerleave', () => { if (!drag) { cursor = null; hideTip(); mark(); } });
    node.addEventListener('dblclick', () => { from = 0; to = total; redraw(); });
    node.addEventListener('blur', hideTip);
    node.addEventListener('keydown', (event) => {
      const step = Math.max(all.bin_ns, (to - from) / 100), mid = cursor === null ? (from + to) / 2 : cursor;
      if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') cursor = clamp(mid + (event.key === 'ArrowLeft' ? -step : step), 0, total);
      else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') { if (node === top) return; lane = clamp((lane === null ? -1 : lane) + (event.key === 'ArrowUp' ? -1 : 1), 0, line.lanes.length - 1); cursor = mid; }
      else if (event.key === '+' || event.key === '=') zoom(mid - (mid - from) / 2, mid + (to - mid) / 2);
      else if (event.key === '-') zoom(mid - (mid - from) * 2 - step, mid + (to - mid) * 2 + step);
      else if (event.key === 'Escape' || event.key === '0') { from = 0; to = total; hideTip(); }
      else if (event.key === 'Enter') { if (node === top) pinAt(mid); else pinLane(lane === null ? 0 : lane, mid); }
      else return;
      event.preventDefault();
      if (cursor !== null && (cursor < from || cursor > to)) { const span = to - from; from = clamp(cursor - span / 2, 0, total - span); to = from + span; }
      redraw();
      if (event.key.startsWith('Arrow')) { const where = at(node, xOf(cursor, node.clientWidth), node === top ? 30 : (lane || 0) * rowHeight); if (node === top) tip(where, title(binAt(cursor), all.bin_ns), rowsAt(cursor)); else laneTip(where, lane === null ? 0 : lane, cursor); }
    });
  }
  SELECT.timeline = (n) => pinLane(n);
  section('timeline', 'When', `Above, all processes together: reads go up, writes go down, each on a scale of its own. Below, a row for each process: the stronger the colour, the more of that time it spent in I/O. Drag to zoom, click for figures${hasBands ? '; shaded bands are I/O phases' : ''}.`,
    tools(reset, segmented('What the upper chart shows', [['bytes', 'Throughput'], ['time', 'Time in I/O']], what, (value) => { what = value; redraw(); })),
    legend(['--read', 'reads'], ['--write', 'writes'], ['--other', 'neither (open, close, sync …)']),
    el('div', { class: 'chart', 'data-chart': 'activity' }, top), el('div', { class: 'chart', 'data-chart': 'lanes' }, lanes), pin);
}

function fit(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 2 && g.measureText(cut + '…').width > width) cut = cut.slice(0, -1);
  return cut + '…';
}

function accesses() {
  if (!RUN.accesses.length) return;
  const pin = pinned(), rows = [];
  const choose = (n) => {
    const a = RUN.accesses[n], w = a.way;
    const pairs = (key, most) => listed(w[key].slice(0, most).map((_, i) => el('span', {}, fig(run(`accesses.${n}.way.${key}.${i}.0`), 'bytes'), ' × ', fig(run(`accesses.${n}.way.${key}.${i}.1`), 'count'))));
    rows.forEach((r, i) => r.setAttribute('aria-selected', String(i === n)));
    pin.pin(`${a.action} of ${a.name}`, [['Operations', fig(run(`accesses.${n}.way.operations`))], ['I/O time', fig(run(`accesses.${n}.way.time_ns`))], ['Bytes', fig(run(`accesses.${n}.way.bytes`))],
      ['Failed', fig(run(`accesses.${n}.failed`))], ...(w.sizes.length ? [['Sizes', pairs('sizes', 4)]] : []),
      ...(w.strides.length ? [['Distances', pairs('strides', 3)]] : []),
      ...(w.sizes.length ? [['Steps', listed(w.steps.map((s, i) => (s ? el('span', {}, STEP_NAMES[i] + ' ', fig(run(`accesses.${n}.way.steps.${i}`), 'count')) : null)).filter(Boolean))]] : [])],
      stackOf(a.site), a.file !== null && RUN.files[a.file].heat ? el('button', { class: 'button', type: 'button', onclick: () => goTo({ section: 'files', select: a.file }) }, 'Show this file') : null);
  };
  const usual = (w, n) => (w.sizes.length && w.sizes[0][1] * 2 > w.operations ? [fig(run(`accesses.${n}.way.sizes.0.0`), 'bytes'), ' '] : []);
  const site = (a) => (a.site === null ? null : RUN.sites[a.site].label);
  const most = Math.max(...RUN.accesses.map((a) => a.time_share), .0001);
  RUN.accesses.forEach((a, n) => {
    const row = el('tr', { class: 'pick', tabindex: 0, 'aria-selected': 'false', onclick: () => choose(n), onkeydown: (e) => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); choose(n); } } },
      el('td', { class: 'name' }, el('span', { class: kindClass(a.action) }, usual(a.way, n), `${a.way.sizes.length && a.way.word !== 'single' ? a.way.word + ' ' : ''}${a.action}`), el('small', {}, site(a) || '')),
      el('td', { class: 'name', title: a.name }, a.name.split('/').pop() || a.name, a.files > 1 ? el('small', {}, fig(run(`accesses.${n}.files`)), ' files') : null),
      el('td', { class: 'num wide' }, fig(run(`accesses.${n}.way.operations`))), el('td', { class: 'num wide' }, fig(run(`accesses.${n}.way.bytes`))),
      el('td', {}, el('div', { class: 'bar' }, el('i', { 'width%': a.time_share / most * 100 }), fig(run(`accesses.${n}.time_share`)))));
    rows.push(row);
  });
  const shown = 12, body = el('tbody'), more = listedIn(body, 'accesses', rows, shown, (row) => row);
  SELECT.accesses = (n) => { if (n >= shown && more) more.click(); choose(n); };
  section('accesses', 'Where the time went', 'One line for each kind of access: what is done, from where in the program, to which file. Choose one to see sizes, distances and the call stack.',
    el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'Access'), el('th', {}, 'File'), el('th', { class: 'num wide' }, 'Operations'), el('th', { class: 'num wide' }, 'Bytes'), el('th', {}, 'Share of I/O time'))), body)), more, pin);
}

function files() {
  if (!RUN.files.length) return;
  let chosen = RUN.files.findIndex((f) => f.heat), hover = null;
  if (chosen < 0) chosen = 0;
  const rows = [], pin = pinned(), title = el('h3', {}), note = el('p', { class: 'sub' });
  const heatOf = () => RUN.files[chosen].heat;
  const gutter = (w) => (w < 560 ? 62 : 84);
  let cells = new Map();
  const map = canvas('Where in the file bytes were moved, and when. Arrow keys move over the map.', (w) => (heatOf() ? Math.min(340, Math.max(220, w * .34)) : 0), (g, w, h) => {
    const heat = heatOf();
    if (!heat) return;
    const x0 = gutter(w), y1 = h - 22, cw = (w - x0) / heat.columns, ch = y1 / heat.rows;
    const span = heat.column_ns * heat.columns, most = Math.log1p(Math.max(...heat.cells.map((c) => Math.max(c[2], c[3]))));
    const step = niceBytes(heat.row_bytes * heat.rows, 5);
    g.fillStyle = css('--sunk'); g.fillRect(x0, 0, w - x0, y1);
    timeAxis(g, x0, w, y1, 0, span);
    g.textAlign = 'right'; g.fillStyle = css('--soft');
    for (let b = 0; b <= heat.row_bytes * heat.rows; b += step) { const y = y1 - b / (heat.row_bytes * heat.rows) * y1; g.textBaseline = b === 0 ? 'bottom' : y < 8 ? 'top' : 'middle'; g.fillText(bytes(b), x0 - 8, y); }
    const read = css('--read'), write = css('--write');
    for (const [c, r, rd, wr] of heat.cells) {
      const x = x0 + c * cw, y = y1 - (r + 1) * ch, draw = (value, colour, fx, fw) => { if (!value) return; g.globalAlpha = .25 + .75 * (most ? Math.log1p(value) / most : 1); g.fillStyle = colour; g.fillRect(x + fx * cw, y, Math.max(fw * cw, 1) + .35, ch + .35); };
      if (rd && wr) { draw(rd, read, 0, .5); draw(wr, write, .5, .5); } else { draw(rd, read, 0, 1); draw(wr, write, 0, 1); }
    }
    g.globalAlpha = 1;
  }, (g, w, h) => {
    const heat = heatOf(), x0 = gutter(w), y1 = h - 22;
    if (!heat || !hover) return;
    const cw = (w - x0) / heat.columns, ch = y1 / heat.rows;
    g.strokeStyle = css('--ink'); g.strokeRect(x0 + hover[0] * cw + .5, y1 - (hover[1] + 1) * ch + .5, cw, ch);
  });
  const describe = (c, r) => {
    const heat = heatOf(), cell = cells.get(c * 1000 + r);
    const moved = (part) => (cell === undefined ? bytes(0) : fig(run(`files.${chosen}.heat.cells.${cell}.${part}`), 'bytes'));
    return [`${time(c * heat.column_ns)}, ${bytes(r * heat.row_bytes)} to ${bytes((r + 1) * heat.row_bytes)}`, [['Read', moved(2)], ['Written', moved(3)]]];
  };
  const cellAt = (event) => {
    const heat = heatOf(), box = map.getBoundingClientRect(), x0 = gutter(box.width), y1 = box.height - 22;
    return [clamp(Math.floor((event.clientX - box.left - x0) / (box.width - x0) * heat.columns), 0, heat.columns - 1), clamp(Math.floor((y1 - (event.clientY - box.top)) / y1 * heat.rows), 0, heat.rows - 1)];
  };
  map.addEventListener('pointermove', (event) => { if (!heatOf()) return; hover = cellAt(event); map.mark(); tip(event, ...describe(...hover)); });
  map.addEventListener('pointerleave', () => { hover = null; hideTip(); if (heatOf()) map.mark(); });
  map.addEventListener('blur', hideTip);
  map.addEventListener('click', (event) => { if (heatOf()) pin.pin(...describe(...cellAt(event))); });
  map.addEventListener('keydown', (event) => {
    const heat = heatOf(), move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!heat || (!move && event.key !== 'Enter')) return;
    event.preventDefault();
    hover = hover || [0, 0];
    if (move) hover = [clamp(hover[0] + move[0], 0, heat.columns - 1), clamp(hover[1] + move[1], 0, heat.rows - 1)];
    map.mark();
    if (event.key === 'Enter') pin.pin(...describe(...hover));
    else { const w = map.clientWidth, y1 = map.clientHeight - 22; tip(at(map, gutter(w) + (hover[0] + 1) * (w - gutter(w)) / heat.columns, y1 - hover[1] * y1 / heat.rows), ...describe(...hover)); }
  });
  const way = (key, name) => {
    const w = RUN.files[chosen][key];
    return w ? el('span', {}, `${name}: ${w.word}`, w.sizes.length ? [', most often ', fig(run(`files.${chosen}.${key}.sizes.0.0`), 'bytes')] : []) : null;
  };
  const choose = (n) => {
    chosen = n; hover = null;
    rows.forEach((r, i) => r.setAttribute('aria-selected', String(i === n)));
    const f = RUN.files[n];
    cells = new Map((f.heat ? f.heat.cells : []).map((c, number) => [c[0] * 1000 + c[1], number]));
    title.textContent = f.name;
    const told = [way('reads', 'Reads'), way('writes', 'Writes'), f.processes > 1 ? el('span', {}, fig(run(`files.${n}.processes`)), ' processes') : null, f.heat ? null : 'No map: few bytes of it were moved.'];
    note.replaceChildren(...listed(told.filter(Boolean), ' · '));
    pin.replaceChildren(); map.hidden = !f.heat; map.redraw();
  };
  const most = Math.max(...RUN.files.map((f) => f.time_share), .0001);
  RUN.files.forEach((f, n) => rows.push(el('tr', { class: 'pick', tabindex: 0, 'aria-selected': 'false', onclick: () => choose(n), onkeydown: (e) => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); choose(n); } } },
    el('td', { class: 'name', title: f.name }, f.short, f.short === f.name ? null : el('small', {}, f.name.slice(0, -f.short.length))),
    el('td', { class: 'num wide' }, fig(run(`files.${n}.operations`))), el('td', { class: 'num' }, fig(run(`files.${n}.bytes_read`))), el('td', { class: 'num' }, fig(run(`files.${n}.bytes_written`))),
    el('td', {}, el('div', { class: 'bar' }, el('i', { 'width%': f.time_share / most * 100 }), fig(run(`files.${n}.time_share`)))))));
  const shown = 8, body = el('tbody', { 'data-list': 'files' });
  let isAll = false;
  const list = (word) => { const matching = rows.filter((r, n) => RUN.files[n].name.toLowerCase().includes(word)); body.replaceChildren(...(isAll || word ? matching : matching.slice(0, shown))); };
  const filter = el('input', { class: 'filter', type: 'search', placeholder: 'Filter by name', 'aria-label': 'Filter files by name', oninput: (e) => list(e.target.value.toLowerCase()) });
  const more = rows.length > shown ? el('button', { class: 'button', type: 'button', onclick: () => { isAll = true; list(filter.value.toLowerCase()); more.remove(); } }, `Show all ${count(rows.length)}`) : null;
  const left = RUN.files_left_out.files > 0 ? el('p', { class: 'sub' }, 'and ', fig(run('files_left_out.files')), ' more files, with ', fig(run('files_left_out.operations')), ' operations and ', fig(run('files_left_out.time_ns')), ' of I/O time') : null;
  SELECT.files = (n) => { if (n >= shown && more && !isAll) more.click(); choose(n); };
  list('');
  section('files', 'Files', 'Choose a file to see where in it bytes were moved, and when: upwards is further into the file, to the right is later. Stronger colours are more bytes.',
    rows.length > shown ? tools(filter) : null,
    el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'File'), el('th', { class: 'num wide' }, 'Operations'), el('th', { class: 'num' }, 'Read'), el('th', { class: 'num' }, 'Written'), el('th', {}, 'Share of I/O time'))), body)), more, left,
    RUN.timeline ? el('div', { class: 'chart', 'data-chart': 'heat' }, title, note, legend(['--read', 'read'], ['--write', 'written']), map) : null, pin);
  choose(chosen);
}

// A histogram of several series over the same buckets.
function histogram(node, list, base, unit, weight) {
  const pin = pinned();
  const draw = () => {
    const width = node.clientWidth || 500, height = 210, left = 44, bottom = 30, value = weight() === 'time' ? 3 : 2;
    const froms = [...new Set(list.flatMap((d) => d.buckets.map((b) => b[0])))].sort((a, b) => a - b);
    const first = froms[0], last = froms[froms.length - 1], edges = [];
    for (let f = first; f <= last; f = f === 0 ? 1 : f * 2) edges.push(f);
    const of = (d, f) => d.buckets.find((b) => b[0] === f);
    const most = Math.max(...list.flatMap((d) => d.buckets.map((b) => b[value])), 1);
    const band = (width - left) / edges.length, plot = svg('svg', { class: 'plot', viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: 'img', 'aria-label': `Histogram of ${list.map((d) => d.of).join(', ')} by ${unit === 'bytes' ? 'size' : 'duration'}; arrow keys go from bar to bar` });
    const step = niceStep(most, 3);
    for (let v = 0; v <= most; v += step) {
      const y = (height - bottom) * (1 - v / most * .94);
      plot.append(svg('line', { x1: left, x2: width, y1: y, y2: y, class: 'grid' }), svg('text', { x: left - 6, y: y + 4, 'text-anchor': 'end' }, value === 3 ? time(v).replace('\u00a0', ' ') : short(v)));
    }
    const show = (i, event, isPinned) => {
      const f = edges[i], to = f === 0 ? 0 : f * 2 - 1, title = unit === 'bytes' ? (f === to ? bytes(f) : `${bytes(f)} to ${bytes(to)}`) : `${time(f)} to ${time(f === 0 ? 1 : f * 2)}`;
      const rows = list.flatMap((d, n) => {
        const b = d.buckets.findIndex((it) => it[0] === f), of = (part, kind) => fig(`${base}.${n}.buckets.${b}.${part}`, kind);
        return b < 0 ? [] : [[`${d.of}s`, of(2, 'count')], ...(unit === 'time' ? [['time in these', of(3, 'time')]] : [])];
      });
      if (isPinned) pin.pin(title, rows); else tip(event, title, rows);
    };
    const every = Math.ceil(46 / band);
    const hits = edges.map((f, i) => {
      list.forEach((d, n) => {
        const b = of(d, f);
        if (!b || !b[value]) return;
        const h = Math.max(1.5, b[value] / most * .94 * (height - bottom)), w = Math.max(1.5, band * .82 / list.length);
        plot.append(svg('rect', { x: left + i * band + band * .09 + n * w, y: height - bottom - h, width: Math.max(1, w - 1), height: h, rx: Math.min(2, w / 3), fill: css(COLOURS[d.of]) }));
      });
      if (i % every === 0) plot.append(svg('text', { x: left + i * band + band / 2, y: height - 10, 'text-anchor': 'middle' }, (unit === 'bytes' ? bytes(f) : time(f)).replace('bytes', 'B').replace('byte', 'B')));
      const hit = svg('rect', { class: 'hit', x: left + i * band, y: 0, width: band, height: height - bottom });
      hit.addEventListener('pointermove', (event) => show(i, event));
      hit.addEventListener('pointerleave', hideTip);
      hit.addEventListener('click', (event) => show(i, event, true));
      return hit;
    });
    plot.append(...hits);
    let on = -1;
    plot.addEventListener('keydown', (event) => {
      if (event.key === 'ArrowLeft') on = Math.max(0, on - 1); else if (event.key === 'ArrowRight') on = Math.min(edges.length - 1, on + 1);
      else if (event.key === 'Enter' && on >= 0) return show(on, null, true); else return;
      event.preventDefault();
      hits.forEach((h, i) => h.classList.toggle('on', i === on));
      show(on, at(plot, left + (on + .5) * band, 40));
    });
    plot.addEventListener('blur', () => { hideTip(); hits.forEach((h) => h.classList.remove('on')); });
    plot.dataset.drawn = 'true';
    node.replaceChildren(plot, pin);
  };
  redraws.push(draw);
  const rows = list.map((d, n) => el('tr', {}, el('td', {}, el('span', { class: kindClass(d.of) }, d.of + (d.of === 'other' ? '' : 's'))), ['count', 'median', 'p90', 'p99', 'max'].map((key) => el('td', { class: 'num' }, fig(`${base}.${n}.${key}`)))));
  return el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, ''), ['Number', 'Median', '90 % below', '99 % below', 'Largest'].map((h) => el('th', { class: 'num' }, h)))), el('tbody', {}, rows)));
}
const short = (v) => (v >= 1e9 ? digits(v / 1e9) + 'G' : v >= 1e6 ? digits(v / 1e6) + 'M' : v >= 1e4 ? digits(v / 1e3) + 'k' : count(Math.round(v)));

function histograms() {
  if (RUN.sizes.length) {
    const chart = el('div', { class: 'chart', 'data-chart': 'sizes' });
    const table = histogram(chart, RUN.sizes, run('sizes'), 'bytes', () => 'count');
    section('sizes', 'How large', 'Requests by the bytes they ask for; each bar is a power of two.', legend(...RUN.sizes.map((d) => [COLOURS[d.of], d.of + 's'])), chart, table);
  }
  if (!RUN.latencies.length) return;
  let weight = 'count';
  const chart = el('div', { class: 'chart', 'data-chart': 'latencies' });
  const table = histogram(chart, RUN.latencies, run('latencies'), 'time', () => weight);
  const slow = RUN.slowest, pin = pinned();
  const body = el('tbody'), more = listedIn(body, 'slowest', slow, 10, (o, n) => el('tr', { class: 'pick', tabindex: 0, onclick: () => chooseSlow(n), onkeydown: (e) => { if (e.key === 'Enter') chooseSlow(n); } },
    el('td', { class: 'num' }, fig(run(`slowest.${n}.duration_ns`))), el('td', {}, el('span', { class: kindClass(o.action) }, o.action)), el('td', { class: 'name', title: o.name }, o.name.split('/').pop() || o.name), el('td', { class: 'num' }, fig(run(`slowest.${n}.len`), 'bytes')), el('td', { class: 'num wide' }, fig(run(`slowest.${n}.begin_ns`)))));
  const chooseSlow = (n) => { const o = slow[n]; pin.pin(`${o.action} of ${o.name}`, [['Took', fig(run(`slowest.${n}.duration_ns`))], ['Began', fig(run(`slowest.${n}.begin_ns`))], ['Process', o.process], ['Offset', fig(run(`slowest.${n}.offset`), 'count')], ['Asked for', fig(run(`slowest.${n}.len`), 'bytes')], ['Result', fig(run(`slowest.${n}.result`), 'count')]], stackOf(o.site)); };
  section('latencies', 'How long', 'Calls by the time they took; each bar is twice as long as the one before. Weighted by time, the bars say where the waiting is.',
    tools(segmented('How bars are weighted', [['count', 'Calls'], ['time', 'Time']], 'count', (value) => { weight = value; chart.redrawAll(); })),
    legend(...RUN.latencies.map((d) => [COLOURS[d.of], d.of === 'other' ? 'others' : d.of + 's'])), chart, table,
    slow.length ? el('h3', {}, 'The slowest operations') : null,
    slow.length ? el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', { class: 'num' }, 'Took'), el('th', {}, 'What'), el('th', {}, 'File'), el('th', { class: 'num' }, 'Asked for'), el('th', { class: 'num wide' }, 'Began at'))), body)) : null, more, pin);
  const mine = redraws[redraws.length - 1];
  chart.redrawAll = mine;
}

function sequentiality() {
  if (!RUN.sequentiality.length) return;
  const pin = pinned();
  const bars = [];
  const add = (name, steps, base) => {
    const total = sum(steps);
    if (!total) return;
    const pieces = steps.map((s, i) => {
      if (!s) return null;
      const rows = () => [[STEP_NAMES[i], fig(`${base}.steps.${i}`, 'count')]];
      const piece = el('button', { type: 'button', class: 'piece', 'width%': s / total * 100, background: `var(${STEP_COLOURS[i]})`, 'aria-label': `${name}: ${STEP_NAMES[i]} ${count(s)}`,
        onpointermove: (e) => tip(e, name, rows()), onpointerleave: hideTip, onfocus: (e) => tip(at(e.target, 10, 20), name, rows()), onblur: hideTip, onclick: () => pin.pin(`${name}: ${STEP_NAMES[i]}`, [['Accesses', fig(`${base}.steps.${i}`, 'count')]]) });
      return piece;
    });
    bars.push(el('div', { class: 'stackrow' }, el('div', { class: 'stackname', title: name }, name), el('div', { class: 'stack' }, pieces)));
  };
  RUN.sequentiality.forEach((s, n) => add(`all ${s.of}s`, s.steps, run(`sequentiality.${n}`)));
  RUN.files.slice(0, 5).forEach((f, n) => { for (const key of ['reads', 'writes']) if (f[key] && sum(f[key].steps) > 1) add(`${f.short} (${key})`, f[key].steps, run(`files.${n}.${key}`)); });
  section('sequentiality', 'In which order', 'Each access against the one before it, of the same process, file and direction: does it begin where that one ended, go on at the same distance, or jump?',
    legend(...STEP_NAMES.map((name, i) => [STEP_COLOURS[i], name])), el('div', { class: 'chart stacks', 'data-chart': 'sequentiality' }, bars), pin);
}

function loops() {
  if (!RUN.loops.length) return;
  let chosen = 0;
  const code = el('div', { class: 'code', 'data-chart': 'loops' }), pin = pinned(), about = el('p', { class: 'sub' });
  const call = (s, path) => {
    const line = el('button', { class: 'line', type: 'button' },
      el('span', { class: 'what' }, s.times > 1 ? el('span', { class: 'times' }, fig(path + '.times'), ' × ') : null, el('b', { class: kindClass(s.action) }, s.action), s.len !== null ? el('span', {}, ' ', fig(path + '.len', 'bytes')) : '', el('span', { class: 'dim' }, s.name ? ` ${s.name.split('/').pop()}` : ' various files'), s.failed ? el('span', { class: 'dim' }, ' (fails)') : '',
        s.site !== null ? el('span', { class: 'dim' }, `  ← ${RUN.sites[s.site].label}`) : null),
      el('span', { class: 'share', title: 'time in all calls like this one' }, fig(path + '.time_ns')));
    line.addEventListener('click', () => {
      code.querySelectorAll('.on').forEach((n) => n.classList.remove('on')); line.classList.add('on');
      pin.pin(`${s.action}${s.name ? ' of ' + s.name : ''}`, [['Such operations in all', fig(path + '.operations')], ['Time in them', fig(path + '.time_ns')], ['Bytes moved', fig(path + '.bytes')]], stackOf(s.site));
    });
    return line;
  };
  const render = (steps, path) => steps.map((s, i) => {
    const here = `${path}.${i}`, plural = (key, word) => [fig(`${here}.${key}`), ` ${word}${s[key] === 1 ? '' : 's'}`];
    if (s.kind === 'call') return call(s, here);
    if (s.kind === 'loop') return el('div', {}, el('div', { class: 'line' }, el('span', { class: 'what' }, s.letter ? el('span', { class: 'tag' }, s.letter) : null, el('span', { class: 'times' }, s.times > 1 ? ['repeat ', fig(here + '.times'), ' × '] : 'once '), el('span', { class: 'dim' }, plural('operations', 'operation'), s.times > 1 ? ' each' : ''))), el('div', { class: 'loop' }, render(s.body, here + '.body')));
    if (s.kind === 'again') return el('div', { class: 'line' }, el('span', { class: 'what' }, el('span', { class: 'tag' }, s.letter), el('span', { class: 'times' }, s.times > 1 ? [fig(here + '.times'), ' × '] : ''), el('span', { class: 'dim' }, 'as above, ', plural('operations', 'operation'), s.times > 1 ? ' each' : '')));
    if (s.kind === 'lost') return el('div', { class: 'line dim' }, '… records were lost here …');
    return el('div', { class: 'line dim' }, '… ', plural('steps', 'step'), ' more, ', plural('operations', 'operation'), ' …');
  });
  const draw = (n) => {
    chosen = n; const p = RUN.loops[n];
    about.replaceChildren(fig(run(`loops.${n}.operations`)), ' operations in ', fig(run(`loops.${n}.symbols`)), ' symbols', p.varies ? '; trip counts vary, the last ones are shown' : '');
    code.replaceChildren(...render(p.steps, run(`loops.${n}.steps`))); pin.replaceChildren();
  };
  SELECT.loops = draw;
  const picker = RUN.loops.length > 1 ? el('select', { class: 'filter', 'aria-label': 'Process', onchange: (e) => draw(Number(e.target.value)) }, RUN.loops.map((p, n) => el('option', { value: n }, p.process))) : null;
  section('loops', 'The program as loops', 'The grammar that the model has learned, written as nested loops: what the program does, how often, and from where. Choose a line for its call stack.', picker ? tools(picker) : null, about, code, pin);
  draw(0);
}

// A line over time or lags.
function lineChart(name, label, height, points, yMax, yMin, xFormat, yFormat, colour, onPick, extra) {
  let on = null;
  const gutter = 52;
  const node = canvas(label, height, (g, w, h) => {
    const y1 = h - 22, n = points.length, x = (i) => gutter + (n === 1 ? .5 : i / (n - 1)) * (w - gutter - 4), y = (v) => 6 + (1 - (v - yMin) / (yMax - yMin)) * (y1 - 8);
    g.textAlign = 'right'; g.textBaseline = 'middle';
    for (let k = 0; k <= 4; k++) { const v = yMin + (yMax - yMin) * k / 4; g.strokeStyle = css('--grid'); g.beginPath(); g.moveTo(gutter, y(v)); g.lineTo(w, y(v)); g.stroke(); g.fillStyle = css('--soft'); g.fillText(yFormat(v), gutter - 8, y(v)); }
    g.textBaseline = 'top';
    const ticks = Math.max(2, Math.floor((w - gutter) / 130));
    for (let k = 0; k <= ticks; k++) { const i = k / ticks * (n - 1); g.textAlign = k === 0 ? 'left' : k === ticks ? 'right' : 'center'; g.fillText(xFormat(i), x(i), y1 + 5); }
    if (extra) extra(g, x, y, y1);
    // Where there is nothing, a faint line leads on.
    g.strokeStyle = css(colour); g.lineWidth = 1; g.globalAlpha = .35; g.beginPath();
    points.map((v, i) => [v, i]).filter(([v]) => v !== null).forEach(([v, i], k) => (k ? g.lineTo(x(i), y(v)) : g.moveTo(x(i), y(v))));
    g.stroke(); g.globalAlpha = 1;
    g.lineWidth = 1.8; g.lineJoin = 'round'; g.beginPath();
    let pen = false;
    points.forEach((v, i) => { if (v === null) { pen = false; return; } if (pen) g.lineTo(x(i), y(v)); else g.moveTo(x(i), y(v)); pen = true; });
    g.stroke(); g.lineWidth = 1;
    points.forEach((v, i) => { if (v !== null && points[i - 1] == null && points[i + 1] == null) { g.fillStyle = css(colour); g.beginPath(); g.arc(x(i), y(v), 2, 0, 7); g.fill(); } });
  }, (g, w, h) => {
    const y1 = h - 22, n = points.length, x = (i) => gutter + (n === 1 ? .5 : i / (n - 1)) * (w - gutter - 4), y = (v) => 6 + (1 - (v - yMin) / (yMax - yMin)) * (y1 - 8);
    if (on !== null && points[on] !== null) { g.fillStyle = css(colour); g.beginPath(); g.arc(x(on), y(points[on]), 4, 0, 7); g.fill(); }
  });
  const indexAt = (event) => { const box = node.getBoundingClientRect(), n = points.length; return clamp(Math.round((event.clientX - box.left - gutter) / (box.width - gutter - 4) * (n - 1)), 0, n - 1); };
  node.addEventListener('pointermove', (event) => { on = indexAt(event); node.mark(); tip(event, ...onPick(on)); });
  node.addEventListener('pointerleave', () => { on = null; hideTip(); node.mark(); });
  node.addEventListener('blur', hideTip);
  const pin = pinned();
  node.addEventListener('click', (event) => pin.pin(...onPick(indexAt(event))));
  node.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Enter' && on !== null) return pin.pin(...onPick(on));
    if (!step) return;
    event.preventDefault(); on = clamp((on === null ? -1 : on) + step, 0, points.length - 1); node.mark();
    tip(at(node, gutter + on / Math.max(1, points.length - 1) * (node.clientWidth - gutter), 30), ...onPick(on));
  });
  return el('div', { class: 'chart', 'data-chart': name }, node, pin);
}

function prediction() {
  const p = RUN.prediction;
  if (!p) return;
  const facts = el('dl', { class: 'cards' }, [['Foreseen exactly', 'all.right_share', 'operation, file, offset and size'], ['Call foreseen', 'all.context_share', 'from which line of the program, and what'], ['Offset foreseen', 'all.offset_share', el('span', {}, 'of ', fig(run('prediction.all.transfers')), ' reads and writes, with their file')], ['Hit ratio', 'all.hit_ratio', 'common part of bytes expected and accessed'], ['Said with confidence', 'all.confident', 'operations'], ['Of those, right', 'all.confident_right', 'operations']]
    .map(([name, key, small]) => el('div', { class: 'stat' }, el('dt', {}, name), el('dd', {}, fig(run('prediction.' + key)), el('small', {}, small)))));
  const parts = [facts];
  if (p.bins.length > 1) {
    const points = p.bins.map((b) => b.right_share);
    parts.push(el('h3', {}, 'Foreseen exactly, over time'), lineChart('prediction', 'Share of operations that were foreseen exactly, over time; arrow keys go through it', 190, points, 1, 0, (i) => time(i * p.bin_ns), (v) => percent(v), '--good',
      (i) => [`${time(i * p.bin_ns)} to ${time((i + 1) * p.bin_ns)}`, [['Foreseen exactly', points[i] === null ? 'no operations' : fig(run(`prediction.bins.${i}.right_share`))], ...[['Operations', 'operations'], ['Right', 'right'], ['Call foreseen', 'context_share'], ['Offset foreseen', 'offset_share'], ['Hit ratio', 'hit_ratio']].map(([name, key]) => [name, fig(run(`prediction.bins.${i}.${key}`))])]]));
  }
  if (p.processes.length) {
    const body = el('tbody'), more = listedIn(body, 'processes', p.processes, 12, (q, n) => el('tr', {}, el('td', { class: 'name' }, q.process), el('td', { class: 'num' }, fig(run(`prediction.processes.${n}.all.operations`))), el('td', { class: 'num' }, fig(run(`prediction.processes.${n}.all.right_share`))), ['context_share', 'offset_share', 'hit_ratio'].map((key) => el('td', { class: 'num' }, fig(run(`prediction.processes.${n}.all.${key}`)))), el('td', { class: 'num' }, fig(run(`prediction.processes.${n}.perfect_after`))), el('td', { class: 'num wide' }, fig(run(`prediction.processes.${n}.symbols`))), el('td', { class: 'num wide' }, fig(run(`prediction.processes.${n}.memory`)))));
    parts.push(el('h3', {}, 'By process'), el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'Process'), ['Operations', 'Exactly', 'Call', 'Offset', 'Hit ratio', 'All known after'].map((h) => el('th', { class: 'num' }, h)), ['Symbols', 'Memory'].map((h) => el('th', { class: 'num wide' }, h)))), body)));
    if (more) parts.push(more);
  }
  if (p.operations_without > 0) parts.push(el('p', { class: 'sub' }, fig(run('prediction.operations_without')), ' operations were not judged: models are for the busiest processes, and one that foresees too little or becomes too large is given up.'));
  section('prediction', 'What could be foreseen', p.from === 'trace' ? 'Before each operation, a model that knew nothing at first says what will come; then it learns from what came. This is what prefetching can build on.' : 'As the run itself judged it, while it ran.', ...parts);
}

function prefetch() {
  const p = RUN.prefetch;
  if (!p) return;
  const total = p.bytes_useful + p.bytes_wasted, pin = pinned();
  const piece = (name, key, colour) => p[key] > 0 ? el('button', { type: 'button', class: 'piece', 'width%': p[key] / total * 100, background: `var(${colour})`, 'aria-label': `${name} ${bytes(p[key])}`, onpointermove: (e) => tip(e, name, [['Bytes', fig(run('prefetch.' + key))]]), onpointerleave: hideTip, onfocus: (e) => tip(at(e.target, 10, 20), name, [['Bytes', fig(run('prefetch.' + key))]]), onblur: hideTip, onclick: () => pin.pin(name, [['Bytes', fig(run('prefetch.' + key))]]) }) : null;
  const rows = p.reasons.map((r, n) => el('tr', {}, el('td', {}, r.reason), ['hints', 'bytes_asked', 'bytes_already', 'bytes_loaded'].map((key) => el('td', { class: 'num' }, fig(run(`prefetch.reasons.${n}.${key}`))))));
  const waits = el('tbody'), moreWaits = listedIn(waits, 'waits', p.waits, 12, (w, n) => el('tr', {}, el('td', { class: 'name', title: w.name }, w.name.split('/').pop() || w.name), el('td', {}, w.method), ['with_ns', 'without_ns', 'hidden_share'].map((key) => el('td', { class: 'num' }, fig(run(`prefetch.waits.${n}.${key}`))))));
  const decided = el('ul', { class: 'list' }), moreDecided = listedIn(decided, 'decided', RUN.decided, 40, (d) => el('li', {}, d));
  section('prefetch', 'What was loaded ahead', 'Bytes that were brought into memory before the program asked for them, and what became of them. Gaps that are loaded on purpose, because one large load is faster than several small ones, count among those that were not read.',
    total > 0 ? el('div', {}, legend(['--good', 'then read'], ['--other', 'not read']), el('div', { class: 'chart stacks', 'data-chart': 'prefetch' }, el('div', { class: 'stackrow' }, el('div', { class: 'stackname' }, fig(run('prefetch.useful_share')), ' then read'), el('div', { class: 'stack' }, piece('Then read', 'bytes_useful', '--good'), piece('Not read', 'bytes_wasted', '--other'))))) : el('p', { class: 'empty' }, p.advised ? 'Nothing was loaded ahead: it would not have paid, or there was nothing to load.' : 'Nothing was loaded ahead: the run was only watched.'), pin,
    rows.length ? el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'Reason'), ['Hints', 'Asked for', 'Already there', 'Loaded'].map((h) => el('th', { class: 'num' }, h)))), el('tbody', {}, rows))) : null,
    p.waits.length ? el('h3', {}, 'What a read waits, as the run measured it') : null,
    p.waits.length ? el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'File'), el('th', {}, 'Done'), ['With it', 'With nothing', 'Hidden'].map((h) => el('th', { class: 'num' }, h)))), waits)) : null, moreWaits,
    RUN.decided.length ? el('h3', {}, 'What was decided, and why') : null, RUN.decided.length ? decided : null, moreDecided);
}

function phases() {
  const ph = RUN.phases, p = ph.period;
  if (!p || !ph.count) return;
  const facts = el('dl', { class: 'cards' }, [['Period', 'phases.period.period_ns', p.method === 'phases' ? 'from one phase to the next' : p.method ? 'by how alike activity is' : 'no rhythm was found'], ['Confidence', 'phases.period.confidence', 'how even it is'], ['Length of a phase', 'phases.period.phase_ns', 'in the middle'], ['Time within phases', 'phases.period.in_phases', el('span', {}, fig(run('phases.count')), ` phase${ph.count === 1 ? '' : 's'}`)]]
    .map(([name, key, small]) => el('div', { class: 'stat' }, el('dt', {}, name), el('dd', {}, fig(run(key)), el('small', {}, small)))));
  const parts = [facts];
  if (p.correlation.length > 8) parts.push(el('h3', {}, 'How alike the activity is to itself, so much later'), lineChart('period', 'Autocorrelation of the activity by lag; arrow keys go through it', 170, p.correlation, 1, Math.min(-.25, ...p.correlation), (i) => time((i + 1) * p.lag_ns), (v) => v.toFixed(2), '--accent',
    (i) => [`${time((i + 1) * p.lag_ns)} later`, [['Alike', fig(run(`phases.period.correlation.${i}`), 'value')]]],
    (g, x, y, y1) => { if (p.period_ns === null) return; const i = p.period_ns / p.lag_ns - 1; if (i > p.correlation.length - 1) return; g.strokeStyle = css('--write'); g.setLineDash([4, 4]); g.beginPath(); g.moveTo(x(i), 0); g.lineTo(x(i), y1); g.stroke(); g.setLineDash([]); }));
  if (ph.phases.length > 1) {
    const row = (_, n) => el('tr', {}, el('td', { class: 'num' }, String(n + 1)), ['begin_ns', 'operations', 'bytes_read', 'bytes_written', 'time_ns'].map((key) => el('td', { class: 'num' }, fig(run(`phases.phases.${n}.${key}`)))));
    const body = el('tbody'), more = listedIn(body, 'phases', ph.phases, 8, row), isCut = ph.phases.length < ph.count;
    if (isCut) more.textContent = `Show ${count(ph.phases.length)}`;
    parts.push(el('h3', {}, 'Phases'), el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, ['', 'Began at', 'Operations', 'Read', 'Written', 'I/O time'].map((h) => el('th', { class: 'num' }, h)))), body)));
    if (more) parts.push(more);
    if (isCut) parts.push(el('p', { class: 'sub' }, `The first ${count(ph.phases.length)} of `, fig(run('phases.count')), ' are listed.'));
  }
  section('phases', 'The rhythm', 'Phases are operations without a long pause between them. A program that writes a checkpoint every minute has a period of a minute.', ...parts);
}

function unseen() {
  const none = el('p', { class: 'empty' }, 'Nothing that was noticed. A recording cannot know of what it does not see at all.');
  section('unseen', 'What was not seen', null, RUN.not_seen.length ? el('ul', { class: 'list' }, RUN.not_seen.map((t) => el('li', {}, t))) : none,
    RUN.notes.length ? el('h3', {}, 'Notes') : null, RUN.notes.length ? el('ul', { class: 'list' }, RUN.notes.map((t) => el('li', {}, t))) : null);
}

function foot() {
  $('foot').replaceChildren(
    el('p', {}, 'Every figure here stands in the document that ', el('code', {}, 'presagio report --json'), ' prints for the same input; the page contains it and nothing else. It uses no network.'),
    el('p', {}, 'Keys: ', el('kbd', {}, 'Tab'), ' goes from chart to chart, ', el('kbd', {}, '←'), ' ', el('kbd', {}, '→'), ' ', el('kbd', {}, '↑'), ' ', el('kbd', {}, '↓'), ' move within one, ', el('kbd', {}, 'Enter'), ' shows what is there, ', el('kbd', {}, '+'), ' ', el('kbd', {}, '−'), ' ', el('kbd', {}, 'Esc'), ' zoom the timeline.'),
    el('p', {}, `Presagio ${DATA.presagio}`));
}

// ---------- themes, sizes, runs ----------
function setTheme(theme, keep = true) {
  document.documentElement.dataset.theme = theme;
  palette.clear();
  if (keep) try { localStorage.setItem('presagio-theme', theme); } catch { /* a page from disk may have no storage */ }
  labelTheme();
  redrawAll();
}
function labelTheme() { const b = $('theme'); if (b) b.textContent = document.documentElement.dataset.theme === 'dark' ? 'Light' : 'Dark'; }
const redrawAll = () => { hideTip(); redraws.forEach((draw) => draw()); };

function nav() {
  const links = new Map(SECTIONS.map(([id, title]) => [id, el('a', { href: '#' + id, onclick: (e) => { e.preventDefault(); $(id).scrollIntoView(); $(id).focus({ preventScroll: true }); } }, title)]));
  $('nav').replaceChildren(el('ul', {}, [...links.values()].map((a) => el('li', {}, a))));
  const watch = new IntersectionObserver((entries) => {
    for (const e of entries) if (e.isIntersecting) { links.forEach((a, id) => (id === e.target.id ? a.setAttribute('aria-current', 'true') : a.removeAttribute('aria-current'))); }
  }, { rootMargin: '-20% 0px -70% 0px' });
  SECTIONS.forEach(([id]) => watch.observe($(id)));
}

function show(n) {
  AT = n; RUN = DATA.runs[n];
  redraws = []; SECTIONS.length = 0;
  for (const key of Object.keys(SELECT)) delete SELECT[key];
  $('main').replaceChildren();
  head(); comparison(); runPicker(); overview();
  section('findings', 'What was found', null, findingList(RUN.findings, `runs.${AT}.`));
  timeline(); accesses(); files(); histograms(); sequentiality(); loops(); prediction(); prefetch(); phases(); unseen();
  nav(); foot(); redrawAll();
}

document.addEventListener('DOMContentLoaded', () => {
  DATA = JSON.parse($('data').textContent);
  document.documentElement.dataset.theme = wanted();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (!stored()) setTheme(wanted(), false); });
  show(0);
  let width = innerWidth, waiting = 0;
  addEventListener('resize', () => { if (innerWidth === width) return; width = innerWidth; cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redrawAll); });
  let before = null;
  addEventListener('beforeprint', () => { before = document.documentElement.dataset.theme; setTheme('light', false); });
  addEventListener('afterprint', () => { if (before) setTheme(before, false); });
  addEventListener('scroll', hideTip, { passive: true });
  document.documentElement.dataset.ready = 'true';
});
})();

// What a page should show for a figure: written anew from the figure itself, in the unit that its name says.
import { readFileSync } from 'node:fs';

// How figures are written is the pages' own code; crates/page/tests/figures.json says what that has to give.
const tools = readFileSync(new URL('../../../page/src/tools.js', import.meta.url), 'utf8');
const { bytes, time, count, percent, times, value, text } = new Function(`${tools}\nreturn FORMATS;`)();
const FORMATS = {
  bytes, time, count, percent, times, value, text,
  rate: (v) => bytes(Math.round(v)) + '/s',
  each: (v) => count(Math.round(v)),
  rounded: (v) => bytes(Math.round(v)),
  seconds: (v) => time(v * 1e9),
  window: (us) => (us >= 1000 ? times(us / 1000) + ' ms' : times(us) + ' µs'),
  clock: (ms) => new Date(ms).toLocaleTimeString('en-GB'),
};

/** What stands under a path of a document; several paths with " + " between them are added up. */
export function look_up(document, path) {
  const one = (path) => path.split('.').reduce((at, key) => (at === null || at === undefined ? at : at[key]), document);
  if (!path.includes(' + ')) return one(path);
  return path.split(' + ').map(one).reduce((a, b) => a + b, 0);
}

/** The figures of a page, or of a part of it: where they come from, and what a reader sees. */
export const shown_figures = (page, within = 'body') => page.evaluate((within) => [...document.querySelectorAll(`${within} [data-figure]`)]
  .map((node) => ({ path: node.dataset.figure, kind: node.dataset.kind, value: node.dataset.value, text: node.textContent })), within);

/** What is wrong with a figure on a page, if something is. `unit` says in which unit a path is to be shown. */
export function fault(document, { path, kind, value, text }, unit) {
  const wanted = look_up(document, path);
  if (wanted === undefined) return `${path} is not in the document`;
  if (JSON.stringify(wanted) !== value) return `${path} is ${JSON.stringify(wanted)}, and the page took it for ${value}`;
  if (!FORMATS[kind]) return `${path} is shown as ${kind}, which is no kind`;
  const meant = unit(path);
  if (meant && kind !== meant) return `${path} is shown as ${kind}, and is ${meant}`;
  const written = wanted === null ? '–' : FORMATS[kind](wanted);
  return text === written ? null : `${path} shows “${text}”, not “${written}”`;
}

// Small tools of both pages: elements, figures as people read them, the tip beside the pointer, light and dark. Text goes into
// the page as text nodes only, whatever it contains.
'use strict';

const $ = (id) => document.getElementById(id);

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'class') node.className = value;
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'width%') node.style.width = value + '%';
    else if (key === 'background') node.style.background = value;
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const palette = new Map();           // the theme's colours, looked up once
function css(name) {
  if (!palette.has(name)) palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return palette.get(name);
}
const sum = (list) => list.reduce((a, b) => a + b, 0);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// ---------- figures as people read them ----------
// As readable.rs writes them: three digits, halves go up, no zeros behind the point that say nothing.
const rounded = (value, places) => (Math.round(value * 10 ** places) / 10 ** places).toFixed(places);
const digits = (value) => { const text = rounded(value, value >= 100 ? 0 : value >= 10 ? 1 : 2); return text.includes('.') ? text.replace(/\.?0+$/, '') : text; };
function bytes(value) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let unit = 0, v = Math.abs(value);
  while (v >= 1024 && unit < 6) { v /= 1024; unit++; }
  return (value < 0 ? '−' : '') + (unit === 0 ? String(v) : digits(v)) + '\u00a0' + (unit === 0 && v === 1 ? 'byte' : units[unit]);
}
function time(ns) {
  if (ns < 1e3) return digits(ns) + '\u00a0ns';
  if (ns < 1e6) return digits(ns / 1e3) + '\u00a0µs';
  if (ns < 1e9) return digits(ns / 1e6) + '\u00a0ms';
  if (ns < 120e9) return digits(ns / 1e9) + '\u00a0s';
  if (ns < 7200e9) return digits(ns / 60e9) + '\u00a0min';
  return digits(ns / 3600e9) + '\u00a0h';
}
const count = (value) => (Number.isInteger(value) ? String(value) : rounded(value, 2)).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
const percent = (share) => {
  const p = share * 100;
  return (p === 0 || p >= 99.95 || (p >= 9.95 && p < 99) ? rounded(p, 0) : rounded(p, 1)) + '\u00a0%';
};
const FORMATS = { bytes, time, count, percent, times: digits, value: (v) => v.toFixed(3), text: String };
const format = (value, kind) => (value === null || value === undefined ? '–' : FORMATS[kind](value));

// ---------- tooltip ----------
function tip(event, title, rows) {
  const box = $('tip');
  box.replaceChildren(el('b', {}, title), ...rows.map(([name, value]) => el('div', {}, el('span', {}, name), el('span', {}, value))));
  box.hidden = false;
  const x = event.clientX, y = event.clientY, w = box.offsetWidth, h = box.offsetHeight;
  box.style.left = clamp(x + 14 + w > innerWidth - 6 ? x - w - 14 : x + 14, 6, Math.max(6, innerWidth - w - 6)) + 'px';
  box.style.top = clamp(y + 18 + h > innerHeight - 6 ? y - h - 12 : y + 18, 6, Math.max(6, innerHeight - h - 6)) + 'px';
}
const hideTip = () => { $('tip').hidden = true; };
const at = (node, fx, fy) => { const r = node.getBoundingClientRect(); return { clientX: r.left + fx, clientY: r.top + fy }; };

const stored = () => { try { return localStorage.getItem('presagio-theme'); } catch { return null; } };
const wanted = () => stored() || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');

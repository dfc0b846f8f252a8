// Whether text can be read, and marks told from their ground (WCAG 2: 4.5 and 3): by the colours of a theme, and by what the browser
// really paints under each text.

/** What of the theme's colours has too little contrast, as sentences. */
export const faint_colours = (page) => page.evaluate(() => {
  const style = getComputedStyle(document.documentElement);
  const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.trim().slice(at, at + 2), 16) / 255);
  const luminance = (hex) => { const [r, g, b] = parse(hex).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const contrast = (a, b) => { const [x, y] = [luminance(style.getPropertyValue(a)), luminance(style.getPropertyValue(b))].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
  const text = ['--ink', '--soft', '--accent', '--read', '--write', '--good', '--bad'].flatMap((c) => ['--card', '--sunk', '--bg'].map((ground) => [c, ground, 4.5]));
  const marks = ['--read', '--write', '--other', '--good', '--warn'].map((c) => [c, '--card', 3]);
  const all = [...text, ...marks].map(([c, ground, least]) => [c, ground, contrast(c, ground), least]);
  return all.filter(([, , has, least]) => !(has >= least)).map(([c, ground, has]) => `${c} on ${ground} has a contrast of ${has.toFixed(2)}`);
});

/** Texts that have too little contrast with what is painted below them, as sentences, and how many texts there are. */
export const faint_texts = (page) => page.evaluate(() => {
  // What the browser says of a colour: rgb(1, 2, 3), rgba(1, 2, 3, 0.5), color(srgb 0.1 0.2 0.3 / 0.5).
  const parse = (text) => {
    const numbers = text.match(/[\d.]+(e-?\d+)?/g).map(Number), scale = text.startsWith('color') ? 1 : 255;
    return [...numbers.slice(0, 3).map((n) => n / scale), numbers.length > 3 ? numbers[3] : 1];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((c, n) => c * a + below[n] * (1 - a));
  const luminance = (colour) => { const [r, g, b] = colour.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (node) => (node === null ? [1, 1, 1] : over(parse(getComputedStyle(node).backgroundColor), ground(node.parentElement)));
  const has_text = (node) => [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim() !== '');
  const texts = [...document.querySelectorAll('body *')].filter((node) => has_text(node) && node.checkVisibility() && !node.closest('svg, script, style, noscript, option, .skip'));
  const faint = texts.map((node) => {
    const below = ground(node), style = getComputedStyle(node), text = over(parse(style.color), below);
    const [light, dark] = [luminance(text), luminance(below)].sort((a, b) => b - a);
    return [(light + 0.05) / (dark + 0.05), `“${node.textContent.trim().slice(0, 30)}” (${node.tagName}.${node.className})`];
  }).filter(([contrast]) => !(contrast >= 4.5));
  return [faint.map(([contrast, what]) => `${what} has a contrast of ${contrast.toFixed(2)}`), texts.length];
});

/** Says of a page what cannot be read. */
export async function legible(page, name, check) {
  for (const faint of await faint_colours(page)) check(false, `${name}: ${faint}`);
  const [faint, texts] = await faint_texts(page);
  check(texts > 20, `${name}: only ${texts} texts`);
  check(faint.length === 0, `${name}: ${faint.slice(0, 5).join('; ')}`);
}

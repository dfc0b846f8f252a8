// Writes figures as the pages do.
//
//   node figures.mjs TOOLS.js TABLE.json
//
// TABLE.json: lines of kind, value and text. Prints the texts that the tools make of the values, as JSON.
import { readFileSync } from 'node:fs';

const [tools, table] = process.argv.slice(2).map((path) => readFileSync(path, 'utf8'));
const FORMATS = new Function(`${tools}\nreturn FORMATS;`)();
console.log(JSON.stringify(JSON.parse(table).map(([kind, value]) => FORMATS[kind](value))));

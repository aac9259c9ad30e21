import { readFileSync, writeFileSync } from 'node:fs';
import { renderAccessDocument } from './access-document.js';

/** Writes the tables of docs/operating/access.md again, after a change of the access table. */
const file = new URL('../../../../docs/operating/access.md', import.meta.url);
writeFileSync(file, renderAccessDocument(readFileSync(file, 'utf8')));

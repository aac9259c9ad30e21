// `nx run simulation:museum`: finds every bug of the museum by the seed that is written down for it, and prints the table of
// docs/museum.md. `--search` tries more worlds and says which seeds have to be written down.
import { parseArgs } from 'node:util';
import { MUSEUM, findingSeed } from '../museum/museum.js';

/** Worlds that are tried with `--search`. */
const MOST_SEEDS = 500;

const { values } = parseArgs({ options: { search: { type: 'boolean', default: false }, only: { type: 'string', default: '' } } });
for (const piece of MUSEUM.filter(({ name }) => name.includes(values.only))) {
  try {
    const seed = await findingSeed(piece, values.search ? 1 : piece.seed, values.search ? MOST_SEEDS : 1);
    const note = seed === piece.seed ? '' : `, and ${piece.seed} is written down`;
    process.stdout.write(`${piece.name}: seed ${seed}${note}\n`);
  } catch (reason) {
    process.stdout.write(`${String(reason)}\n`);
    process.exitCode = 1;
  }
}

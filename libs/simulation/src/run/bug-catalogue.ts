// `nx run simulation:bug-catalogue` runs the recorded world of every known bug, with and without
// the bug, and prints the rows of docs/bug-catalogue.md. `--search` tries further worlds from
// `--from` on and prints the seeds to record; `--only TEXT` selects the bugs whose names contain
// the text.
import { parseArgs } from 'node:util';
import { FAULTY_RUNTIMES } from '../bug-catalogue/faulty-runtimes.js';
import { BUG_CATALOGUE, findSeed } from '../bug-catalogue/bug-catalogue.js';
import { toRuntimeRow, toWorldRow } from '../bug-catalogue/catalogue-table.js';

/** Number of seeds to try for each bug. */
const MAX_SEEDS = 500;

const { values } = parseArgs({
  options: {
    search: { type: 'boolean', default: false },
    from: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
  },
});
const from = Number(values.from);
if (!Number.isInteger(from) || from < 1) throw new Error('--from must be a whole number above 0');

for (const bug of BUG_CATALOGUE.filter(({ name }) => name.includes(values.only))) {
  try {
    const seed = await findSeed(
      bug,
      values.search ? from : bug.seed,
      values.search ? MAX_SEEDS : 1,
    );
    process.stdout.write(
      values.search
        ? `${bug.name}: seed ${seed} (recorded: ${bug.seed})\n`
        : `${toWorldRow(bug)}\n`,
    );
  } catch (reason) {
    process.stderr.write(`${String(reason)}\n`);
    process.exitCode = 1;
  }
}
if (!values.search) process.stdout.write(`${FAULTY_RUNTIMES.map(toRuntimeRow).join('\n')}\n`);

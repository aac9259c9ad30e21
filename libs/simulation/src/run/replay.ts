// `nx run simulation:replay -- --seed 42` runs one world and prints its trace.
import { parseArgs } from 'node:util';
import { runSeed } from './run-seed.js';

const { values } = parseArgs({ options: { seed: { type: 'string' } } });
const seed = Number(values.seed);
if (!Number.isInteger(seed)) throw new Error('--seed must be a whole number');

const { violations, convergedMs, commits, acknowledged } = await runSeed(seed, {
  onLine: (line) => process.stdout.write(`${line}\n`),
});
const outcome =
  violations.length === 0
    ? `converged ${convergedMs} ms after the healing`
    : violations.join('\n  ');
process.stdout.write(
  `\nseed ${seed}: ${commits} commits, ${acknowledged} acknowledged writes\n  ${outcome}\n`,
);
process.exitCode = violations.length === 0 ? 0 : 1;

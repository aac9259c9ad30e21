// Chaos on real processes: see README.md. The run happens in a network namespace of its own, so
// that it reaches the machines of the cluster and ends with them.
import { setMaxListeners } from 'node:events';
import { findProblem, isInside, runInside, untilStopped } from './own-network.js';
import { UsageError, USAGE, parseOptions } from './options.js';
import { formatTable, summarise } from './outcome.js';
import { runChaos } from './run.js';

const EXIT_VIOLATION = 1;
const EXIT_USAGE = 2;
/** The machine lacks something that a run needs. */
const EXIT_CANNOT_RUN = 3;

async function main(): Promise<number> {
  const args = process.argv.slice(2);
  if (args.includes('--help')) {
    process.stdout.write(USAGE);
    return 0;
  }
  const options = parseOptions(args, Date.now() % 1_000_000);
  const problem = findProblem(['etcd', 'nft']);
  if (problem !== undefined) {
    process.stderr.write(`chaos: cannot run here: ${problem}\n`);
    return EXIT_CANNOT_RUN;
  }
  if (!isInside()) return runInside();
  setMaxListeners(0);
  process.stdout.write(`seed ${options.seed}\n`);
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  const result = await runChaos(options, print, untilStopped());
  const violations = [
    ...result.outcomes.flatMap((outcome) =>
      outcome.violations.map((text) => `${outcome.fault} ${outcome.target}: ${text}`),
    ),
    ...result.finalViolations,
  ];
  process.stdout.write(
    `\n${formatTable(summarise(result.outcomes))}\n\n` +
      `${result.acknowledged} writes acknowledged, ${result.logLines} log lines followed, ` +
      `${result.history.writes} writes and ${result.history.reads} reads checked for one order, ` +
      `${violations.length} violations, seed ${options.seed}\n`,
  );
  for (const text of violations) process.stdout.write(`VIOLATION: ${text}\n`);
  process.stdout.write(`logs of all programs: ${options.logs}\n`);
  return violations.length === 0 ? 0 : EXIT_VIOLATION;
}

try {
  process.exit(await main());
} catch (reason) {
  if (!(reason instanceof UsageError)) throw reason;
  process.stderr.write(`chaos: ${reason.message}\n\n${USAGE}`);
  process.exit(EXIT_USAGE);
}

// A service under updates and faults, on real processes: see ../../README.md.
import { setMaxListeners } from 'node:events';
import { UsageError } from '../options.js';
import { findProblem, isInside, runInside, untilStopped } from '../own-network.js';
import { FOREIGN_PROGRAMS } from './foreign-clients.js';
import { PASSWORD_PROGRAMS } from './password-workloads.js';
import { SERVICE_USAGE, parseServiceOptions } from './options.js';
import { runServices } from './run.js';

const EXIT_VIOLATION = 1;
const EXIT_USAGE = 2;
/** The machine lacks something that a run needs. */
const EXIT_CANNOT_RUN = 3;

async function main(): Promise<number> {
  const args = process.argv.slice(2);
  if (args.includes('--help')) {
    process.stdout.write(SERVICE_USAGE);
    return 0;
  }
  const options = parseServiceOptions(args);
  const problem = findProblem([
    ...['etcd', 'nft', 'nc'],
    ...(options.clients ? FOREIGN_PROGRAMS : []),
    ...(options.passwords ? PASSWORD_PROGRAMS : []),
  ]);
  if (problem !== undefined) {
    process.stderr.write(`chaos:services: cannot run here: ${problem}\n`);
    return EXIT_CANNOT_RUN;
  }
  if (!isInside()) return runInside();
  setMaxListeners(0);
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  const violations = await runServices(options, print, untilStopped());
  print(`\n${violations.length} violations`);
  for (const text of violations) print(`VIOLATION: ${text}`);
  print(`logs of all programs: ${options.logs}`);
  return violations.length === 0 ? 0 : EXIT_VIOLATION;
}

try {
  process.exit(await main());
} catch (reason) {
  if (!(reason instanceof UsageError)) throw reason;
  process.stderr.write(`chaos:services: ${reason.message}\n\n${SERVICE_USAGE}`);
  process.exit(EXIT_USAGE);
}

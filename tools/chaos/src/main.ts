// Chaos on real processes: see README.md. The run happens in a network namespace of its own, so
// that it reaches the machines of the cluster and ends with them.
import { spawn, spawnSync } from 'node:child_process';
import { setMaxListeners } from 'node:events';
import { findMachinesProblem } from '@cloudless/e2e';
import { UsageError, USAGE, parseOptions } from './options.js';
import { formatTable, summarise } from './outcome.js';
import { runChaos } from './run.js';

const EXIT_VIOLATION = 1;
const EXIT_USAGE = 2;
const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** The machine lacks something that a run needs. */
const EXIT_CANNOT_RUN = 3;
/** Set for the process that has the network namespace. */
const INSIDE = 'CLOUDLESS_CHAOS_INSIDE';

/** Returns why there can be no run on this machine; undefined when there can be one. */
function findProblem(): string | undefined {
  const problem = findMachinesProblem();
  if (problem !== undefined) return problem;
  const missing = ['etcd', 'nft'].filter((name) => spawnSync(name, ['--version']).error);
  return missing.length === 0 ? undefined : `not installed: ${missing.join(', ')}`;
}

/**
 * Runs this program again in a new network namespace. The other process ends the cluster when it
 * gets a signal, and when its input ends because this process was killed.
 */
function runInside(): Promise<number> {
  const [, script = '', ...args] = process.argv;
  const command = ['--net', process.execPath, ...process.execArgv, script, ...args];
  const env = { ...process.env, [INSIDE]: 'yes' };
  const child = spawn('unshare', command, { stdio: ['pipe', 'inherit', 'inherit'], env });
  for (const signal of STOP_SIGNALS) process.on(signal, () => child.kill('SIGTERM'));
  return new Promise((resolve) => child.once('exit', (code) => resolve(code ?? EXIT_VIOLATION)));
}

/** Returns a signal that aborts when the run must end early. */
function untilStopped(): AbortSignal {
  const stopping = new AbortController();
  for (const signal of STOP_SIGNALS) process.on(signal, () => stopping.abort());
  process.stdin.once('end', () => stopping.abort()).resume();
  return stopping.signal;
}

async function main(): Promise<number> {
  const args = process.argv.slice(2);
  if (args.includes('--help')) {
    process.stdout.write(USAGE);
    return 0;
  }
  const options = parseOptions(args, Date.now() % 1_000_000);
  const problem = findProblem();
  if (problem !== undefined) {
    process.stderr.write(`chaos: cannot run here: ${problem}\n`);
    return EXIT_CANNOT_RUN;
  }
  if (process.env[INSIDE] === undefined) return runInside();
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

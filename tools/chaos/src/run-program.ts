import { setMaxListeners } from 'node:events';
import { UsageError } from './flags.js';
import { createStopSignal, findProblem, isInside, runInside } from './own-network.js';

const EXIT_VIOLATION = 1;
/** Something came too late, and the machine may be the reason. */
const EXIT_LATE = 4;
const EXIT_USAGE = 2;
/** The machine lacks something that a run needs. */
const EXIT_CANNOT_RUN = 3;

/** Findings of a run. */
export interface Verdict {
  readonly violations: readonly string[];
  /** Changes that a slow machine explains, when times are not judged. Default: none. */
  readonly late?: readonly string[];
}

/** A program that runs a cluster and checks what its clients see. */
export interface ChaosProgram<Options extends { readonly logs: string }> {
  /** Name of the program in messages. */
  readonly name: string;
  readonly usage: string;
  /** Parses the flags. Throws {@link UsageError} when they are wrong. */
  readonly parse: (args: readonly string[]) => Options;
  /** Returns the names of other programs that must be installed. */
  readonly listPrograms: (options: Options) => readonly string[];
  /** Runs the cluster, prints lines of progress, and returns what was found. */
  readonly run: (
    options: Options,
    print: (line: string) => void,
    stopSignal: AbortSignal,
  ) => Promise<Verdict>;
}

/**
 * Runs a program with the arguments of this process, in a network namespace of its own, and ends
 * this process.
 */
export async function runProgram<Options extends { readonly logs: string }>(
  program: ChaosProgram<Options>,
): Promise<never> {
  try {
    process.exit(await runToExitCode(program));
  } catch (reason) {
    if (!(reason instanceof UsageError)) throw reason;
    process.stderr.write(`${program.name}: ${reason.message}\n\n${program.usage}`);
    process.exit(EXIT_USAGE);
  }
}

async function runToExitCode<Options extends { readonly logs: string }>({
  name,
  usage,
  parse,
  listPrograms,
  run,
}: ChaosProgram<Options>): Promise<number> {
  const args = process.argv.slice(2);
  if (args.includes('--help')) {
    process.stdout.write(usage);
    return 0;
  }
  const options = parse(args);
  const problem = findProblem(listPrograms(options));
  if (problem !== undefined) {
    process.stderr.write(`${name}: cannot run here: ${problem}\n`);
    return EXIT_CANNOT_RUN;
  }
  if (!isInside()) return runInside();
  setMaxListeners(0);
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  const { violations, late = [] } = await run(options, print, createStopSignal());
  for (const text of violations) print(`VIOLATION: ${text}`);
  print(`logs of all programs: ${options.logs}`);
  for (const text of late) process.stderr.write(`LATE: ${text}\n`);
  if (violations.length > 0) return EXIT_VIOLATION;
  return late.length > 0 ? EXIT_LATE : 0;
}

import { faultNames, type FaultName } from './faults/names.js';
import { UsageError, readFlags, readNumber } from './flags.js';

/** Parsed flags of a run. */
export interface ChaosOptions {
  /** Faults in this order; undefined: chosen at random for `minutes`. */
  readonly faults: readonly FaultName[] | undefined;
  readonly minutes: number;
  readonly seed: number;
  readonly writers: number;
  readonly coordinators: number;
  readonly agents: number;
  /** Time for which all coordinators are down, milliseconds. */
  readonly outageMs: number;
  /** Bundle of an earlier coordinator; undefined: replacements are of the same version. */
  readonly previousBundle: string | undefined;
  /** Factor of the time limits; undefined: times are shown and not judged. */
  readonly timeFactor: number | undefined;
  /** Directory for the logs of all programs at the end. */
  readonly logs: string;
}

/** Factor of the time limits on a machine that also does other work. */
const TOLERANCE = 3;

/** The faults of the short run, about a minute. */
export const SHORT_SCRIPT: readonly FaultName[] = [
  'kill-leader',
  'lose-etcd-majority',
  'pause-leader',
  'cut-store-to-leader',
  'kill-both-leaders',
  'cut-agent',
];

/** Help text of the program. */
export const USAGE = `Usage: npm run chaos -- [flags]

Runs three etcd members, coordinators and agents in network namespaces, with clients, and injects
faults. Prints a table of faults and outcomes; exits with 1 when an expectation was violated. Needs
Linux, root, etcd and nft.

  --minutes N          length of a run with random faults (default 5)
  --seed S             seed of the random choices (default: from the clock, printed)
  --short              a short fixed script instead of random faults
  --faults A,B*3,…     these faults in this order instead; *3: three times
  --writers N          clients that write (default 50)
  --coordinators N     1 to 3 (default 3)
  --agents N           2 to 9 (default 5)
  --outage SECONDS     time for which kill-all-coordinators leaves none (default 10)
  --previous FILE      bundle of an earlier coordinator for replace-coordinators
  --strict             judge times by their limits, not by three times these, which leaves room for
                       other work on the machine
  --untimed            do not judge times: for a slow or very busy machine
  --logs DIRECTORY     for the logs of all programs and history.jsonl (default /tmp/cloudless-chaos)

Faults: ${faultNames.join(', ')}
`;

/**
 * Parses the flags.
 * @param seed - The seed when no flag names one.
 * @throws {@link UsageError} for an unknown flag or fault, or a number out of its range.
 */
export function parseOptions(args: readonly string[], seed: number): ChaosOptions {
  const values = readFlags(args, {
    minutes: { type: 'string' },
    seed: { type: 'string' },
    short: { type: 'boolean' },
    faults: { type: 'string' },
    writers: { type: 'string' },
    coordinators: { type: 'string' },
    agents: { type: 'string' },
    outage: { type: 'string' },
    previous: { type: 'string' },
    strict: { type: 'boolean' },
    untimed: { type: 'boolean' },
    logs: { type: 'string' },
  });
  if (values.strict === true && values.untimed === true)
    throw new UsageError('--strict and --untimed exclude each other: give one of them');
  return {
    faults: values.short === true ? SHORT_SCRIPT : parseFaults(values.faults),
    minutes: readNumber('minutes', values.minutes, 5, [0.1, 1_440]),
    seed: readNumber('seed', values.seed, seed, [0, Number.MAX_SAFE_INTEGER]),
    writers: readNumber('writers', values.writers, 50, [1, 1_000]),
    coordinators: readNumber('coordinators', values.coordinators, 3, [1, 3]),
    agents: readNumber('agents', values.agents, 5, [2, 9]),
    outageMs: readNumber('outage', values.outage, 10, [1, 3_600]) * 1_000,
    previousBundle: values.previous,
    timeFactor: values.untimed === true ? undefined : values.strict === true ? 1 : TOLERANCE,
    logs: values.logs ?? '/tmp/cloudless-chaos',
  };
}

/** Parses `kill-leader*3,step-down`. */
function parseFaults(text: string | undefined): readonly FaultName[] | undefined {
  return text?.split(',').flatMap((item) => {
    const [name = '', times = '1'] = item.split('*');
    const known = faultNames.find((each) => each === name);
    if (known === undefined)
      throw new UsageError(
        `--faults: there is no fault ${name}; there are ${faultNames.join(', ')}`,
      );
    if (!/^[1-9]\d{0,2}$/.test(times))
      throw new UsageError(`--faults ${item}: give a number from 1 to 999 after *`);
    return Array.from({ length: Number(times) }, () => known);
  });
}

import type { Violation } from '@cloudless/base';
import type { Ulimit, WorkloadSpec } from '../gen.js';

/**
 * Names of the limits that a spec can set.
 * @see getrlimit(2)
 */
const NAMES = [
  'core',
  'memlock',
  'msgqueue',
  'nice',
  'nofile',
  'nproc',
  'rtprio',
  'sigpending',
  'stack',
];
/**
 * Limits that also affect the process of the runtime that starts the container, and could end that
 * process.
 */
const RESERVED_NAMES = ['as', 'cpu', 'data', 'fsize', 'locks', 'rss', 'rttime'];
/** Smallest `nofile`: the process that starts the container needs open files itself. */
const MIN_FILES = 256n;
/** The value that means no limit. */
const UNLIMITED = -1n;

/** Returns true for a limit that cannot be set for the container alone. */
export function isReservedForRuntime(name: string): boolean {
  return RESERVED_NAMES.includes(name);
}

/**
 * Returns the effective soft and hard limit; -1: no limit. A hard limit of 0 means the soft limit.
 */
export function resolveUlimit({ soft, hard }: Pick<Ulimit, 'soft' | 'hard'>): {
  readonly soft: bigint;
  readonly hard: bigint;
} {
  return { soft, hard: hard === 0n ? soft : hard };
}

/** Validates the limits of each process. The paths of the violations start with `spec`. */
export function* validateUlimits({ ulimits }: WorkloadSpec): Generator<Violation> {
  const names = new Set<string>();
  for (const [index, ulimit] of ulimits.entries()) {
    const field = `spec.ulimits[${index}]`;
    const { name } = ulimit;
    if (!NAMES.includes(name) && !isReservedForRuntime(name)) {
      yield {
        field: `${field}.name`,
        message: `${JSON.stringify(name)} is not a limit; expected one of ${NAMES.join(', ')}`,
      };
    }
    if (names.has(name)) yield { field: `${field}.name`, message: `"${name}" is used twice` };
    names.add(name);
    const problem = findProblem(ulimit);
    if (problem !== undefined) yield { field: `${field}.soft`, message: problem };
  }
}

/** Returns why the values of a limit are invalid; undefined when they are valid. */
function findProblem(ulimit: Ulimit): string | undefined {
  const { soft, hard } = resolveUlimit(ulimit);
  const max = BigInt(Number.MAX_SAFE_INTEGER);
  for (const value of [soft, hard])
    if (value > max) return `${value} is above ${max}; -1 is no limit`;
  const isAbove = hard !== UNLIMITED && (soft === UNLIMITED || soft > hard);
  if (isAbove) return `${soft === UNLIMITED ? 'no limit' : soft} is above hard, ${hard}`;
  if (ulimit.name !== 'nofile' || soft === UNLIMITED || soft >= MIN_FILES) return undefined;
  return `${soft} is below ${MIN_FILES}, which the start of a container needs`;
}

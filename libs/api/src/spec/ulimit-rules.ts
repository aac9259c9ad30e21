import type { Violation } from '@cloudless/base';
import type { Ulimit, WorkloadSpec } from '../gen.js';

/** @see getrlimit(2) */
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
/** Limits that would end or starve the process of the runtime that starts the container. */
const RESERVED_NAMES = ['as', 'cpu', 'data', 'fsize', 'locks', 'rss', 'rttime'];
/** The process that starts a container needs open files itself. */
const MIN_FILES = 256n;
const UNLIMITED = -1n;

/** True for a limit that cannot be set for the container alone. */
export function isReservedForRuntime(name: string): boolean {
  return RESERVED_NAMES.includes(name);
}

/** Returns the effective soft and hard limit. A hard limit of 0 equals the soft limit. */
export function resolveUlimit({ soft, hard }: Pick<Ulimit, 'soft' | 'hard'>): {
  readonly soft: bigint;
  readonly hard: bigint;
} {
  return { soft, hard: hard === 0n ? soft : hard };
}

/** Validates the limits of each process. Paths start with `spec`. */
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

function findProblem(ulimit: Ulimit): string | undefined {
  const { soft, hard } = resolveUlimit(ulimit);
  const most = BigInt(Number.MAX_SAFE_INTEGER);
  for (const value of [soft, hard])
    if (value > most) return `${value} is above ${most}; -1 is no limit`;
  const isAbove = hard !== UNLIMITED && (soft === UNLIMITED || soft > hard);
  if (isAbove) return `${soft === UNLIMITED ? 'no limit' : soft} is above hard, ${hard}`;
  if (ulimit.name !== 'nofile' || soft === UNLIMITED || soft >= MIN_FILES) return undefined;
  return `${soft} is below ${MIN_FILES}, which the start of a container needs`;
}

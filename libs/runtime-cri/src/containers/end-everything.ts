import {
  CloudlessError,
  errorFields,
  errorMessageOf,
  sleep,
  type Clock,
  type ContainerId,
  type Log,
} from '@cloudless/base';
import type { Sandboxes } from './sandboxes.js';

/** Needs of {@link endEverything}. */
export interface EndOptions {
  readonly sandboxes: Sandboxes;
  /** Resolves when no container is being made any more. */
  readonly starts: Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  readonly limitMs: number;
}

/** As many at a time as a runtime does well. */
const AT_ONCE = 8;
const RETRY_MS = 500;

/**
 * Ends and removes all that is ours: containers in any state, sandboxes, logs. What fails is tried
 * again until the limit.
 * @throws kind `deadline` with what is left, and why.
 */
export async function endEverything({
  sandboxes,
  starts,
  clock,
  log,
  limitMs,
}: EndOptions): Promise<void> {
  let left: readonly ContainerId[] = [];
  let lastFailure: unknown;
  const limit = new AbortController();
  const work = async (): Promise<void> => {
    let isLast = false;
    while (!limit.signal.aborted) {
      try {
        left = await sandboxes.containerIds();
        if (left.length === 0) {
          if (isLast) return;
          await starts;
          isLast = true;
          continue;
        }
        log.info('containers are ended', { count: left.length });
        await forEach(left, (containerId) => sandboxes.removeAllOf(containerId));
      } catch (reason) {
        lastFailure = reason;
        log.warn('containers not ended, tried again', errorFields(reason));
        await sleep(clock, RETRY_MS, limit.signal).catch(() => undefined);
      }
    }
  };
  const late = sleep(clock, limitMs, limit.signal).then(() => {
    const why =
      lastFailure === undefined
        ? 'the container runtime is slow or stuck: see its log'
        : errorMessageOf(lastFailure);
    const what =
      left.length === 0 ? 'the containers of this node' : `${left.length} containers of this node`;
    throw new CloudlessError('deadline', `${what} were not ended in ${limitMs} ms: ${why}`, {
      cause: lastFailure,
    });
  });
  late.catch(() => undefined);
  try {
    await Promise.race([work(), late]);
  } finally {
    limit.abort();
  }
}

/** All of them, some at a time. @throws The first failure, when all have been tried. */
async function forEach<Item>(
  items: readonly Item[],
  action: (item: Item) => Promise<void>,
): Promise<void> {
  const rest = items[Symbol.iterator]();
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    for (const item of rest) await action(item).catch((reason: unknown) => failures.push(reason));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (failures.length > 0) throw failures[0];
}

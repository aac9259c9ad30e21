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

export interface RemoveAllOptions {
  readonly sandboxes: Sandboxes;
  /** Resolves when no container is being started any more. */
  readonly starts: Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  readonly limitMs: number;
}

/** Number of containers that are removed in parallel. */
const PARALLEL_REMOVALS = 8;
const RETRY_MS = 500;

/**
 * Kills and removes everything of this owner: containers in any state, sandboxes, logs. Failures
 * are retried until the limit.
 * @throws kind `deadline` with the number of remaining containers and the last failure.
 */
export async function removeAllContainers({
  sandboxes,
  starts,
  clock,
  log,
  limitMs,
}: RemoveAllOptions): Promise<void> {
  let left: readonly ContainerId[] = [];
  let lastFailure: unknown;
  const limit = new AbortController();
  const work = async (): Promise<void> => {
    let isLast = false;
    while (!limit.signal.aborted) {
      try {
        left = await sandboxes.listContainerIds();
        if (left.length === 0) {
          if (isLast) return;
          await starts;
          isLast = true;
          continue;
        }
        log.info('removing containers', { count: left.length });
        await forEachParallel(left, (containerId) => sandboxes.removeAllOf(containerId));
      } catch (reason) {
        lastFailure = reason;
        log.warn('containers not removed, trying again', errorFields(reason));
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
    throw new CloudlessError('deadline', `${what} were not removed within ${limitMs} ms: ${why}`, {
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

/**
 * Runs an action for all items, {@link PARALLEL_REMOVALS} in parallel.
 * @throws The first failure, after all items were tried.
 */
async function forEachParallel<Item>(
  items: readonly Item[],
  action: (item: Item) => Promise<void>,
): Promise<void> {
  const rest = items[Symbol.iterator]();
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    for (const item of rest) await action(item).catch((reason: unknown) => failures.push(reason));
  };
  await Promise.all(Array.from({ length: PARALLEL_REMOVALS }, worker));
  if (failures.length > 0) throw failures[0];
}

import {
  backoffDelayMs,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
} from '@cloudless/base';
import type { ProcessSockets } from './listening-sockets.js';

/** Time after which a successor closes inherited sockets of services that no longer exist. */
const UNUSED_SOCKETS_MS = 15_000;
/**
 * Time without a new connection after which inherited sockets are replaced, milliseconds. A
 * predecessor closes its listening sockets within this time after the takeover.
 */
const QUIET_MS = 1_000;
/** Longest wait for such a time, milliseconds: others cannot use the ports while it lasts. */
const MAX_WAIT_MS = 600_000;
/** Delay before another attempt. At first short: a port may be free now, so clients are refused. */
const RETRY: BackoffPolicy = { firstMs: 20, maxMs: QUIET_MS, jitter: 0.2 };

type Sockets = Pick<
  ProcessSockets,
  'pendingCount' | 'passedCount' | 'startPending' | 'closeUnused'
>;

export interface EndTakeoverDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** True while this process hands its sockets to a successor, which gets them as they are. */
  readonly isHandingOver: () => boolean;
}

/**
 * Ends the use of inherited sockets that this process does not keep. Call this function right after
 * the takeover. Sockets that exclude servers of this process are replaced after a second without new
 * connections, at the latest after 10 minutes; sockets without a server are closed after 15 s.
 */
export function endTakeover(sockets: Sockets, deps: EndTakeoverDeps): void {
  const { clock, random, log, isHandingOver } = deps;
  const beganMs = clock.now();
  let failures = 0;
  let isUnusedClosed = false;
  const startPending = async (): Promise<number> => {
    const problems = await sockets.startPending();
    failures = problems.length === 0 ? 0 : failures + 1;
    if (failures === 1) log.warn('ports of the earlier proxy not free; trying again', { problems });
    return failures === 0 ? QUIET_MS : backoffDelayMs(RETRY, failures, random);
  };
  const check = async (passedBefore: number): Promise<void> => {
    const isQuiet = sockets.passedCount === passedBefore;
    const isLate = clock.now() - beganMs >= MAX_WAIT_MS;
    const mayReplace = (isQuiet || isLate) && !isHandingOver();
    const delayMs = mayReplace ? await startPending() : QUIET_MS;
    if (!isUnusedClosed || sockets.pendingCount > 0) wait(delayMs);
  };
  const wait = (ms: number): void => {
    const passed = sockets.passedCount;
    clock.setTimer(ms, () => void check(passed));
  };
  clock.setTimer(UNUSED_SOCKETS_MS, () => {
    isUnusedClosed = true;
    sockets.closeUnused();
  });
  wait(QUIET_MS);
}

import { createIdentityClient } from '@cloudless/api';
import type { KnownLeader, ReportRefusal } from '@cloudless/api-server';
import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import type { LeaderConnections } from './leader-connections.js';

export interface RefusalReporterDeps {
  readonly clock: Clock;
  /** Returns the leader that this coordinator knows. */
  readonly getLeader: () => KnownLeader | undefined;
  readonly connections: Pick<LeaderConnections, 'connect'>;
}

/** Refusals that wait for the leader at once; more are only logged. */
const MAX_WAITING = 100;
/** Longest duration of a call, and delay before the next attempt, milliseconds. */
const CALL_TIMEOUT_MS = 5_000;
const RETRY_MS = 1_000;
/** Attempts for one refusal: more than an election takes. */
const MAX_ATTEMPTS = 8;

/**
 * Creates a function that lets the leader write the audit record of a call which this coordinator has
 * refused. An attempt whose outcome is unknown is repeated, so a record may be written twice.
 * @throws the last failure when the leader is not reached, and kind `exhausted` when too many
 *   refusals wait.
 */
export function createRefusalReporter(deps: RefusalReporterDeps): ReportRefusal {
  const { clock, getLeader, connections } = deps;
  let waiting = 0;
  const send = async (call: Parameters<ReportRefusal>[0]): Promise<void> => {
    const leader = getLeader();
    if (leader === undefined || leader.address === '')
      throw new CloudlessError('unavailable', 'no coordinator leads at the moment');
    const limit = new AbortController();
    const timer = clock.setTimer(CALL_TIMEOUT_MS, () => limit.abort());
    try {
      const transport = await connections.connect(leader, limit.signal);
      await createIdentityClient(transport).recordRefusedCalls(
        { calls: [call] },
        { signal: limit.signal },
      );
    } finally {
      timer.cancel();
    }
  };
  return async (call) => {
    if (waiting >= MAX_WAITING)
      throw new CloudlessError('exhausted', 'too many refused calls wait for their audit record');
    waiting += 1;
    try {
      for (let attempt = 1; ; attempt += 1) {
        try {
          return await send(call);
        } catch (reason) {
          if (attempt >= MAX_ATTEMPTS) throw reason;
        }
        await sleep(clock, RETRY_MS);
      }
    } finally {
      waiting -= 1;
    }
  };
}

import { StoppedError, errorKindOf, sleep, type Clock, type Timer } from '@cloudless/base';
import type { LeaseId } from '@cloudless/state-store';
import type { ElectionStore } from './campaign.js';
import { ACT_AFTER_RENEWAL_MS, RENEWAL_INTERVAL_MS, RENEWAL_RETRY_MS } from './election-timing.js';
import type { LeadershipMetrics } from './leadership-metrics.js';
import type { MutableTerm } from './leadership-term.js';
import { createLeaseEndedCause } from './loss-causes.js';

export interface LeaseRenewalDeps {
  readonly store: Pick<ElectionStore, 'keepAlive'>;
  readonly clock: Clock;
  readonly metrics: LeadershipMetrics;
}

/** The lease of a term, with the time at which the request that granted it was sent. */
export interface TermLease {
  readonly lease: LeaseId;
  readonly sentAtMs: number;
}

/**
 * Renews the lease of a term, with at most one renewal in flight, and moves the end of the term
 * with each answer.
 * @returns What ended the term, once it is no longer active.
 */
export async function renewWhileActive(
  deps: LeaseRenewalDeps,
  term: MutableTerm,
  { lease, sentAtMs }: TermLease,
): Promise<unknown> {
  const { clock } = deps;
  const ended = new AbortController();
  const stop = (): void => ended.abort();
  term.signal.addEventListener('abort', stop, { once: true });
  const watchDeadline = (): void => {
    if (term.isActive) timer = setDeadlineTimer();
    else stop();
  };
  const setDeadlineTimer = (): Timer =>
    clock.setTimer(Math.max(MIN_DELAY_MS, term.deadlineMs - clock.now()), watchDeadline);
  let timer = setDeadlineTimer();
  if (term.signal.aborted) stop(); // a listener of its beginning ended it
  try {
    for (let nextAtMs = sentAtMs + RENEWAL_INTERVAL_MS; ;) {
      await sleep(clock, nextAtMs - clock.now(), ended.signal);
      const renewalSentAtMs = clock.now();
      const outcome = await stopWaiting(renew(deps, term, lease), ended.signal);
      if (outcome === 'gone') return createLeaseEndedCause(term.deadlineMs - clock.now());
      if (outcome === 'renewed') term.extend(renewalSentAtMs + ACT_AFTER_RENEWAL_MS);
      nextAtMs =
        outcome === 'renewed'
          ? renewalSentAtMs + RENEWAL_INTERVAL_MS
          : clock.now() + RENEWAL_RETRY_MS;
    }
  } catch (reason) {
    if (!ended.signal.aborted) throw reason;
    return term.createLimitCause();
  } finally {
    timer.cancel();
    term.signal.removeEventListener('abort', stop);
  }
}

/** Sends one renewal. Never rejects. */
async function renew(
  { store, clock, metrics }: LeaseRenewalDeps,
  term: MutableTerm,
  lease: LeaseId,
): Promise<'renewed' | 'failed' | 'gone'> {
  const sentAtMs = clock.now();
  term.recordRenewal({ sentAtMs });
  try {
    await store.keepAlive(lease);
    metrics.observeRenewal('ok', clock.now() - sentAtMs);
    return 'renewed';
  } catch (reason) {
    metrics.observeRenewal('failed', clock.now() - sentAtMs);
    term.recordRenewal({ sentAtMs, failure: reason });
    return errorKindOf(reason) === 'notFound' ? 'gone' : 'failed';
  }
}

/**
 * Resolves with `work`.
 * @throws StoppedError when `signal` is aborted first; `work` then goes on without a reader.
 */
function stopWaiting<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(new StoppedError(signal.reason));
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    void work.then((result) => {
      signal.removeEventListener('abort', onAbort);
      resolve(result);
    }, reject);
  });
}

/** A timer that fires a rounding error too early is set again with this delay, milliseconds. */
const MIN_DELAY_MS = 1;

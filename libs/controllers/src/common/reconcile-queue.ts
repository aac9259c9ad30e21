import {
  WorkQueue,
  logFailure,
  noMeter,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type WorkResult,
} from '@cloudless/base';

/** Passes of one control loop that run at a time, so that a slow commit delays few other objects. */
const CONCURRENCY = 16;

export interface ReconcileQueueDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Default: no metrics. */
  readonly meter?: Meter | undefined;
}

export interface ReconcileLoop {
  /** Name of the loop in metrics. */
  readonly loop: string;
  /** Field of the log for the id of the object. */
  readonly keyField: 'nodeId' | 'workloadId';
  /** Message of the log for a failed pass. */
  readonly failure: string;
  /** Runs one pass over the object with this id. */
  readonly handle: (id: string) => Promise<WorkResult>;
}

/**
 * Creates the queue of a control loop over objects of one kind. A failed pass is logged and retried
 * after 20 ms, then after growing delays up to 5 s.
 */
export function createReconcileQueue(
  { clock, random, log, meter }: ReconcileQueueDeps,
  { loop, keyField, failure, handle }: ReconcileLoop,
): WorkQueue<string> {
  return new WorkQueue<string>({
    clock,
    random,
    handle,
    metrics: { meter: meter ?? noMeter, loop },
    onError: (id, reason) => logFailure(log, failure, reason, { [keyField]: id }),
    backoff: { firstMs: 20, maxMs: 5_000, jitter: 0.2 },
    concurrency: CONCURRENCY,
  });
}

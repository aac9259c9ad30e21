import { SecondLimit, type Log, type Random } from '@cloudless/base';
import type { AccessRecord } from '../ports.js';
import { CLOSED } from '../stream/splice.js';

/** Share of the successful connections in the access log. */
const DEFAULT_SAMPLE = 0.01;
/** Failed connections in the access log in each second. */
const FAILURES_PER_SECOND = 20;

/** Writes a sample of the successful connections and, up to a rate, the failed ones. */
export class AccessLog {
  private readonly failures = new SecondLimit(FAILURES_PER_SECOND);

  constructor(
    private readonly options: {
      readonly log: Log;
      readonly random: Random;
      readonly sample: number | undefined;
      readonly onAccess: ((record: AccessRecord) => void) | undefined;
    },
  ) {}

  /** Returns whether the record of a connection that ends now with `result` is to be written. */
  isSampled(result: string, nowMs: number): boolean {
    const { random, sample = DEFAULT_SAMPLE } = this.options;
    if (result === CLOSED) return sample > 0 && random.next() < sample;
    return this.failures.take(nowMs);
  }

  write(record: AccessRecord): void {
    const { onAccess, log } = this.options;
    if (onAccess !== undefined) onAccess(record);
    else log.info('network connection', { ...record });
  }
}

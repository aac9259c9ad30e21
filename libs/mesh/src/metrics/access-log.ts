import type { Log, Random } from '@cloudless/base';
import type { AccessRecord } from '../ports.js';
import { CLOSED } from '../stream/splice.js';

/** Share of the successful connections in the access log. */
const DEFAULT_SAMPLE = 0.01;
/** Failed connections in the access log in each interval. */
const FAILURES_PER_INTERVAL = 20;
const INTERVAL_MS = 1_000;

/** Writes a sample of the successful connections and, up to a rate, the failed ones. */
export class AccessLog {
  private failures = 0;
  private intervalMs = -Infinity;

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
    if (nowMs - this.intervalMs >= INTERVAL_MS) {
      this.intervalMs = nowMs;
      this.failures = 0;
    }
    this.failures += 1;
    return this.failures <= FAILURES_PER_INTERVAL;
  }

  write(record: AccessRecord): void {
    const { onAccess, log } = this.options;
    if (onAccess !== undefined) onAccess(record);
    else log.info('network connection', { ...record });
  }
}

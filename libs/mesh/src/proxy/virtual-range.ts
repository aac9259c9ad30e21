import {
  backoffDelayMs,
  errorFields,
  errorMessageOf,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';

/** Delay before a range that could not be prepared is tried again. */
const RETRY: BackoffPolicy = { firstMs: 200, maxMs: 30_000, jitter: 0.2 };
/** Interval at which a range is prepared again, milliseconds: others may remove its route. */
const CHECK_MS = 30_000;

export interface VirtualRangeOptions {
  /** Makes a range reachable. Does nothing for a range that is. */
  readonly prepare: (cidr: string) => Promise<void>;
  /** Called each time when the range is reachable. */
  readonly onReady: () => void;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Keeps the range of virtual addresses reachable on this machine. */
export class VirtualRange {
  private cidr = '';
  private failures = 0;
  private lastProblem: string | undefined;
  private timer: Timer | undefined;

  constructor(private readonly options: VirtualRangeOptions) {}

  /** Reason why the range is not reachable, as a text for people. */
  get problem(): string | undefined {
    return this.lastProblem;
  }

  /** Makes a range reachable from now on, in place of an earlier range. */
  serve(cidr: string): void {
    if (cidr === this.cidr) return;
    this.cidr = cidr;
    this.failures = 0;
    this.timer?.cancel();
    if (cidr !== '') void this.prepare(cidr);
  }

  close(): void {
    this.serve('');
  }

  private async prepare(cidr: string): Promise<void> {
    const { prepare, onReady, clock, random, log } = this.options;
    let delayMs = CHECK_MS;
    try {
      await prepare(cidr);
      if (this.cidr !== cidr) return;
      this.failures = 0;
      this.lastProblem = undefined;
      onReady();
    } catch (reason) {
      if (this.cidr !== cidr) return;
      this.failures += 1;
      this.lastProblem = `virtual addresses of ${cidr} are not served: ${errorMessageOf(reason)}`;
      if (this.failures === 1)
        log.warn('virtual addresses are not served; trying again', {
          cidr,
          ...errorFields(reason),
        });
      delayMs = backoffDelayMs(RETRY, this.failures, random);
    }
    this.timer = clock.setTimer(delayMs, () => void this.prepare(cidr));
  }
}

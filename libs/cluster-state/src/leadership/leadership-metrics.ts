import { DURATION_BUCKETS, type Meter } from '@cloudless/base';

/** Metrics of the leadership of a coordinator that takes part in elections. */
export class LeadershipMetrics {
  private readonly changes;
  private readonly leading;
  private readonly renewals;
  private readonly renewalSeconds;

  constructor(meter: Meter) {
    this.leading = meter.gauge({
      name: 'cloudless_leadership_is_leader',
      help: '1 while this coordinator leads, 0 while it follows.',
    });
    this.changes = meter.counter({
      name: 'cloudless_leadership_changes_total',
      help: 'Changes of the role of this coordinator, by change: gained or lost.',
      labels: ['change'],
    });
    this.renewals = meter.counter({
      name: 'cloudless_leadership_renewals_total',
      help: 'Renewals of the leader lease, by result: ok or failed.',
      labels: ['result'],
    });
    this.renewalSeconds = meter.histogram({
      name: 'cloudless_leadership_renewal_duration_seconds',
      help: 'From sending a renewal of the leader lease until the store answered. A leader whose renewals take 1.5 s stops acting.',
      buckets: DURATION_BUCKETS,
    });
    this.leading.set(0);
  }

  /** Counts a change of the role. */
  countChange(change: 'gained' | 'lost'): void {
    this.changes.add(1, { change });
    this.leading.set(change === 'gained' ? 1 : 0);
  }

  /** Counts a renewal that was answered, or failed, after `durationMs`. */
  observeRenewal(result: 'ok' | 'failed', durationMs: number): void {
    this.renewals.add(1, { result });
    if (result === 'ok') this.renewalSeconds.observe(durationMs / 1_000);
  }
}

import type { Clock } from '@cloudless/base';
import type { Metrics } from './metrics.js';

/**
 * Measures how late this process runs what is due: while it lags, silence of others proves nothing.
 */
export interface LoopLagMeter {
  /**
   * The longest delay of a timer since the last call, in milliseconds, 0 or more; one that is late
   * right now counts too.
   */
  takeMaxMs(): number;
  /** Stops measuring; later calls answer 0. */
  close(): void;
}

/** How often the loop is sampled: well below the sweep of leases, and some 0.1 % of a core. */
const SAMPLE_MS = 20;

/**
 * Starts to measure. (Node's own `monitorEventLoopDelay` forgets when it last looked each time it
 * is reset, so it misses the very delay that follows.)
 * @param metrics - When given, `cloudless_event_loop_lag_seconds` shows the longest delay between
 *   two scrapes, by its own measure.
 */
export function startLoopLagMeter(clock: Clock, metrics?: Metrics): LoopLagMeter {
  const meter = measure(clock);
  if (metrics === undefined) return meter;
  const shown = measure(clock);
  const gauge = metrics.gauge({
    name: 'cloudless_event_loop_lag_seconds',
    help: 'Longest delay of the event loop since the last scrape.',
  });
  metrics.onExpose(() => gauge.set(shown.takeMaxMs() / 1_000));
  return {
    takeMaxMs: () => meter.takeMaxMs(),
    close: () => {
      meter.close();
      shown.close();
    },
  };
}

function measure(clock: Clock): LoopLagMeter {
  let maxMs = 0;
  let dueAt = 0;
  let closed = false;
  const look = (): void => void (maxMs = Math.max(maxMs, clock.now() - dueAt));
  const sample = () => {
    dueAt = clock.now() + SAMPLE_MS;
    return clock.setTimer(SAMPLE_MS, () => {
      look();
      timer = sample();
    });
  };
  let timer = sample();
  return {
    takeMaxMs: () => {
      if (closed) return 0;
      look();
      const taken = maxMs;
      maxMs = 0;
      // what was taken is not counted again when the late timer fires
      dueAt = Math.max(dueAt, clock.now());
      return taken;
    },
    close: () => {
      closed = true;
      timer.cancel();
    },
  };
}

import type { Clock } from '@cloudless/base';
import type { Metrics } from './metrics.js';

/**
 * Measures the delay of this process's event loop. While the loop lags, missing messages of others
 * prove nothing.
 */
export interface LoopLagMeter {
  /**
   * Returns the longest delay of a timer since the last call, in milliseconds, 0 or more, and
   * resets it. Includes a timer that is late right now.
   */
  takeMaxMs(): number;
  /** Stops the measurement. Later calls of `takeMaxMs` return 0. */
  close(): void;
}

/** Sampling interval: well below the interval of lease checks, and about 0.1 % of a core. */
const SAMPLE_MS = 20;

/**
 * Starts the measurement. (Node's `monitorEventLoopDelay` loses its last sample time at each reset,
 * and so misses the delay that follows.)
 * @param metrics - Default: no metric. Otherwise `cloudless_event_loop_lag_seconds` shows the
 *   longest delay between two scrapes, measured independently of `takeMaxMs`.
 */
export function startLoopLagMeter(clock: Clock, metrics?: Metrics): LoopLagMeter {
  const meter = startMeter(clock);
  if (metrics === undefined) return meter;
  const shown = startMeter(clock);
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

function startMeter(clock: Clock): LoopLagMeter {
  let maxMs = 0;
  let dueAt = 0;
  let closed = false;
  const updateMax = (): void => void (maxMs = Math.max(maxMs, clock.now() - dueAt));
  const scheduleSample = () => {
    dueAt = clock.now() + SAMPLE_MS;
    return clock.setTimer(SAMPLE_MS, () => {
      updateMax();
      timer = scheduleSample();
    });
  };
  let timer = scheduleSample();
  return {
    takeMaxMs: () => {
      if (closed) return 0;
      updateMax();
      const taken = maxMs;
      maxMs = 0;
      // a delay that was returned is not counted again when the late timer fires
      dueAt = Math.max(dueAt, clock.now());
      return taken;
    },
    close: () => {
      closed = true;
      timer.cancel();
    },
  };
}

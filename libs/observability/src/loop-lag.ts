import type { Clock } from '@cloudless/base';
import type { Metrics } from './metrics.js';

/**
 * Measures the delay of this process's event loop. A process whose event loop lags reads messages
 * late, so it must not conclude from missing messages that another process has failed.
 */
export interface LoopLagMeter {
  /**
   * Returns the longest delay of a timer since the last call, in milliseconds, 0 or more, and
   * resets this maximum. Includes a timer that is due and has not fired yet.
   */
  takeMaxMs(): number;
  /** Stops the measurement. Later calls of `takeMaxMs` return 0. */
  close(): void;
}

/** Sampling interval: well below the interval of lease checks; costs about 0.1 % of a core. */
const SAMPLE_MS = 20;

/**
 * Starts the measurement. Does not use Node's `monitorEventLoopDelay`, which loses its last sample
 * time at each reset and so misses the delay that follows.
 * @param metrics - Default: no metric. Otherwise `cloudless_event_loop_lag_seconds` shows the
 *   longest delay between two scrapes, measured independently of `takeMaxMs`.
 */
export function startLoopLagMeter(clock: Clock, metrics?: Metrics): LoopLagMeter {
  const meter = startMeter(clock);
  if (metrics === undefined) return meter;
  const scrapeMeter = startMeter(clock);
  const gauge = metrics.gauge({
    name: 'cloudless_event_loop_lag_seconds',
    help: 'Longest delay of the event loop since the last scrape.',
  });
  metrics.onExpose(() => gauge.set(scrapeMeter.takeMaxMs() / 1_000));
  return {
    takeMaxMs: () => meter.takeMaxMs(),
    close: () => {
      meter.close();
      scrapeMeter.close();
    },
  };
}

function startMeter(clock: Clock): LoopLagMeter {
  let maxMs = 0;
  let dueAtMs = 0;
  let isClosed = false;
  const updateMax = (): void => void (maxMs = Math.max(maxMs, clock.now() - dueAtMs));
  const scheduleSample = () => {
    dueAtMs = clock.now() + SAMPLE_MS;
    return clock.setTimer(SAMPLE_MS, () => {
      updateMax();
      timer = scheduleSample();
    });
  };
  let timer = scheduleSample();
  return {
    takeMaxMs: () => {
      if (isClosed) return 0;
      updateMax();
      const taken = maxMs;
      maxMs = 0;
      // A delay that was returned is not counted again when the late timer fires.
      dueAtMs = Math.max(dueAtMs, clock.now());
      return taken;
    },
    close: () => {
      isClosed = true;
      timer.cancel();
    },
  };
}

import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Metrics } from './metrics.js';

/** Measures how late this process runs what is due: while it lags, silence of others proves nothing. */
export interface LoopLagMeter {
  /** The longest delay of the event loop since the last call, in milliseconds, 0 or more. */
  takeMaxMs(): number;
  /** Stops measuring; later calls answer 0. */
  close(): void;
}

/** How often the loop is sampled, in milliseconds; Node counts the sampling period itself as part of each measured delay. */
const RESOLUTION_MS = 10;
const NANOSECONDS_PER_MS = 1e6;

/**
 * Starts to measure.
 * @param metrics - When given, `cloudless_event_loop_lag_seconds` shows the longest delay between two scrapes, by its own measure.
 */
export function startLoopLagMeter(metrics?: Metrics): LoopLagMeter {
  const meter = measure();
  if (metrics === undefined) return meter;
  const shown = measure();
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

function measure(): LoopLagMeter {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  return {
    takeMaxMs: () => {
      const maxMs = histogram.max / NANOSECONDS_PER_MS - RESOLUTION_MS;
      histogram.reset();
      return Math.max(0, maxMs);
    },
    close: () => {
      histogram.disable();
      histogram.reset();
    },
  };
}

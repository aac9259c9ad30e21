import { url as getInspectorUrl } from 'node:inspector';
import { startWorker } from '@cloudless/app-kit';
import { CloudlessError, errorFields, type Log } from '@cloudless/base';
import type { StateStore } from '@cloudless/state-store';
import { describeStall } from './stall-texts.js';
import { StoreCallMarks, WATCHED_CALLS } from './store-call-marks.js';
import { watchStoreCalls } from './watch-store-calls.js';

/** Times of the watchdog, milliseconds. */
export interface WatchdogTimes {
  /** Time without the return of a pending call after which the process ends. */
  readonly limitMs: number;
  /** Time without a turn of the main loop after which the process ends. */
  readonly loopLimitMs: number;
  /** Time from the report on /health and standard error to the end of the process. */
  readonly graceMs: number;
  readonly intervalMs: number;
}

/** Data of the watchdog thread. */
export interface WatchdogData extends WatchdogTimes {
  readonly memory: SharedArrayBuffer;
}

/** Message of the thread that the process ends. */
export interface StallMessage {
  readonly text: string;
}

export const WATCHDOG_TIMES: WatchdogTimes = {
  limitMs: 10_000,
  loopLimitMs: 60_000,
  graceMs: 2_000,
  intervalMs: 500,
};
/** Interval at which the main loop marks that it turns, milliseconds. */
const TURN_MS = 100;
/** The thread holds a few numbers. Small heaps keep its share of the memory small. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 };
/** Part of the limit from which on /health names a stall as degraded. */
const WARNING_PART = 0.5;

/** Watches the calls of a state store. */
export interface Watchdog {
  /** Returns a store whose writes and lease renewals are watched. */
  watch(store: StateStore): StateStore;
  /** Returns the stalls that last for half of the limit, for /health. */
  listWarnings(): readonly string[];
  /**
   * Calls `listener` when a call has not returned within the limit and the process ends, if the main
   * thread still turns.
   */
  onStall(listener: (reason: CloudlessError) => void): void;
  close(): Promise<void>;
}

/**
 * Starts the thread that ends the process when a write to the state store, or the renewal of a
 * lease, has not returned for {@link WatchdogTimes.limitMs}: a supervisor then starts the process
 * again, and another coordinator takes the leadership meanwhile. A main thread that computes for so
 * long takes no results of calls, which says nothing about the store: only
 * {@link WatchdogTimes.loopLimitMs} ends it. The coordinator works without the thread when it cannot
 * start.
 *
 * A debugger stops the main thread as a hung store does, so there is no thread in a process with an
 * open inspector.
 */
export function startWatchdog(log: Log, times: WatchdogTimes = WATCHDOG_TIMES): Watchdog {
  const marks = new StoreCallMarks();
  const listeners = new Set<(reason: CloudlessError) => void>();
  const worker =
    getInspectorUrl() === undefined
      ? startWorker(import.meta.url, 'watchdog-worker', {
          workerData: { ...times, memory: marks.memory } satisfies WatchdogData,
          name: 'cloudless-watchdog',
          resourceLimits: RESOURCE_LIMITS,
        })
      : undefined;
  worker?.unref();
  const turning = setInterval(() => marks.countTurn(), TURN_MS).unref();
  worker?.on('error', (reason) => log.error('watchdog thread failed', errorFields(reason)));
  worker?.on('message', ({ text }: StallMessage) => {
    const reason = new CloudlessError('STORE_UNAVAILABLE', text);
    listeners.forEach((listener) => listener(reason));
  });
  return {
    watch: (store) => watchStoreCalls(store, marks),
    listWarnings: () =>
      WATCHED_CALLS.flatMap((call) => {
        const stalledMs = marks.getStalledMs(call);
        return stalledMs < times.limitMs * WARNING_PART ? [] : [describeStall(call, stalledMs)];
      }),
    onStall: (listener) => void listeners.add(listener),
    close: async () => {
      clearInterval(turning);
      await worker?.terminate();
    },
  };
}

import { constants } from 'node:os';

/** Signals that request an orderly end. */
export type StopSignal = 'SIGINT' | 'SIGTERM';

const STOP_SIGNALS: readonly StopSignal[] = ['SIGINT', 'SIGTERM'];
/** Shells report the end by signal n as exit code 128 + n. */
const EXIT_BY_SIGNAL = 128;

/**
 * Lets the first stop signal end this process during its start. The kernel does that even when a
 * file system blocks and no JavaScript runs. Call this before anything else.
 * @returns A function to call once there is something to close. From then on, the first signal of
 *   each kind does not end the process; the promise resolves with the first signal.
 */
export function endOnStopSignals(): () => Promise<StopSignal> {
  // The kernel does not deliver signals without a handler to process 1 of a container.
  if (process.pid === 1) for (const signal of STOP_SIGNALS) process.once(signal, endBySignal);
  return () =>
    new Promise((resolve) => {
      for (const signal of STOP_SIGNALS) {
        process.once(signal, () => resolve(signal));
        process.off(signal, endBySignal);
      }
    });
}

/**
 * Ends this process by the default action of a signal. `process.exit` is no substitute: it waits
 * for threads of Node, which may wait for a file system forever.
 */
export function endBySignal(signal: StopSignal | 'SIGHUP'): never {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  process.exit(EXIT_BY_SIGNAL + constants.signals[signal]); // process 1 survives its own signals
}

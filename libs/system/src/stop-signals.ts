import { constants } from 'node:os';

/** Signals that ask a program to end in good order. */
export type StopSignal = 'SIGINT' | 'SIGTERM';

const STOP_SIGNALS: readonly StopSignal[] = ['SIGINT', 'SIGTERM'];
/** A shell shows the end by signal n as 128 + n. */
const EXIT_BY_SIGNAL = 128;

/**
 * Lets the first stop signal end this process at once while it starts: the kernel does that even when a file
 * system does not answer and no JavaScript runs. To be called first of all.
 * @returns To be called when there is something to close in good order. From that call on signals no longer end
 *   the process; the promise resolves with the first one.
 */
export function endOnStopSignals(): () => Promise<StopSignal> {
  // The kernel spares process 1 of a container from signals that it has no handler for.
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
 * Ends this process as the signal does by itself. `process.exit` is no substitute: it waits for threads of Node
 * that may wait for a file system without end.
 */
export function endBySignal(signal: StopSignal | 'SIGHUP'): never {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  process.exit(EXIT_BY_SIGNAL + constants.signals[signal]); // process 1 survives its own signals
}

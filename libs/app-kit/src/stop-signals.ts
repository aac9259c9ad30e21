import { constants } from 'node:os';

/** Signals that request an orderly end. */
export type ProcessStopSignal = 'SIGINT' | 'SIGTERM';

const STOP_SIGNALS: readonly ProcessStopSignal[] = ['SIGINT', 'SIGTERM'];
/** Shells report the end by signal n as exit code 128 + n. */
const EXIT_BY_SIGNAL = 128;

/**
 * Lets the first stop signal end this process during its start. The kernel ends the process even
 * when a file system blocks and no JavaScript runs. Call this function before anything else.
 * @returns A function to call once the program has something to close. From that call on, SIGTERM
 *   and the first SIGINT do not end the process; the returned promise resolves with the first of
 *   both. A second SIGINT, a second Ctrl-C, ends the process. Repeated SIGTERM does not, because
 *   task runners send SIGTERM to every process of a tree, whose parents send it as well.
 */
export function endOnStopSignals(): () => Promise<ProcessStopSignal> {
  // The kernel does not deliver signals without a handler to process 1 of a container.
  if (process.pid === 1) for (const signal of STOP_SIGNALS) process.once(signal, endBySignal);
  return () =>
    new Promise((resolve) => {
      process.on('SIGTERM', () => resolve('SIGTERM'));
      process.once('SIGINT', () => resolve('SIGINT'));
      for (const signal of STOP_SIGNALS) process.off(signal, endBySignal);
    });
}

/**
 * Ends this process by the default action of a signal. `process.exit` alone is no substitute,
 * because it waits for threads of Node.js, which may wait for a file system forever.
 */
export function endBySignal(signal: ProcessStopSignal | 'SIGHUP'): never {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // Reached only by process 1 of a container, which survives its own signal.
  process.exit(EXIT_BY_SIGNAL + constants.signals[signal]);
}

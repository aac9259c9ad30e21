import { createMemoryStateStore } from '@cloudless/state-store';
import { silentLog } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { startWatchdog } from '../watchdog/watchdog.js';

/**
 * Program for the spec of the watchdog, with a write that does not return. Prints what the watchdog
 * reports to the main thread. Argument, what the main thread does meanwhile:
 * - `loop-turns`: nothing; the write never returns
 * - `loop-hangs`: hangs with the store
 * - `loop-works`: computes for four times the limit; then the write returns, and the program ends
 * - `loop-never-turns`: computes for ever
 */
const [task] = process.argv.slice(2);
const LIMIT_MS = 300;
const times = { limitMs: LIMIT_MS, loopLimitMs: 2_000, graceMs: 100, intervalMs: 20 };
const watchdog = startWatchdog(silentLog, times);
watchdog.onStall(({ reason, message }) => process.stdout.write(`${reason}: ${message}\n`));
let finish: () => void = () => undefined;
const hanging = {
  txn: () =>
    new Promise<{ revision: bigint }>((resolve) => (finish = () => resolve({ revision: 1n }))),
};
const store = watchdog.watch(
  Object.assign(createMemoryStateStore({ clock: systemClock }), hanging),
);
void store.txn([], [{ put: 'key', value: new Uint8Array() }]);
const compute = (untilMs: number): void => {
  while (performance.now() < untilMs);
};
switch (task) {
  case 'loop-hangs':
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    break;
  case 'loop-works':
    compute(performance.now() + 4 * LIMIT_MS);
    finish();
    await watchdog.close();
    break;
  case 'loop-never-turns':
    compute(Infinity);
    break;
  default:
    setInterval(() => undefined, 60_000);
}

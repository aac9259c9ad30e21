import { createMemoryStateStore } from '@cloudless/state-store';
import { silentLog } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { startWatchdog } from '../watchdog/watchdog.js';

/**
 * Program whose store hangs, for the spec of the watchdog. Argument: `loop-turns`, or `loop-hangs`
 * for a main thread that hangs with the store. Prints what the watchdog reports to the main thread.
 */
const [task] = process.argv.slice(2);
const watchdog = startWatchdog(silentLog, { limitMs: 300, graceMs: 100, intervalMs: 20 });
watchdog.onStall(({ reason, message }) => process.stdout.write(`${reason}: ${message}\n`));
const hanging = { txn: () => new Promise<never>(() => undefined) };
const store = watchdog.watch(
  Object.assign(createMemoryStateStore({ clock: systemClock }), hanging),
);
void store.txn([], [{ put: 'key', value: new Uint8Array() }]);
setInterval(() => undefined, 60_000);
if (task === 'loop-hangs') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);

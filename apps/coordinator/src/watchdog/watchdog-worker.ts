// Thread that ends the process when the state store hangs. The main thread may hang with the store,
// inside a lock of LMDB, so nothing here needs the main thread: the line on standard error is written
// by the file descriptor, and the kernel ends the process.
import { readFileSync, write } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { StallDetector } from './stall-detector.js';
import { describeStall } from './stall-texts.js';
import { StoreCallMarks, WATCHED_CALLS, type WatchedCall } from './store-call-marks.js';
import type { StallMessage, WatchdogData } from './watchdog.js';

const { memory, limitMs, loopLimitMs, graceMs, intervalMs } = workerData as WatchdogData;
const marks = new StoreCallMarks(memory);
const detectors = new Map(WATCHED_CALLS.map((call) => [call, new StallDetector()]));
/** The main loop is a call that is always pending, and progresses with each turn. */
const loopDetector = new StallDetector();
let lookedAtMs = performance.now();
let turns = marks.readTurns();
let isEnding = false;

function look(): void {
  const nowMs = performance.now();
  const elapsedMs = nowMs - lookedAtMs;
  const isBusy = marks.readTurns() === turns && isMainThreadRunnable();
  for (const [call, detector] of detectors) {
    const stalledMs = detector.observe(marks.read(call), elapsedMs, isBusy);
    marks.setStalledMs(call, stalledMs);
    if (stalledMs >= limitMs) end(call, stalledMs);
  }
  turns = marks.readTurns();
  const loopStalledMs = loopDetector.observe({ pending: 1, progress: turns }, elapsedMs);
  if (loopStalledMs >= loopLimitMs) end('loop', loopStalledMs);
  lookedAtMs = nowMs;
}

/**
 * Returns true when the main thread runs or waits for a processor, so that it does not wait inside
 * the store. False where the system does not tell.
 * @see proc_pid_stat(5): the id of the main thread is that of the process, and the state follows the
 *   name of the program in parentheses.
 */
function isMainThreadRunnable(): boolean {
  try {
    const stat = readFileSync(`/proc/self/task/${process.pid}/stat`, 'latin1');
    return stat.startsWith(' R', stat.lastIndexOf(')') + 1);
  } catch {
    return false;
  }
}

function end(stalled: WatchedCall | 'loop', stalledMs: number): void {
  if (isEnding) return;
  isEnding = true;
  const text = describeStall(stalled, stalledMs);
  parentPort?.postMessage({ text } satisfies StallMessage);
  // Not writeSync: a full pipe that nobody reads must not keep this thread from the next line.
  write(2, `cloudless-coordinator: ${text}; the process ends now\n`, () => undefined);
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), graceMs);
}

setInterval(look, intervalMs);

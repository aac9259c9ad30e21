// Thread that ends the process when the state store hangs. The main thread may hang with the store,
// inside a lock of LMDB, so nothing here needs the main thread: the line on standard error is written
// by the file descriptor, and the kernel ends the process.
import { write } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { StallDetector } from './stall-detector.js';
import { describeStall } from './stall-texts.js';
import { StoreCallMarks, WATCHED_CALLS, type WatchedCall } from './store-call-marks.js';
import type { StallMessage, WatchdogData } from './watchdog.js';

const { memory, limitMs, graceMs, intervalMs } = workerData as WatchdogData;
const marks = new StoreCallMarks(memory);
const detectors = new Map(WATCHED_CALLS.map((call) => [call, new StallDetector()]));
let lookedAtMs = performance.now();
let isEnding = false;

function look(): void {
  const nowMs = performance.now();
  for (const [call, detector] of detectors) {
    const stalledMs = detector.observe(marks.read(call), nowMs - lookedAtMs);
    marks.setStalledMs(call, stalledMs);
    if (stalledMs >= limitMs && !isEnding) end(call, stalledMs);
  }
  lookedAtMs = nowMs;
}

function end(call: WatchedCall, stalledMs: number): void {
  isEnding = true;
  const text = describeStall(call, stalledMs);
  parentPort?.postMessage({ text } satisfies StallMessage);
  // Not writeSync: a full pipe that nobody reads must not keep this thread from the next line.
  write(2, `cloudless-coordinator: ${text}; the process ends now\n`, () => undefined);
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), graceMs);
}

setInterval(look, intervalMs);

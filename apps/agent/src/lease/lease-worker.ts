// Thread that keeps the lease of the node while the main loop of the agent does not turn. It loads
// nothing but this folder, so that it needs little memory.
import { parentPort, workerData } from 'node:worker_threads';
import type { KeptSession } from '@cloudless/agent-core';
import { LeaseRenewer } from './lease-renewer.js';
import { readLoopAgeMs } from './loop-mark.js';
import { openRenewalConnection } from './renewal-connection.js';

/** Time between two looks at the main loop, milliseconds. */
const TICK_MS = 100;

const renewer = new LeaseRenewer({
  connect: openRenewalConnection,
  now: () => performance.now(),
  loopAgeMs: () => readLoopAgeMs(workerData as SharedArrayBuffer),
});

parentPort?.on('message', (session: KeptSession | undefined) => {
  if (session === undefined) renewer.release();
  else renewer.keep(session);
});
setInterval(() => renewer.tick(), TICK_MS);

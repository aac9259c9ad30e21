// Thread that keeps the lease of the node while the main loop of the agent does not turn. It loads
// nothing but this folder and the TLS client, so that it needs little memory.
import { parentPort, workerData } from 'node:worker_threads';
import type { ClientTls } from '@cloudless/rpc-node/tls-client';
import type { LeaseMessage } from './lease-message.js';
import { LeaseRenewer } from './lease-renewer.js';
import { readLoopAgeMs } from './loop-mark.js';
import { openRenewalConnection } from './renewal-connection.js';

/** Time between two looks at the main loop, milliseconds. */
const TICK_MS = 100;

let tls: ClientTls | undefined;
const renewer = new LeaseRenewer({
  connect: (address) => openRenewalConnection(address, tls),
  now: () => performance.now(),
  loopAgeMs: () => readLoopAgeMs(workerData as SharedArrayBuffer),
});

parentPort?.on('message', (message: LeaseMessage) => {
  tls = message.tls;
  if (message.session === undefined) renewer.release();
  else renewer.keep(message.session);
});
setInterval(() => renewer.tick(), TICK_MS);

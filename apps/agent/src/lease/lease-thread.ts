import type { KeptSession, LeaseKeeper } from '@cloudless/agent-core';
import { startWorker } from '@cloudless/app-kit';
import { errorFields, type Log } from '@cloudless/base';
import type { ClientTls } from '@cloudless/rpc-node/tls-client';
import type { LeaseMessage } from './lease-message.js';
import { createLoopMark, markTurn } from './loop-mark.js';

/** Time between two marks of the main loop, milliseconds. */
const MARK_INTERVAL_MS = 100;
/** The thread holds a few objects. Small heaps keep its share of the agent's memory small. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 4 };

/** The identity with which the thread connects, which changes at each renewal. */
export interface LeaseIdentity {
  getTls(): ClientTls | undefined;
  /** Returns a function that ends the subscription. */
  onChange(listener: () => void): () => void;
}

const NO_IDENTITY: LeaseIdentity = {
  getTls: () => undefined,
  onChange: () => () => undefined,
};

/**
 * Starts the thread that keeps the lease of the node while the main loop does not turn. The agent
 * works without the thread when it cannot start or fails: the node is then lost as soon as the main
 * loop stands still for a lease.
 * @param identity - Default: plaintext.
 */
export function startLeaseThread(
  log: Log,
  identity: LeaseIdentity = NO_IDENTITY,
): LeaseKeeper & { close(): Promise<void> } {
  const mark = createLoopMark();
  const marking = setInterval(() => markTurn(mark), MARK_INTERVAL_MS);
  marking.unref();
  const worker = startWorker(import.meta.url, 'lease-worker', {
    workerData: mark,
    name: 'cloudless-lease',
    resourceLimits: RESOURCE_LIMITS,
  });
  worker.unref();
  worker.on('error', (reason) => log.error('lease thread failed', errorFields(reason)));
  let kept: KeptSession | undefined;
  const post = (session: KeptSession | undefined): void => {
    kept = session;
    worker.postMessage({ session, tls: identity.getTls() } satisfies LeaseMessage);
  };
  // The thread opens its next connection with the new certificate.
  const unsubscribe = identity.onChange(() => post(kept));
  return {
    keep: post,
    release: () => post(undefined),
    close: async () => {
      unsubscribe();
      clearInterval(marking);
      await worker.terminate();
    },
  };
}

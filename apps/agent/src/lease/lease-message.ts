import type { KeptSession } from '@cloudless/agent-core';
import type { ClientTls } from '@cloudless/rpc-node/tls-client';

/** A message of the main thread to the lease thread: plain data. */
export interface LeaseMessage {
  /** The session whose lease the thread keeps; undefined: none. */
  readonly session: KeptSession | undefined;
  /** Current identity of the node; undefined in plaintext. Secret: contains the private key. */
  readonly tls: ClientTls | undefined;
}

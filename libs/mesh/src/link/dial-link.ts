import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '@cloudless/base';
import type { PeerIdentity } from '@cloudless/identity/verify';
import { parseAddress } from '../stream/proxy-header.js';
import type { LinkTls, SecureResult } from './link-tls.js';

/** Time for the TCP connection and the TLS handshake with another proxy, milliseconds. */
const DIAL_TIMEOUT_MS = 3_000;

export interface DialOptions {
  readonly tls: LinkTls;
  readonly nodeId: string;
  readonly check: (peer: PeerIdentity) => string | undefined;
  readonly clock: Clock;
}

/** Opens a TCP connection to the mesh address of a node. Host names are not resolved. */
export function openMeshSocket(address: string): Duplex | undefined {
  const target = parseAddress(address);
  if (target === undefined) return undefined;
  return connect({ host: target.address, port: target.port, noDelay: true, keepAlive: true });
}

/** Makes the handshake with the proxy of a node on a transport that may still be connecting. */
export function secureDialled(transport: Duplex, options: DialOptions): Promise<SecureResult> {
  const { tls, nodeId, check, clock } = options;
  return new Promise((resolve) => {
    let failure: string | undefined;
    const timer = clock.setTimer(DIAL_TIMEOUT_MS, () => {
      failure = `no answer within ${DIAL_TIMEOUT_MS} ms`;
      handshake.cancel();
    });
    transport.on('error', (reason: Error) => (failure ??= reason.message));
    const handshake = tls.dial(
      transport,
      nodeId,
      check,
      () => clock.wallTime(),
      (result) => {
        timer.cancel();
        resolve(
          result.kind === 'failed' && failure !== undefined
            ? { ...result, reason: failure }
            : result,
        );
      },
    );
  });
}

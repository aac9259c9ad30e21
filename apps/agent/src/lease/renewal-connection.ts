import {
  destroyInNextTurn,
  openHttp2Session,
  type ClientTls,
} from '@cloudless/rpc-node/tls-client';
import type { RenewalConnection } from './lease-renewer.js';

/** Path of the RenewLease call. */
export const RENEW_LEASE_PATH = '/cloudless.api.CoordinatorService/RenewLease';
/** HTTP status by which the Connect protocol says FAILED_PRECONDITION. */
const REFUSED = 400;
/** HTTP status of UNIMPLEMENTED: an older coordinator. */
const UNKNOWN_CALL = [404, 501];

/**
 * Opens an HTTP/2 connection for RenewLease. The call is written as JSON by hand, because the thread
 * that uses this function should need little memory: neither protobuf nor Connect.
 * @param tls - Needed for `https://`.
 */
export function openRenewalConnection(
  address: string,
  tls: ClientTls | undefined,
): RenewalConnection {
  let client: ReturnType<typeof openHttp2Session>;
  try {
    client = openHttp2Session(address, tls);
  } catch (reason) {
    return { renew: () => Promise.reject(reason), close: () => undefined };
  }
  client.on('error', () => undefined); // the calls fail with the same error
  return {
    renew: ({ nodeId, sessionId }, loopAgeMs) =>
      new Promise((resolve, reject) => {
        const stream = client.request({
          ':method': 'POST',
          ':path': RENEW_LEASE_PATH,
          'content-type': 'application/json',
        });
        stream.once('error', reject);
        stream.once('close', () => reject(new Error('the connection ended')));
        stream.once('response', (headers) => {
          stream.resume();
          const status = headers[':status'] ?? 0;
          if (status === 200) resolve('renewed');
          else if (status === REFUSED || UNKNOWN_CALL.includes(status)) resolve('refused');
          else reject(new Error(`the coordinator answered with HTTP status ${status}`));
        });
        const loopAge = `${(loopAgeMs / 1_000).toFixed(3)}s`;
        stream.end(JSON.stringify({ nodeId, sessionId, loopAge }));
      }),
    close: () => destroyInNextTurn(client),
  };
}

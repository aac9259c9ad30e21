import { Http2SessionManager, createConnectTransport } from '@connectrpc/connect-node';
import type { CoordinatorConnection } from './io.js';

/**
 * Interval of the HTTP/2 pings. A watch may be silent for hours; a failed ping shows that the
 * connection is broken. A broken connection is detected after at most 25 s.
 */
const PING_INTERVAL_MS = 15_000;
/** Time within which the coordinator must acknowledge a ping. */
const PING_TIMEOUT_MS = 10_000;

/** Creates a client connection to a coordinator. HTTP/2 connects with the first call. */
export function connectHttp2(server: string): CoordinatorConnection {
  const sessionManager = new Http2SessionManager(server, {
    pingIntervalMs: PING_INTERVAL_MS,
    pingTimeoutMs: PING_TIMEOUT_MS,
  });
  return {
    transport: createConnectTransport({ baseUrl: server, httpVersion: '2', sessionManager }),
    close: () => sessionManager.abort(),
  };
}

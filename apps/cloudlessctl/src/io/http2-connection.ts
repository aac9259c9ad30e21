import { Code, ConnectError } from '@connectrpc/connect';
import { Http2SessionManager, createConnectTransport } from '@connectrpc/connect-node';
import type { CoordinatorConnection } from './io.js';

/**
 * Interval of the HTTP/2 pings. A watch may be silent for hours; a failed ping shows that the
 * connection is broken. A broken connection is detected after at most 25 s.
 */
const PING_INTERVAL_MS = 15_000;
/** Time within which the coordinator must acknowledge a ping. */
const PING_TIMEOUT_MS = 10_000;

type SessionOptions = ConstructorParameters<typeof Http2SessionManager>[2];
type Interceptors = NonNullable<Parameters<typeof createConnectTransport>[0]['interceptors']>;

/**
 * Creates a client connection to a coordinator. HTTP/2 connects with the first call.
 * @param sessionOptions - Options of the HTTP/2 session. Default: plaintext.
 * @param interceptors - Interceptors of all calls. Default: none.
 */
export function connectHttp2(
  server: string,
  sessionOptions?: SessionOptions,
  interceptors: Interceptors = [],
): CoordinatorConnection {
  const sessionManager = new Http2SessionManager(
    server,
    { pingIntervalMs: PING_INTERVAL_MS, pingTimeoutMs: PING_TIMEOUT_MS },
    sessionOptions,
  );
  return {
    transport: createConnectTransport({
      baseUrl: server,
      httpVersion: '2',
      sessionManager,
      interceptors,
    }),
    prepare: (signal) => prepare(sessionManager, signal),
    close: () => sessionManager.abort(),
  };
}

/** @throws ConnectError of code UNAVAILABLE, with the error of Node as its cause. */
async function prepare(manager: Http2SessionManager, signal: AbortSignal): Promise<void> {
  const abort = (): void => manager.abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    if ((await manager.connect()) !== 'error' && !signal.aborted) return;
    const cause = signal.aborted ? signal.reason : manager.error();
    const text = cause instanceof Error ? cause.message : 'no connection';
    throw new ConnectError(text, Code.Unavailable, undefined, undefined, cause);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

import { Code, ConnectError } from '@connectrpc/connect';
import type { Interceptor } from '@connectrpc/connect';
import { RENEW_CERTIFICATE_HEADER } from '@cloudless/api';
import { fetchServerRoot, openTlsSocket } from '@cloudless/rpc-node/tls-client';
import type { ClientTls } from '@cloudless/rpc-node/tls-client';
import { connectHttp2 } from './http2-connection.js';
import type { ClientIdentity, CoordinatorConnection, ServerAccess } from './io.js';

export { detectTls } from '@cloudless/rpc-node/tls-client';

/** Time limit of the handshake with which a pinned root certificate is read. */
const ROOT_TIMEOUT_MS = 10_000;

/**
 * Creates a client connection with TLS 1.3. The server must have a certificate of the trusted roots
 * with the SPIFFE ID of a coordinator; nothing is sent to another server.
 */
export function connectWithTls(server: string, access: ServerAccess): CoordinatorConnection {
  if (access.kind === 'token') return connectWithToken(server, access);
  const noticeRenewal: Interceptor = (next) => async (request) => {
    const response = await next(request);
    if (response.header.has(RENEW_CERTIFICATE_HEADER)) access.onRenewalRequested?.();
    return response;
  };
  const open = (): CoordinatorConnection =>
    connectHttp2(
      server,
      { createConnection: () => openTlsSocket(server, toClientTls(access.getIdentity())) },
      [noticeRenewal],
    );
  const connections = [open()];
  let reloads = 0;
  /** Returns the newest connection. The calls of older connections go on. */
  const getNewest = (): CoordinatorConnection => {
    const counted = access.countReloads?.() ?? 0;
    if (counted !== reloads) connections.unshift(open());
    reloads = counted;
    return connections[0] ?? open();
  };
  return {
    transport: {
      unary: (...call) => getNewest().transport.unary(...call),
      stream: (...call) => getNewest().transport.stream(...call),
    },
    prepare: async (signal) => getNewest().prepare?.(signal),
    close: () => connections.forEach((connection) => connection.close()),
  };
}

/** Every coordinator of the cluster may answer. */
function toClientTls(identity: ClientIdentity): ClientTls {
  return { ...identity, serverKinds: ['controller'] };
}

/**
 * Creates a connection whose first call reads the root certificate of the server and compares the
 * root with the pinned digests. The token is sent over later handshakes, which trust only this root.
 */
function connectWithToken(
  server: string,
  { text: token, caSha256s, caFile }: Extract<ServerAccess, { kind: 'token' }>,
): CoordinatorConnection {
  const closing = new AbortController();
  let connected: CoordinatorConnection | undefined;
  const authenticate: Interceptor = (next) => (request) => {
    request.header.set('authorization', `Bearer ${token}`);
    return next(request);
  };
  const connect = async (
    signal: AbortSignal | undefined,
    timeoutMs = ROOT_TIMEOUT_MS,
  ): Promise<CoordinatorConnection> => {
    if (connected !== undefined) return connected;
    const limit = AbortSignal.timeout(Math.min(timeoutMs, ROOT_TIMEOUT_MS));
    const stopping = AbortSignal.any([
      closing.signal,
      limit,
      ...(signal === undefined ? [] : [signal]),
    ]);
    const root = await fetchServerRoot(server, caSha256s, stopping, caFile).catch(
      (reason: unknown) => {
        if (limit.aborted)
          throw new ConnectError('the TLS handshake is not complete', Code.DeadlineExceeded);
        // The message is that of the cause, see describeCallFailure.
        throw new ConnectError('no TLS connection', Code.Unavailable, undefined, undefined, reason);
      },
    );
    const { bundlePem, serverId, trustDomain } = root;
    const clientTls: ClientTls = { bundlePem, serverIds: [serverId], trustDomain };
    connected ??= connectHttp2(
      server,
      { createConnection: () => openTlsSocket(server, clientTls) },
      [authenticate],
    );
    return connected;
  };
  return {
    transport: {
      unary: async (method, signal, timeoutMs, ...rest) =>
        (await connect(signal, timeoutMs)).transport.unary(method, signal, timeoutMs, ...rest),
      stream: async (method, signal, timeoutMs, ...rest) =>
        (await connect(signal, timeoutMs)).transport.stream(method, signal, timeoutMs, ...rest),
    },
    prepare: async (signal) => (await connect(signal)).prepare?.(signal),
    close: () => {
      closing.abort();
      connected?.close();
    },
  };
}

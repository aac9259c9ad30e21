import * as https from 'node:https';
import { create, type DescMethod, type DescMethodUnary } from '@bufbuild/protobuf';
import { Code, ConnectError, type Interceptor, type Transport } from '@connectrpc/connect';
import {
  Http2SessionManager,
  createConnectTransport,
  createGrpcTransport,
} from '@connectrpc/connect-node';

/** Key and certificates of a client, PEM. */
export interface ClientCertificate {
  readonly keyPem: string;
  readonly chainPem: string;
}

/** A connection of a client. Close it after use. */
export interface MatrixConnection {
  readonly transport: Transport;
  close(): void;
}

/** Opens an HTTP/2 connection, with a client certificate or a bearer token or neither. */
export function connectHttp2(
  url: string,
  {
    certificate,
    token,
  }: { readonly certificate?: ClientCertificate | undefined; readonly token?: string | undefined },
): MatrixConnection {
  const session = new Http2SessionManager(url, undefined, {
    // The clock of the server is not that of this machine.
    rejectUnauthorized: false,
    ...(certificate === undefined ? {} : { key: certificate.keyPem, cert: certificate.chainPem }),
  });
  const transport = createGrpcTransport({
    baseUrl: url,
    sessionManager: session,
    interceptors: token === undefined ? [] : [createTokenInterceptor(token)],
  });
  return { transport, close: () => session.abort() };
}

/** Opens HTTP/1.1 connections with a bearer token, as `curl` does. */
export function connectHttp1(url: string, token: string | undefined): MatrixConnection {
  const agent = new https.Agent({ keepAlive: true, rejectUnauthorized: false, maxSockets: 8 });
  const transport = createConnectTransport({
    baseUrl: url,
    httpVersion: '1.1',
    nodeOptions: { agent },
    interceptors: token === undefined ? [] : [createTokenInterceptor(token)],
  });
  return { transport, close: () => agent.destroy() };
}

function createTokenInterceptor(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set('authorization', `Bearer ${token}`);
    return next(request);
  };
}

/** Result of a call: `ok`, or the code of the error; and the first message of the answer. */
export interface CallResult {
  readonly code: 'ok' | Code;
  readonly message?: unknown;
  readonly text?: string;
}

/** A stream that must be permitted and sends nothing for so long is: refusals come at once. */
export const PERMITTED_SILENCE_MS = 1_000;
/** A refusal may take so long on a busy machine. */
const REFUSAL_LIMIT_MS = 30_000;

/**
 * Makes a call. Ends a stream after its first message, or when the server has sent nothing for
 * `silenceMs`; such a stream counts as permitted.
 */
export async function callOnce(
  { transport }: MatrixConnection,
  method: DescMethod,
  request: object,
  silenceMs = REFUSAL_LIMIT_MS,
): Promise<CallResult> {
  const message = create(method.input, request as never);
  const stopping = new AbortController();
  const silence = setTimeout(
    () => stopping.abort(),
    method.methodKind === 'unary' ? REFUSAL_LIMIT_MS : silenceMs,
  );
  try {
    if (method.methodKind === 'unary') {
      const response = await transport.unary(
        method as DescMethodUnary,
        stopping.signal,
        undefined,
        undefined,
        message,
      );
      return { code: 'ok', message: response.message };
    }
    const isOpen = method.methodKind !== 'server_streaming';
    const response = await transport.stream(
      method as never,
      stopping.signal,
      undefined,
      undefined,
      streamOf(message, isOpen ? stopping.signal : undefined) as never,
    );
    for await (const first of response.message) return { code: 'ok', message: first };
    return { code: 'ok' };
  } catch (reason) {
    const error = ConnectError.from(reason);
    return error.code === Code.Canceled && stopping.signal.aborted
      ? { code: 'ok' }
      : { code: error.code, text: error.rawMessage };
  } finally {
    clearTimeout(silence);
    stopping.abort();
  }
}

/**
 * Opens a stream and reads it until its end.
 * @param onFirst - Called once, after the first message of the answer.
 * @returns How the stream has ended.
 */
export async function followUntilEnd(
  { transport }: MatrixConnection,
  method: DescMethod,
  request: object,
  onFirst: () => Promise<void>,
): Promise<'ok' | Code> {
  const stopping = new AbortController();
  const isOpen = method.methodKind !== 'server_streaming';
  const message = create(method.input, request as never);
  try {
    const response = await transport.stream(
      method as never,
      stopping.signal,
      undefined,
      undefined,
      streamOf(message, isOpen ? stopping.signal : undefined) as never,
    );
    let changing: Promise<void> | undefined;
    for await (const item of response.message) {
      void item;
      changing ??= onFirst();
    }
    await changing;
    return 'ok';
  } catch (reason) {
    return ConnectError.from(reason).code;
  } finally {
    stopping.abort();
  }
}

/** Sends one message, and keeps the stream open until the signal. */
async function* streamOf(message: unknown, signal: AbortSignal | undefined) {
  yield message;
  if (signal === undefined || signal.aborted) return;
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}

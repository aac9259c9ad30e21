import * as http from 'node:http';
import * as http2 from 'node:http2';
import { once } from 'node:events';

/** A raw HTTP response. */
export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
  readonly trailers: Readonly<Record<string, unknown>>;
}

/** An HTTP request without any RPC library. */
export interface RawRequest {
  readonly path?: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | string;
}

export const CREATE = '/cloudless.api.CoordinatorService/CreateWorkload';
export const JSON_TYPE = { 'content-type': 'application/json' };

/**
 * Sends a request over HTTP/1.1 on a new connection, or on one of `agent`. The body is chunked,
 * without Content-Length.
 */
export async function http1(
  url: string,
  { path = CREATE, method = 'POST', headers = JSON_TYPE, body = '' }: RawRequest,
  agent?: http.Agent,
): Promise<RawAnswer> {
  const request = http.request(url + path, {
    method,
    headers,
    ...(agent === undefined ? { agent: false } : { agent }),
  });
  request.flushHeaders();
  request.end(body);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: Buffer.concat(chunks),
    trailers: response.trailers,
  };
}

/** Sends a request over HTTP/2 with prior knowledge on a new session. */
export async function http2Request(
  url: string,
  { path = CREATE, method = 'POST', headers = JSON_TYPE, body = '' }: RawRequest,
): Promise<RawAnswer> {
  const session = http2.connect(url);
  try {
    const stream = session.request({ ':method': method, ':path': path, ...headers });
    let head: Record<string, unknown> = {};
    let trailers: Record<string, unknown> = {};
    stream.on('response', (fields) => (head = fields));
    stream.on('trailers', (fields) => (trailers = fields));
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.end(body);
    await once(stream, 'close');
    return {
      status: Number(head[':status'] ?? 0),
      headers: head,
      body: Buffer.concat(chunks),
      trailers,
    };
  } finally {
    session.destroy();
  }
}

/** One message in the envelope of the streaming protocols. */
export function envelope(message: Buffer | string): Buffer {
  const data = Buffer.from(message);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

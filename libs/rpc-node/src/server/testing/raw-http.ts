import * as http from 'node:http';
import * as http2 from 'node:http2';
import { once } from 'node:events';

/** A raw HTTP response. */
export interface RawResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
  readonly trailers: Readonly<Record<string, unknown>>;
}

/** An HTTP request. Default: a POST of an empty body to CreateWorkload in JSON. */
export interface RawRequest {
  readonly path?: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | string;
}

/** Path of CreateWorkload. */
export const CREATE_PATH = '/cloudless.api.CoordinatorService/CreateWorkload';
/** Headers of a unary Connect call in JSON. */
export const JSON_TYPE = { 'content-type': 'application/json' };

/**
 * Sends a request over HTTP/1.1 on a new connection, or on a connection of `agent`. The body is
 * chunked, without Content-Length.
 */
export async function http1(
  url: string,
  { path = CREATE_PATH, method = 'POST', headers = JSON_TYPE, body = '' }: RawRequest,
  agent?: http.Agent,
): Promise<RawResponse> {
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

/** Sends a request over HTTP/2 on a new session, with prior knowledge. */
export async function http2Request(
  url: string,
  { path = CREATE_PATH, method = 'POST', headers = JSON_TYPE, body = '' }: RawRequest,
): Promise<RawResponse> {
  const session = http2.connect(url);
  try {
    const stream = session.request({ ':method': method, ':path': path, ...headers });
    let head: Record<string, unknown> = {};
    let trailers: Record<string, unknown> = {};
    stream.on('response', (fields) => (head = fields));
    stream.on('trailers', (fields) => (trailers = fields));
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    if (!stream.writableEnded) stream.end(body); // a GET ends at once
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

/** Encodes a message in the envelope of the streaming protocols, without flags. */
export function envelope(message: Buffer | string): Buffer {
  const data = Buffer.from(message);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

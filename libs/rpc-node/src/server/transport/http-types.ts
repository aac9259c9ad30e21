import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';

/** A request of HTTP/1.1 or HTTP/2. Only requests of HTTP/2 have a `stream`. */
export type AnyRequest = IncomingMessage | Http2ServerRequest;

/** A response of HTTP/1.1 or HTTP/2. */
export type AnyResponse = ServerResponse | Http2ServerResponse;

/** Returns the header fields of a request, without those of HTTP/2 itself. */
export function toHeaders({ headers }: AnyRequest): Headers {
  const fields = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && !name.startsWith(':')) fields.set(name, String(value));
  }
  return fields;
}

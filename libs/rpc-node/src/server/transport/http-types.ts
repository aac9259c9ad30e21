import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';

/** A request of HTTP/1.1 or HTTP/2. Only requests of HTTP/2 have a `stream`. */
export type AnyRequest = IncomingMessage | Http2ServerRequest;

/** A response of HTTP/1.1 or HTTP/2. */
export type AnyResponse = ServerResponse | Http2ServerResponse;

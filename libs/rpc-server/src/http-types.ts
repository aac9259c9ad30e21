import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';

/** A request in either version of HTTP; only those of HTTP/2 have a `stream`. */
export type AnyRequest = IncomingMessage | Http2ServerRequest;

/** The response to an {@link AnyRequest}. */
export type AnyResponse = ServerResponse | Http2ServerResponse;

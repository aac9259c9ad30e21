/** Errors of Node.js for a stream that was never opened, since its session was ending. */
const NEVER_OPENED = new Set(['ERR_HTTP2_GOAWAY_SESSION', 'ERR_HTTP2_INVALID_SESSION']);

/**
 * Returns true when the server has certainly not processed a call. Either the client sent nothing,
 * because its session was closing or destroyed; or the stream ended with REFUSED_STREAM (RFC 9113,
 * 8.7), as a stream does that the client opened before it received the GOAWAY of a closing server.
 * @param reason - The error of a call over a transport of `@connectrpc/connect-node`.
 */
export function isRefusedStream(reason: unknown): boolean {
  // Causes of the cause are not read: they may be about another stream.
  return isRefusal(reason) || (isObject(reason) && isRefusal((reason as Partial<NodeError>).cause));
}

function isRefusal(reason: unknown): boolean {
  if (!isObject(reason)) return false;
  const { code, message } = reason as Partial<NodeError>;
  if (typeof code !== 'string') return false;
  // The number of the HTTP/2 error is only in the message.
  const isRefused =
    code === 'ERR_HTTP2_STREAM_ERROR' && message?.endsWith('NGHTTP2_REFUSED_STREAM') === true;
  return isRefused || NEVER_OPENED.has(code);
}

/** An error of Node.js. */
interface NodeError {
  readonly code: string;
  readonly message: string;
  readonly cause: unknown;
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

/** Longest cause chain that is searched: a chain may contain a cycle. */
const MAX_CAUSES = 8;
/** Errors of Node.js for a stream that was never opened, since its session was ending. */
const NEVER_OPENED = new Set(['ERR_HTTP2_GOAWAY_SESSION', 'ERR_HTTP2_INVALID_SESSION']);

/**
 * Returns true when HTTP/2 guarantees that the server has not processed a call: the client opened no
 * stream on a connection that was ending, or the stream ended with REFUSED_STREAM (RFC 9113, 8.7).
 * Streams end so that were sent while the GOAWAY of a closing server was on its way.
 * @param reason - The error of a transport of Node.js.
 */
export function isRefusedStream(reason: unknown): boolean {
  let next = reason;
  for (let depth = 0; depth < MAX_CAUSES && isObject(next); depth += 1) {
    const { code, message, cause } = next as Partial<NodeError>;
    if (typeof code === 'string' && NEVER_OPENED.has(code)) return true;
    // The number of the HTTP/2 error is only in the message.
    if (code === 'ERR_HTTP2_STREAM_ERROR' && message?.endsWith('NGHTTP2_REFUSED_STREAM') === true)
      return true;
    next = cause;
  }
  return false;
}

/** An error of Node.js. */
interface NodeError {
  readonly code: string;
  readonly message: string;
  readonly cause: unknown;
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

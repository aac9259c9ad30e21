import { ConnectError, type HandlerContext } from '@connectrpc/connect';

/** Headers of the connection between two coordinators, which concern only the two. */
const CONNECTION_HEADERS =
  /^(:.*|content-.*|accept-.*|grpc-.*|connect-.*|date|vary|trailer|te|connection|keep-alive|transfer-encoding|server)$/i;

/** Copies the headers and trailers of the response of the leader to that of this coordinator. */
export function copyResponseHeaders(
  { header, trailer }: { readonly header: Headers; readonly trailer: Headers },
  context: HandlerContext,
): void {
  copyHeaders(header, context.responseHeader);
  copyHeaders(trailer, context.responseTrailer);
}

/**
 * Returns the error of the leader as this coordinator sends it on: with the same code, message,
 * details and metadata.
 */
export function toForwardedError(reason: unknown): unknown {
  if (!(reason instanceof ConnectError)) return reason;
  const metadata = new Headers();
  copyHeaders(reason.metadata, metadata);
  const error = new ConnectError(reason.rawMessage, reason.code, metadata, undefined, reason);
  error.details = reason.details;
  return error;
}

function copyHeaders(from: Headers, to: Headers): void {
  from.forEach((value, name) => {
    if (!CONNECTION_HEADERS.test(name)) to.append(name, value);
  });
}

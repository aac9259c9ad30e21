import { ConnectError } from '@connectrpc/connect';
import { setTrailerStatus } from '@connectrpc/connect/protocol-grpc';

/**
 * Largest size of the status in trailers, in bytes. gRPC clients of the C core (Python, Ruby, C++)
 * fail a call whose trailers take more than 8 KiB, without its status.
 */
const MAX_STATUS_BYTES = 7 * 1024;
/** Characters that remain of the message of an error whose status is too large. */
const SHORT_MESSAGE_LENGTH = 200;

/**
 * Encodes the text of `grpc-message`: percent-encodes "%" and all bytes outside of visible ASCII
 * and the space, as gRPC demands. Connect also encodes ":", "/", ",", ";" and others, which clients
 * that decode with `decodeURI`, such as `@grpc/grpc-js`, show as `%3A`. A space at either end is
 * encoded too, because HTTP removes it.
 * @see https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, Status-Message
 */
export function encodeGrpcMessage(text: string): string {
  let encoded = '';
  for (const byte of Buffer.from(text)) {
    encoded +=
      byte >= 0x20 && byte <= 0x7e && byte !== PERCENT
        ? String.fromCharCode(byte)
        : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded.replace(/^ | $/g, '%20');
}

const PERCENT = 0x25;

/** Sets the status of an error in the trailers of gRPC or gRPC-Web. Keeps other trailers. */
export function setGrpcStatus(trailer: Headers, error: ConnectError): void {
  // A message of megabytes is not encoded first: that would take seconds.
  if (error.rawMessage.length <= MAX_STATUS_BYTES) {
    writeStatus(trailer, error);
    if (measureStatus(trailer) <= MAX_STATUS_BYTES) return;
  }
  writeStatus(trailer, copyError(error, shorten(error.rawMessage)));
}

/** Returns the first characters of a message, and an ellipsis. */
function shorten(message: string): string {
  // A character takes at most two UTF-16 code units.
  const start = [...message.slice(0, 2 * SHORT_MESSAGE_LENGTH)];
  return `${start.slice(0, SHORT_MESSAGE_LENGTH).join('')}…`;
}

/** Copies an error without its metadata, which the trailers contain already. */
function copyError({ code, details }: ConnectError, text: string): ConnectError {
  const copy = new ConnectError(text, code);
  copy.details = details;
  return copy;
}

function writeStatus(trailer: Headers, error: ConnectError): void {
  setTrailerStatus(trailer, copyError(error, error.rawMessage));
  trailer.set('grpc-message', encodeGrpcMessage(error.rawMessage));
}

function measureStatus(trailer: Headers): number {
  return ['grpc-message', 'grpc-status-details-bin']
    .map((name) => trailer.get(name)?.length ?? 0)
    .reduce((sum, length) => sum + length, 0);
}

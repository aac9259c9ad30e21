import type { DescMessage } from '@bufbuild/protobuf';
import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import type { UniversalHandler, UniversalHandlerFn } from '@connectrpc/connect/protocol';
import { mapStream, toConnectError, toErrorKind } from '@cloudless/api';
import { CloudlessError, type ErrorKind, type ErrorReason } from '@cloudless/base';
import { explainEnumError } from './enum-errors.js';
import { correctErrorOf } from './error-responses.js';

/**
 * Corrects the errors that Connect itself sends, which pass no interceptor. Connect answers INTERNAL
 * to invalid binary protobuf; the response becomes INVALID_ARGUMENT with the message type. Connect
 * answers INVALID_ARGUMENT to an unknown enum value in JSON; the name of the field is added. Errors
 * without details get `google.rpc.ErrorInfo`.
 */
export function withInputErrors(handler: UniversalHandler): UniversalHandlerFn {
  const { input } = handler.method;
  return async (request) =>
    correctErrorOf(await handler(request), (error) => correctInputError(input, error) ?? error);
}

/**
 * Makes the same corrections for client streams, whose messages Connect parses while the handler
 * reads them. Must come before interceptors that log internal errors.
 */
export const inputErrorInterceptor: Interceptor = (next) => (request) => {
  if (!request.stream) return next(request);
  const { input } = request.method;
  return next({ ...request, message: withParseErrors(request.message, input) });
};

function withParseErrors<Item>(
  messages: AsyncIterable<Item>,
  input: DescMessage,
): AsyncIterable<Item> {
  return mapStream(
    messages,
    (message) => message,
    (reason) =>
      (reason instanceof ConnectError ? correctInputError(input, reason) : undefined) ?? reason,
  );
}

/** Returns the corrected error; undefined for an error that needs no correction. */
function correctInputError(input: DescMessage, error: ConnectError): ConnectError | undefined {
  const { code, rawMessage } = error;
  if (error.details.length > 0) return undefined;
  if (code === Code.InvalidArgument)
    return withReason(
      'MALFORMED_REQUEST',
      explainEnumError(input, rawMessage) ?? rawMessage,
      error,
    );
  if (code === Code.Internal && rawMessage.startsWith(CONNECT_PREFIX)) {
    const problem = rawMessage.slice(CONNECT_PREFIX.length);
    const message = `not a valid ${input.typeName} in the binary format: ${problem}`;
    return withReason('MALFORMED_REQUEST', message, error);
  }
  const kind = toErrorKind(code);
  // `internal` is also the kind of the codes that have none.
  return kind === 'internal' ? undefined : withReason(kind, rawMessage, error);
}

function withReason(
  kindOrReason: ErrorKind | ErrorReason,
  message: string,
  cause: ConnectError,
): ConnectError {
  return toConnectError(new CloudlessError(kindOrReason, message, { cause }));
}

/**
 * Start of the message of `@connectrpc/connect` about invalid binary protobuf
 * (`protocol/serialization.js`).
 */
const CONNECT_PREFIX = 'parse binary: ';

import {
  create,
  toBinary,
  type DescMessage,
  type DescMethodBiDiStreaming,
  type Message,
} from '@bufbuild/protobuf';
import {
  Code,
  ConnectError,
  createHandlerContext,
  type ConnectRouter,
  type Interceptor,
  type StreamRequest,
  type StreamResponse,
  type UnaryRequest,
  type UnaryResponse,
} from '@connectrpc/connect';
import {
  uResponseOk,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import { setTrailerStatus } from '@connectrpc/connect/protocol-grpc';
import { decodeMessage, directSenderKey, mapStream } from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import { callCancellerKey } from '../transport/call-lifetimes.js';
import { ENVELOPE_HEAD_BYTES, readEnvelopeLength } from './error-responses.js';

/** An implementation of a stream in both directions. */
type StreamImplementation = (
  messages: AsyncIterable<Message>,
  context: ReturnType<typeof createHandlerContext>,
) => AsyncIterable<Message>;

/**
 * The streams in both directions that a router has, for {@link createStreamHandlers}: handlers of
 * Connect do not tell their implementations.
 */
export class StreamImplementations {
  private readonly byMethod = new Map<unknown, StreamImplementation>();

  /** Returns a router that passes everything on to `router`. */
  record(router: ConnectRouter): ConnectRouter {
    const { byMethod } = this;
    const recording: ConnectRouter = {
      handlers: router.handlers,
      service: (service, implementation, options) => {
        for (const method of service.methods) {
          const implement = (implementation as Readonly<Record<string, unknown>>)[method.localName];
          if (method.methodKind === 'bidi_streaming' && typeof implement === 'function')
            byMethod.set(method, implement.bind(implementation) as StreamImplementation);
        }
        router.service(service, implementation, options);
        return recording;
      },
      rpc: (method, implementation, options) => {
        if (method.methodKind === 'bidi_streaming')
          byMethod.set(method, implementation as unknown as StreamImplementation);
        router.rpc(method, implementation, options);
        return recording;
      },
    };
    return recording;
  }

  get(method: unknown): StreamImplementation | undefined {
    return this.byMethod.get(method);
  }
}

/**
 * Replaces the handlers of streams in both directions by handlers that serve plain gRPC themselves:
 * binary messages without compression and without a deadline of the client, as agents send them.
 * Every message passes ten asynchronous generators in Connect, which are compiled to promises, and
 * none here. All other requests go to Connect.
 * @param handlers - Handlers of Connect.
 * @param interceptors - The interceptors that Connect runs; the first is the outermost.
 */
export function createStreamHandlers(
  handlers: readonly UniversalHandler[],
  implementations: StreamImplementations,
  interceptors: readonly Interceptor[],
): readonly UniversalHandler[] {
  return handlers.map((handler) => {
    const implement = implementations.get(handler.method);
    if (implement === undefined) return handler;
    const { protocolNames, allowedMethods, supportedContentType, requestPath, service, method } =
      handler;
    const serve = (request: UniversalServerRequest): Promise<UniversalServerResponse> =>
      isPlainGrpc(request)
        ? serveStream(handler, implement, interceptors, request)
        : handler(request);
    return Object.assign(serve, {
      ...{ protocolNames, allowedMethods, supportedContentType, requestPath, service, method },
    });
  });
}

function isPlainGrpc({ method, header }: UniversalServerRequest): boolean {
  const type = header.get('content-type');
  const encoding = header.get('grpc-encoding');
  return (
    method === 'POST' &&
    (type === 'application/grpc' || type === 'application/grpc+proto') &&
    (encoding === null || encoding === 'identity') &&
    !header.has('grpc-timeout')
  );
}

async function serveStream(
  { method, service }: UniversalHandler,
  implement: StreamImplementation,
  interceptors: readonly Interceptor[],
  request: UniversalServerRequest,
): Promise<UniversalServerResponse> {
  const context = createHandlerContext({
    ...{ method, service, protocolName: 'grpc' },
    requestMethod: request.method,
    requestSignal: request.signal,
    requestHeader: request.header,
    url: request.url,
    responseHeader: { 'Content-Type': 'application/grpc+proto' },
    responseTrailer: { 'Grpc-Status': '0' },
    ...definedFields({ contextValues: request.contextValues }),
  });
  const { responseHeader: header, responseTrailer: trailer } = context;
  const directWrites = context.values.get(callCancellerKey)?.directWrites;
  if (directWrites !== undefined)
    context.values.set(directSenderKey, {
      send: (bytes) => directWrites.write(fillHead(bytes)),
    });
  const invoke = async (incoming: UnaryRequest | StreamRequest): Promise<StreamResponse> => ({
    ...{ stream: true, method: method as DescMethodBiDiStreaming, service, header, trailer },
    message: implement(incoming.message as AsyncIterable<Message>, {
      ...context,
      service: incoming.service,
      requestHeader: incoming.header,
      signal: incoming.signal,
      values: incoming.contextValues,
    }),
  });
  const next = interceptors.reduceRight<
    (incoming: UnaryRequest | StreamRequest) => Promise<UnaryResponse | StreamResponse>
  >((inner, interceptor) => interceptor(inner), invoke);
  const output = new EncodedOutput(
    async () => {
      const response = await next({
        ...{ stream: true, method, service, url: request.url, signal: context.signal },
        requestMethod: request.method,
        header: context.requestHeader,
        contextValues: context.values,
        message: parseMessages(method.input, request.body as AsyncIterable<Uint8Array>),
      } as StreamRequest);
      copyHeaders(response.header, header);
      return {
        messages: (response as StreamResponse).message[Symbol.asyncIterator](),
        onEnd: () => copyHeaders(response.trailer, trailer),
      };
    },
    method.output,
    { trailer, abort: (reason) => context.abort(reason) },
  );
  // The implementation can set headers until its first message.
  const first = await output.next();
  return { ...uResponseOk, header, trailer, body: prepend(first, output) };
}

/** Passes the result of a first `next` on, then those of an iterator. */
function prepend(
  first: IteratorResult<Uint8Array>,
  rest: AsyncIterator<Uint8Array>,
): AsyncIterable<Uint8Array> {
  let pending: IteratorResult<Uint8Array> | undefined = first;
  return {
    [Symbol.asyncIterator]: () => ({
      next: () => {
        const result = pending;
        pending = undefined;
        return result === undefined ? rest.next() : Promise.resolve(result);
      },
      return: (value?: unknown) =>
        rest.return?.(value) ?? Promise.resolve({ done: true, value: undefined }),
    }),
  };
}

/** The messages of a response, and what follows them. */
interface Output {
  readonly messages: AsyncIterator<Message>;
  readonly onEnd: () => void;
}

/** Encodes the messages of a response, and writes their end into the trailer. */
class EncodedOutput implements AsyncIterator<Uint8Array> {
  private output: Output | undefined;
  private hasEnded = false;

  constructor(
    private readonly start: () => Promise<Output>,
    private readonly schema: DescMessage,
    private readonly call: {
      readonly trailer: Headers;
      readonly abort: (reason?: unknown) => void;
    },
  ) {}

  async next(): Promise<IteratorResult<Uint8Array>> {
    if (this.hasEnded) return { done: true, value: undefined };
    try {
      this.output ??= await this.start();
      const item = await this.output.messages.next();
      if (item.done !== true) return { done: false, value: encodeMessage(this.schema, item.value) };
      this.hasEnded = true;
      this.output.onEnd();
      this.call.abort();
    } catch (reason) {
      this.fail(reason);
    }
    return { done: true, value: undefined };
  }

  /** Ends the call when the client does not read on. */
  async return(): Promise<IteratorResult<Uint8Array>> {
    this.hasEnded = true;
    this.call.abort();
    await this.output?.messages.return?.();
    return { done: true, value: undefined };
  }

  private fail(reason: unknown): void {
    this.hasEnded = true;
    this.call.abort(reason);
    const error =
      reason instanceof ConnectError
        ? reason
        : new ConnectError('internal error', Code.Internal, undefined, undefined, reason);
    setTrailerStatus(this.call.trailer, error);
    void this.output?.messages.return?.().then(undefined, () => undefined);
  }
}

/** Parses a body of which every chunk is one message without compression, as `inspectBody` yields. */
function parseMessages(
  schema: DescMessage,
  chunks: AsyncIterable<Uint8Array>,
): AsyncIterable<Message> {
  return mapStream(chunks, (chunk) => {
    const length = chunk.byteLength - ENVELOPE_HEAD_BYTES;
    if (length < 0 || readEnvelopeLength(chunk) !== length)
      throw new ConnectError('protocol error: incomplete envelope', Code.InvalidArgument);
    try {
      return decodeMessage(schema, chunk, ENVELOPE_HEAD_BYTES);
    } catch (reason) {
      // As Connect: `inputErrorInterceptor` explains the error.
      const text = reason instanceof Error ? reason.message : String(reason);
      throw new ConnectError(`parse binary: ${text}`, Code.Internal);
    }
  });
}

/** @param message - May be an object with some fields of a message, as Connect allows. */
function encodeMessage(schema: DescMessage, message: Message): Uint8Array {
  return encodeEnvelope(toBinary(schema, create(schema, message)));
}

/** Returns a copy of an encoded message behind its flags and its length. */
function encodeEnvelope(bytes: Uint8Array): Uint8Array {
  const envelope = Buffer.allocUnsafe(ENVELOPE_HEAD_BYTES + bytes.byteLength);
  envelope.set(bytes, ENVELOPE_HEAD_BYTES);
  return fillHead(envelope);
}

/** Writes flags and length into the first bytes of an envelope, whose message is complete. */
function fillHead(envelope: Uint8Array): Uint8Array {
  const length = envelope.byteLength - ENVELOPE_HEAD_BYTES;
  envelope[0] = 0;
  envelope[1] = length >>> 24;
  envelope[2] = length >>> 16;
  envelope[3] = length >>> 8;
  envelope[4] = length;
  return envelope;
}

function copyHeaders(from: Headers, to: Headers): void {
  if (from === to) return;
  for (const [name, value] of from) to.set(name, value);
}

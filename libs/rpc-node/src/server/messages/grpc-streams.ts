import type { DescMessage, DescMethodBiDiStreaming, Message } from '@bufbuild/protobuf';
import type {
  Interceptor,
  StreamRequest,
  StreamResponse,
  UnaryRequest,
  UnaryResponse,
} from '@connectrpc/connect';
import {
  uResponseOk,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import { setTrailerStatus } from '@connectrpc/connect/protocol-grpc';
import { directSenderKey, mapStream, type DirectSender } from '@cloudless/api';
import type { DirectWrites } from '../admission/direct-writes.js';
import { CALL_ENDED } from '../transport/abortable-call.js';
import { callCancellerKey } from '../transport/call-lifetimes.js';
import {
  createGrpcContext,
  encodeEnvelope,
  fillHead,
  parseEnvelope,
  toClientError,
} from './grpc-messages.js';
import type { StreamImplementation } from './implementations.js';

/**
 * Serves a stream in both directions in binary gRPC without compression and without a deadline of
 * the client, as agents open them.
 * @param interceptors - The first is the outermost.
 */
export async function serveStream(
  handler: UniversalHandler,
  implement: StreamImplementation,
  interceptors: readonly Interceptor[],
  request: UniversalServerRequest,
): Promise<UniversalServerResponse> {
  const { method, service } = handler;
  const context = createGrpcContext(handler, request);
  const { responseHeader: header, responseTrailer: trailer } = context;
  const directWrites = context.values.get(callCancellerKey)?.directWrites;
  if (directWrites !== undefined)
    context.values.set(directSenderKey, new EnvelopeSender(directWrites));
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

/** Sends messages beside those that the implementation yields, each in its envelope. */
class EnvelopeSender implements DirectSender {
  constructor(private readonly writes: DirectWrites) {}

  send(bytes: Uint8Array): boolean {
    return this.writes.write(fillHead(bytes));
  }
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
      if (item.done !== true)
        return { done: false, value: encodeEnvelope(this.schema, item.value) };
      this.hasEnded = true;
      this.output.onEnd();
      this.call.abort(CALL_ENDED);
    } catch (reason) {
      this.fail(reason);
    }
    return { done: true, value: undefined };
  }

  /** Ends the call when the client does not read on. */
  async return(): Promise<IteratorResult<Uint8Array>> {
    this.hasEnded = true;
    this.call.abort(CALL_ENDED);
    await this.output?.messages.return?.();
    return { done: true, value: undefined };
  }

  private fail(reason: unknown): void {
    this.hasEnded = true;
    this.call.abort(reason);
    setTrailerStatus(this.call.trailer, toClientError(reason));
    void this.output?.messages.return?.().then(undefined, () => undefined);
  }
}

/** Parses a body of which every chunk is one message without compression, as `inspectBody` yields. */
function parseMessages(
  schema: DescMessage,
  chunks: AsyncIterable<Uint8Array>,
): AsyncIterable<Message> {
  return mapStream(chunks, (chunk) => parseEnvelope(schema, chunk));
}

function copyHeaders(from: Headers, to: Headers): void {
  if (from === to) return;
  for (const [name, value] of from) to.set(name, value);
}

import * as http2 from 'node:http2';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { Code, ConnectError, type HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorMessageSchema,
  CoordinatorService,
  DIRECT_HEAD_BYTES,
  directSenderKey,
  type AgentMessage,
  type CoordinatorMessage,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { RpcLimits, RpcServer } from '../options.js';
import { serversOfTest } from '../testing/fixture.js';
import { envelope } from '../testing/raw-http.js';
import { LoopIterations, encodeHello, requestSession } from '../testing/session-messages.js';
import { LARGE_MESSAGE_BYTES } from './inspect-body.js';

const open = serversOfTest(afterEach);
type Implementation = (
  messages: AsyncIterable<AgentMessage>,
  context: HandlerContext,
  server: Pick<RpcServer, 'getLoad'>,
) => AsyncIterable<CoordinatorMessage>;

const welcome = (clusterId: string): CoordinatorMessage =>
  create(CoordinatorMessageSchema, { message: { case: 'welcome', value: { clusterId } } });
/** Answers every Hello with a Welcome. */
async function* echo(messages: AsyncIterable<AgentMessage>): AsyncGenerator<CoordinatorMessage> {
  for await (const { message } of messages)
    if (message.case === 'hello') yield welcome(message.value.nodeId);
}

/** Calls Session with a whole body, and returns what the server answers. */
async function call(
  implementation: Implementation,
  bodies: readonly Uint8Array[],
  headers: http2.OutgoingHttpHeaders = {},
  limits: Partial<RpcLimits> = {},
) {
  const server = await open({
    limits,
    classifyCall: () => ({ priority: 'write', readsInTurns: true }),
    registerRoutes: (router) =>
      router.rpc(CoordinatorService.method.session, ((
        messages: AsyncIterable<AgentMessage>,
        context: HandlerContext,
      ) => implementation(messages, context, server)) as never),
  });
  const session = http2.connect(server.url);
  try {
    const stream = requestSession(session, headers);
    const chunks: Buffer[] = [];
    let fields: http2.IncomingHttpHeaders = {};
    const add = (more: http2.IncomingHttpHeaders): void => void (fields = { ...fields, ...more });
    stream.on('response', add).on('trailers', add);
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    for (const body of bodies) stream.write(body);
    stream.end();
    await new Promise((resolve) => stream.once('close', resolve));
    return { fields, texts: readWelcomes(Buffer.concat(chunks)) };
  } finally {
    session.destroy();
  }
}

function readWelcomes(bytes: Buffer): readonly string[] {
  const texts: string[] = [];
  for (let at = 0; at < bytes.length; at += 5 + bytes.readUInt32BE(at + 1)) {
    const data = bytes.subarray(at + 5, at + 5 + bytes.readUInt32BE(at + 1));
    const { message } = fromBinary(CoordinatorMessageSchema, data);
    texts.push(message.case === 'welcome' ? message.value.clusterId : 'no welcome');
  }
  return texts;
}

/** Each call is served directly, and with a deadline of the client by Connect: both alike. */
const PATHS = [
  { path: 'directly', headers: {} },
  { path: 'by Connect', headers: { 'grpc-timeout': '30S' } },
];

describe.each(PATHS)('a gRPC stream that is served $path', ({ headers }) => {
  it('delivers all messages in both directions, also those split over several frames', async () => {
    const all = Buffer.concat(['a', 'b', 'c'].map(encodeHello));
    const { fields, texts } = await call(echo, [all.subarray(0, 7), all.subarray(7)], headers);
    expect(texts).toEqual(['a', 'b', 'c']);
    expect(fields).toMatchObject({
      ...{ ':status': 200, 'grpc-status': '0' },
      'content-type': 'application/grpc+proto',
    });
  });

  it('parses each large message in an iteration of the event loop of its own', async () => {
    const loop = new LoopIterations();
    const iterations: number[] = [];
    async function* record(messages: AsyncIterable<AgentMessage>): AsyncGenerator<never> {
      for await (const _ of messages) iterations.push(loop.count);
    }
    const large = encodeHello('x'.repeat(LARGE_MESSAGE_BYTES));
    const body = Buffer.concat([large, large, large, large]);
    await call(record, [body], headers, { largeMessagesPerIteration: 1 });
    loop.stop();
    expect(new Set(iterations).size).toBe(4);
  });

  it('ends with the error of the implementation, after its messages', async () => {
    async function* fail(): AsyncGenerator<CoordinatorMessage> {
      yield welcome('first');
      throw new ConnectError('the node is banned', Code.PermissionDenied);
    }
    const { fields, texts } = await call(fail, [encodeHello('a')], headers);
    expect(texts).toEqual(['first']);
    expect(fields).toMatchObject({ 'grpc-status': '7', 'grpc-message': 'the node is banned' });
  });

  it('hides the cause of an unexpected error', async () => {
    async function* fail(): AsyncGenerator<CoordinatorMessage> {
      throw new CloudlessError('internal', 'a secret');
    }
    const { fields } = await call(fail, [encodeHello('a')], headers);
    expect(fields).toMatchObject({ 'grpc-status': '13', 'grpc-message': 'internal error' });
  });

  it('ends with an internal error when the implementation fails without a reason', async () => {
    async function* fail(): AsyncGenerator<CoordinatorMessage> {
      yield welcome('first');
      throw undefined;
    }
    const { fields, texts } = await call(fail, [encodeHello('a')], headers);
    expect(texts).toEqual(['first']);
    expect(fields).toMatchObject({ 'grpc-status': '13', 'grpc-message': 'internal error' });
  });

  it('sends the headers that the implementation sets before its first message', async () => {
    async function* setHeaders(
      _messages: AsyncIterable<AgentMessage>,
      context: HandlerContext,
    ): AsyncGenerator<CoordinatorMessage> {
      context.responseHeader.set('x-early', 'yes');
      yield welcome('a');
      context.responseTrailer.set('x-late', 'yes');
    }
    const { fields } = await call(setHeaders, [encodeHello('a')], headers);
    expect(fields).toMatchObject({ 'x-early': 'yes', 'x-late': 'yes', 'grpc-status': '0' });
  });

  it.each([
    { name: 'bytes that are no message', body: envelope(Buffer.from([0xff, 0xff])), code: '3' },
    { name: 'an incomplete message', body: encodeHello('a').subarray(0, 8), code: '3' },
    { name: 'an incomplete envelope', body: Buffer.from([0, 0]), code: '3' },
  ])('refuses $name as INVALID_ARGUMENT', async ({ body, code }) => {
    const { fields, texts } = await call(echo, [encodeHello('first'), body], headers);
    expect([fields['grpc-status'], texts]).toEqual([code, ['first']]);
  });

  it('aborts the signal of the call when the stream has ended', async () => {
    let signal: AbortSignal | undefined;
    async function* once(
      _messages: AsyncIterable<AgentMessage>,
      context: HandlerContext,
    ): AsyncGenerator<CoordinatorMessage> {
      signal = context.signal;
      yield welcome('a');
    }
    await call(once, [encodeHello('a')], headers);
    expect(signal?.aborted).toBe(true);
  });
});

describe('a message that a handler sends directly', () => {
  const encode = (text: string): Uint8Array =>
    Buffer.concat([
      Buffer.alloc(DIRECT_HEAD_BYTES, 0xff),
      toBinary(CoordinatorMessageSchema, welcome(text)),
    ]);
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  it('arrives between the messages that the handler yields before and after', async () => {
    const sent: (boolean | undefined)[] = [];
    async function* mixed(
      _messages: AsyncIterable<AgentMessage>,
      { values }: HandlerContext,
    ): AsyncGenerator<CoordinatorMessage> {
      const sender = values.get(directSenderKey);
      sent.push(sender?.send(encode('too early')));
      yield welcome('a');
      await turn();
      sent.push(sender?.send(encode('b')), sender?.send(encode('c')));
      yield welcome('d');
    }
    const { fields, texts } = await call(mixed, [encodeHello('x')]);
    expect({ sent, texts }).toEqual({ sent: [false, true, true], texts: ['a', 'b', 'c', 'd'] });
    expect(fields['grpc-status']).toBe('0');
  });

  it('is not sent while the client does not read, nor after the end of the call', async () => {
    const text = 'x'.repeat(1_000);
    let results: readonly boolean[] = [];
    let unreadBytes = 0;
    let sendLate = (): boolean | undefined => undefined;
    async function* flood(
      _messages: AsyncIterable<AgentMessage>,
      { values }: HandlerContext,
      server: Pick<RpcServer, 'getLoad'>,
    ): AsyncGenerator<CoordinatorMessage> {
      const sender = values.get(directSenderKey);
      sendLate = () => sender?.send(encode('late'));
      yield welcome('a');
      await turn();
      results = Array.from({ length: 1_000 }, () => sender?.send(encode(text)) ?? false);
      unreadBytes = server.getLoad().unreadResponseBytes;
      yield welcome('z');
    }
    const { texts } = await call(flood, [encodeHello('x')]);
    const accepted = results.indexOf(false);
    // Node holds at most the high-water mark of a stream, 16 or 64 KiB.
    expect(accepted).toBeGreaterThan(10);
    expect(accepted).toBeLessThan(66);
    expect(results.slice(accepted)).not.toContain(true);
    // Only the last message counts, as the stream has taken the earlier ones.
    expect(unreadBytes).toBe(encode(text).length);
    expect([texts.length, texts.at(-1), sendLate()]).toEqual([accepted + 2, 'z', false]);
  });

  it('has no sender in a call that Connect serves', async () => {
    let sender: unknown = 'none';
    async function* probe(
      _messages: AsyncIterable<AgentMessage>,
      { values }: HandlerContext,
    ): AsyncGenerator<CoordinatorMessage> {
      sender = values.get(directSenderKey);
      yield welcome('a');
    }
    await call(probe, [encodeHello('x')], { 'grpc-timeout': '30S' });
    expect(sender).toBeUndefined();
  });
});

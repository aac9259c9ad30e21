import { once } from 'node:events';
import * as http2 from 'node:http2';
import fc from 'fast-check';
import {
  CoordinatorService,
  forEachItem,
  toReadyItems,
  type AgentMessage,
  type CoordinatorMessage,
} from '@cloudless/api';
import type { RpcLimits } from '../options.js';
import { serversOfTest } from '../testing/fixture.js';
import { envelope } from '../testing/raw-http.js';
import { LoopIterations, encodeHello, requestSession } from '../testing/session-messages.js';
import { LARGE_MESSAGE_BYTES } from './inspect-body.js';

const open = serversOfTest(afterEach);

/** Opens a stream whose messages the server takes without a promise for each, but the first. */
async function openStream(
  handle: (nodeId: string) => boolean | Promise<void>,
  limits: Partial<RpcLimits> = {},
) {
  const state = { canTake: false, outcome: 'waiting' };
  async function* take(messages: AsyncIterable<AgentMessage>): AsyncGenerator<CoordinatorMessage> {
    const items = messages[Symbol.asyncIterator]();
    await items.next();
    state.canTake = toReadyItems(items) !== undefined;
    state.outcome = 'open';
    try {
      await forEachItem(items, ({ message }) =>
        handle(message.case === 'hello' ? message.value.nodeId : 'no hello'),
      );
      state.outcome = 'ended';
    } catch (reason) {
      state.outcome = String(reason);
    }
  }
  const { url } = await open({
    limits,
    classifyCall: () => ({ priority: 'control', readsInTurns: true }),
    registerRoutes: (router) => router.rpc(CoordinatorService.method.session, take as never),
  });
  const session = http2.connect(url);
  const stream = requestSession(session);
  stream.on('error', () => undefined).resume();
  stream.write(encodeHello('first'));
  const close = async (): Promise<void> => {
    if (!stream.closed) await once(stream, 'close');
    session.destroy();
  };
  return { state, session, stream, close };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function waitUntil(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await turn();
}

describe('messages that a handler takes', () => {
  it('arrive once and in order, however the body is split into frames', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 300 }), { maxLength: 20 }),
        fc.array(fc.tuple(fc.integer({ min: 1, max: 600 }), fc.boolean()), { maxLength: 12 }),
        async (sizes, cuts) => {
          const nodeIds = sizes.map((size, index) => `${index}`.padEnd(size, 'x'));
          const seen: string[] = [];
          const { state, stream, close } = await openStream((nodeId) => seen.push(nodeId) > 0);
          let rest = Buffer.concat(nodeIds.map(encodeHello));
          for (const [bytes, waits] of cuts) {
            stream.write(rest.subarray(0, bytes));
            rest = rest.subarray(bytes);
            if (waits) await turn();
          }
          stream.end(rest);
          await close();
          expect(state).toEqual({ canTake: true, outcome: 'ended' });
          expect(seen).toEqual(nodeIds);
        },
      ),
      { numRuns: 25 },
    );
  });

  it.each([
    {
      name: 'bytes that are no message',
      body: envelope(Buffer.from([0xff, 0xff])),
      outcome: /not a valid cloudless.api.AgentMessage/,
    },
    { name: 'an incomplete message', body: encodeHello('a').subarray(0, 8), outcome: /incomplete/ },
    { name: 'unknown flags', body: Buffer.from([4, 0, 0, 0, 0]), outcome: /flags 00000100/ },
    {
      name: 'a message that is too large',
      body: Buffer.from([0, 0x7f, 0, 0, 0]),
      outcome: /larger than/,
    },
  ])('fail at $name, after the messages before', async ({ body, outcome }) => {
    const seen: string[] = [];
    const { state, stream, close } = await openStream((nodeId) => seen.push(nodeId) > 0);
    stream.end(Buffer.concat([encodeHello('a'), body]));
    await close();
    expect(seen).toEqual(['a']);
    expect(state.outcome).toMatch(outcome);
  });

  it('fail when the connection is lost before the end of the body', async () => {
    const { state, session } = await openStream(() => true);
    await waitUntil(() => state.outcome === 'open');
    session.destroy();
    await waitUntil(() => state.outcome !== 'open');
    expect(state.outcome).toMatch(/Premature close/);
  });

  it('end when the client ends its body and resets the stream', async () => {
    const { state, stream, close } = await openStream(() => true);
    await waitUntil(() => state.outcome === 'open');
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await close();
    await waitUntil(() => state.outcome !== 'open');
    expect(state).toEqual({ canTake: true, outcome: 'ended' });
  });

  it('are read no further while the handler waits: the client cannot send without end', async () => {
    let goOn = (): void => undefined;
    const seen: number[] = [];
    const { stream, close } = await openStream((nodeId) => {
      seen.push(nodeId.length);
      return seen.length > 1 ? true : new Promise<void>((resolve) => (goOn = resolve));
    });
    const piece = encodeHello('x'.repeat(4_000));
    const pieces = 500;
    let written = 0;
    for (let count = 0; count < pieces; count += 1) stream.write(piece, () => (written += 1));
    stream.end();
    await waitUntil(() => seen.length === 1);
    for (let turns = 0; turns < 200; turns += 1) await turn();
    expect(seen).toHaveLength(1);
    expect(written * piece.length).toBeLessThan(300_000);
    goOn();
    await close();
    expect(seen).toEqual(Array.from({ length: pieces }, () => 4_000));
  });

  it('wait for their turn when they are large', async () => {
    const loop = new LoopIterations();
    const iterations: number[] = [];
    const { stream, close } = await openStream(() => iterations.push(loop.count) > 0, {
      largeMessagesPerIteration: 1,
    });
    const large = encodeHello('x'.repeat(LARGE_MESSAGE_BYTES));
    stream.end(Buffer.concat([large, large, large, large]));
    await close();
    loop.stop();
    expect(new Set(iterations).size).toBe(4);
  });
});

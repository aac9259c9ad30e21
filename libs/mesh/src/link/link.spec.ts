import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import fc from 'fast-check';
import { ManualClock } from '@cloudless/base/testing';
import { duplexPair } from '../testing/duplex-pair.js';
import {
  encodeHeader,
  encodeText,
  encodeWindow,
  FrameType,
  INITIAL_WINDOW_BYTES,
} from './frames.js';
import { Link, OpenRefusedError, type LinkOptions } from './link.js';
import type { LinkStream } from './link-stream.js';

const request = {
  ...{ endpoint: 'default/web/r1', port: 'http', protocol: 'tcp' as const },
  ...{ client: '10.0.0.7:1', virtual: '10.96.0.20:80', identity: 'spiffe://cloudless/node/a' },
};
const never = new AbortController().signal;

function aLink(socket: Duplex, changes: Partial<LinkOptions> = {}) {
  const ended: string[] = [];
  const clock = new ManualClock();
  const link = new Link({
    ...{ socket, clock, isDialler: true, nodeId: 'a', peerNodeId: 'b', path: 'link' },
    maxStreams: 100,
    onOpen: (_request, stream) => stream.accept(),
    onUnusable: () => undefined,
    onClose: (_link, reason) => ended.push(reason),
    ...changes,
  });
  return { link, ended, clock };
}

/** Two links that are connected, the second of which gives its streams to `onOpen`. */
async function aPair(onOpen: (stream: LinkStream) => void, maxStreams = 100) {
  const [left, right] = duplexPair();
  const far = aLink(right, {
    ...{ isDialler: false, maxStreams },
    onOpen: (_request, stream) => onOpen(stream),
  });
  const near = aLink(left);
  await near.link.ready();
  return { near, far };
}

const hello = encodeText(FrameType.hello, 0, '{"nodeId":"b"}');

describe('a link', () => {
  it('carries any texts in both directions, half-closed in any order', async () => {
    const { near } = await aPair((stream) => {
      stream.accept();
      stream.on('data', (chunk: Buffer) => stream.write(chunk));
      stream.on('end', () => stream.end());
    });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 200_000 })), async (chunks) => {
        const stream = await near.link.open(request, never);
        const received: Buffer[] = [];
        stream.on('data', (chunk: Buffer) => received.push(chunk));
        for (const chunk of chunks) stream.write(chunk);
        stream.end();
        await once(stream, 'close');
        expect(Buffer.concat(received).equals(Buffer.concat(chunks))).toBe(true);
      }),
      { numRuns: 20 },
    );
    expect(near.link.streamCount).toBe(0);
  });

  it('opens no stream once it has ended, or ends with its last stream', async () => {
    const { near } = await aPair(() => undefined);
    const leaving = await aPair((stream) => stream.accept());
    await leaving.near.link.open(request, never);
    leaving.near.link.leave('a renewal');
    near.link.close('gone');
    for (const { link } of [near, leaving.near]) {
      const opening = link.open(request, never);
      await expect(opening).rejects.toMatchObject({ name: 'LinkUnusableError' });
    }
    expect(near.link.streamCount).toBe(0);
  });

  it('stops a sender whose receiver does not read, and lets other streams pass', async () => {
    const streams: LinkStream[] = [];
    const { near } = await aPair((stream) => {
      stream.accept();
      if (streams.push(stream) > 1) stream.on('data', (chunk: Buffer) => stream.write(chunk));
    });
    const slow = await near.link.open(request, never);
    const chunk = Buffer.alloc(32 * 1024);
    let written = 0;
    while (slow.write(chunk, () => (written += chunk.length)) || written < INITIAL_WINDOW_BYTES)
      await new Promise((resolve) => setImmediate(resolve));
    for (let turn = 0; turn < 20; turn += 1) {
      slow.write(chunk, () => (written += chunk.length));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(written).toBeLessThanOrEqual(INITIAL_WINDOW_BYTES);
    expect(streams[0]?.readableLength).toBeLessThanOrEqual(INITIAL_WINDOW_BYTES);
    const fast = await near.link.open(request, never);
    fast.write('passes');
    const [answer] = (await once(fast, 'data')) as [Buffer];
    expect(answer.toString()).toBe('passes');
  });

  it('refuses streams above the limit with the reason', async () => {
    const { near } = await aPair((stream) => stream.accept(), 2);
    await near.link.open(request, never);
    await near.link.open(request, never);
    await expect(near.link.open(request, never)).rejects.toThrow(OpenRefusedError);
    await expect(near.link.open(request, never)).rejects.toThrow('the limit is 2');
  });

  it('resets all streams when the connection ends', async () => {
    const { near, far } = await aPair((stream) => stream.accept());
    const stream = await near.link.open(request, never);
    const failed = once(stream, 'error');
    far.link.close('test');
    expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    expect(near.link.streamCount).toBe(0);
  });

  it('survives 1,500 streams that are reset at once after they were opened', async () => {
    const { near, far } = await aPair((stream) => stream.accept());
    for (let count = 0; count < 1_500; count += 1) (await near.link.open(request, never)).destroy();
    const stream = await near.link.open(request, never);
    expect(stream.destroyed).toBe(false);
    expect([near.ended, far.ended]).toEqual([[], []]);
    expect(far.link.streamCount).toBe(1);
  });

  it('ends a connection whose peer does not answer a probe', async () => {
    const [left, right] = duplexPair();
    const { ended, clock } = aLink(left);
    right.resume();
    right.write(hello);
    await clock.advance(9_999);
    expect(ended).toEqual([]);
    await clock.advance(3_002);
    expect(ended).toEqual(['the other proxy does not answer']);
  });

  it('accepts no stream after it has announced to leave, and ends with its last stream', async () => {
    const { near, far } = await aPair((stream) => stream.accept());
    const stream = await near.link.open(request, never);
    far.link.leave('upgrade');
    await new Promise((resolve) => setImmediate(resolve));
    expect(near.link.isUsable).toBe(false);
    expect(near.ended).toEqual([]);
    stream.destroy();
    await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setImmediate(resolve));
    expect(near.link.isClosed || far.link.isClosed).toBe(true);
  });
});

describe('a link with a hostile peer', () => {
  const data = (id: number, bytes: number): Buffer =>
    Buffer.concat([encodeHeader(FrameType.data, id, bytes), Buffer.alloc(bytes)]);
  const open = (id: number): Buffer => encodeText(FrameType.open, id, JSON.stringify(request));

  it.each([
    { name: 'a stream before the first message', frames: [open(2)] },
    { name: 'a damaged first message', frames: [encodeText(FrameType.hello, 0, '[')] },
    { name: 'a stream with an id of the other side', frames: [hello, open(3)] },
    { name: 'an id that is used twice', frames: [hello, open(2), open(2)] },
    { name: 'ids that go backwards', frames: [hello, open(4), open(2)] },
    {
      name: 'more data than the window',
      frames: [hello, open(2), data(2, 60_000), data(2, 60_000)],
    },
    {
      name: 'data after the end',
      frames: [hello, open(2), encodeHeader(FrameType.end, 2, 0), data(2, 1)],
    },
    {
      name: 'windows that add up to more than 2 GiB',
      frames: [hello, open(2), encodeWindow(2, 2 ** 31)],
    },
    {
      name: 'a window without a number',
      frames: [hello, open(2), encodeHeader(FrameType.window, 2, 0)],
    },
    { name: 'a frame that is too long', frames: [hello, Buffer.from('02ffffff00000002', 'hex')] },
  ])('ends the connection after $name', async ({ frames }) => {
    const [left, right] = duplexPair();
    const { ended, link } = aLink(left, { onOpen: (_request, stream) => stream.accept() });
    right.on('error', () => undefined).resume();
    for (const frame of frames) right.write(frame);
    await new Promise((resolve) => setImmediate(resolve));
    expect(ended).toEqual([expect.stringContaining('the other proxy broke the protocol')]);
    expect(link.streamCount).toBe(0);
  });

  it.each([
    { name: 'frames for unknown streams', frame: data(88, 10) },
    { name: 'ends and resets of unknown streams', frame: encodeHeader(FrameType.reset, 88, 0) },
    { name: 'a frame of a later version', frame: encodeText(99 as 11, 88, 'new') },
  ])('ignores $name', async ({ frame }) => {
    const [left, right] = duplexPair();
    const { ended, link } = aLink(left);
    right.resume();
    for (const each of [hello, frame, frame]) right.write(each);
    await new Promise((resolve) => setImmediate(resolve));
    expect(ended).toEqual([]);
    expect(link.isUsable).toBe(true);
  });

  it('ends when the peer pings without reading the answers', async () => {
    const [left, right] = duplexPair();
    const { ended } = aLink(left);
    right.write(hello);
    const pings = Buffer.concat(
      Array.from({ length: 8_000 }, () => encodeHeader(FrameType.ping, 0, 0)),
    );
    for (let turn = 0; turn < 100 && ended.length === 0; turn += 1) {
      right.write(pings);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(ended).toEqual(['the other proxy does not read']);
  });

  it('stays in its limits whatever frames arrive', async () => {
    const arbFrame = fc.record({
      type: fc.constantFrom(...Object.values(FrameType)),
      id: fc.integer({ min: 0, max: 12 }),
      payload: fc.oneof(
        fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
        fc.constant(Buffer.from(JSON.stringify(request))),
      ),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(arbFrame, { maxLength: 40 }), async (frames) => {
        const [left, right] = duplexPair();
        const { link } = aLink(left, { maxStreams: 3 });
        right.on('error', () => undefined).resume();
        right.write(hello);
        for (const { type, id, payload } of frames)
          right.write(Buffer.concat([encodeHeader(type, id, payload.length), payload]));
        await new Promise((resolve) => setImmediate(resolve));
        expect(link.streamCount).toBeLessThanOrEqual(3);
        link.close('done');
        expect(link.streamCount).toBe(0);
      }),
    );
  });
});

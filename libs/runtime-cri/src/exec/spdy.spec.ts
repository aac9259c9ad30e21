import { createInflate } from 'node:zlib';
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  encodeDataFrame,
  encodePingFrame,
  SpdyParser,
  SpdyStreams,
  type SpdyFrame,
} from './spdy.js';

const control = (type: number, payload: readonly number[]): Buffer =>
  Buffer.from([0x80, 3, 0, type, 0, 0, payload.length >> 8, payload.length & 0xff, ...payload]);

/**
 * Joins consecutive data frames of one stream, because the boundaries of chunks have no meaning.
 */
function joinData(frames: readonly SpdyFrame[]): readonly unknown[] {
  const result: { kind: string; streamId?: number; data?: number[] }[] = [];
  for (const frame of frames) {
    const last = result.at(-1);
    if (frame.kind !== 'data') result.push({ ...frame });
    else if (last?.kind === 'data' && last.streamId === frame.streamId)
      last.data?.push(...frame.data);
    else if (frame.data.length > 0) result.push({ ...frame, data: [...frame.data] });
  }
  return result;
}

describe('SpdyStreams.open', () => {
  it('returns frames with increasing odd ids and header blocks that zlib inflates one by one', async () => {
    const streams = new SpdyStreams();
    const inflate = createInflate();
    const read: Buffer[] = [];
    inflate.on('data', (part: Buffer) => read.push(part));
    for (const [index, name] of ['error', 'stdin', 'stdout'].entries()) {
      const { streamId, frame } = streams.open('streamtype', name);
      expect([
        streamId,
        frame.readUInt32BE(0),
        frame.readUInt32BE(4),
        frame.readUInt32BE(8),
      ]).toEqual([1 + 2 * index, 0x80030001, frame.length - 8, streamId]);
      await new Promise<void>((resolve) => inflate.write(frame.subarray(18), () => resolve()));
      const block = Buffer.concat(read.splice(0));
      expect([
        block.readUInt32BE(0),
        block.toString('latin1', 8, 18),
        block.toString('latin1', 22),
      ]).toEqual([1, 'streamtype', name]);
    }
    inflate.destroy();
  });
});

describe('SpdyParser.feed', () => {
  it('parses the supported frames and skips the others', () => {
    const frames = new SpdyParser().feed(
      Buffer.concat([
        control(2, [0, 0, 0, 1, 9, 9]), // SYN_REPLY
        encodeDataFrame(3, new Uint8Array([1, 2])),
        control(6, [0, 0, 0, 8]),
        control(3, [0, 0, 0, 5, 0, 0, 0, 3]),
        encodeDataFrame(3, new Uint8Array(0), true),
        control(3, [0x80, 0, 0, 7, 0, 0, 0, 1]), // with the reserved bit
        control(7, [0, 0, 0, 0, 0, 0, 0, 0]),
      ]),
    );
    expect(frames).toEqual([
      { kind: 'data', streamId: 3, data: new Uint8Array([1, 2]) },
      { kind: 'ping', id: 8 },
      { kind: 'reset', streamId: 5, status: 3 },
      { kind: 'end', streamId: 3 },
      { kind: 'reset', streamId: 7, status: 1 },
      { kind: 'goAway' },
    ]);
    expect(new SpdyParser().feed(encodePingFrame(8))).toEqual([{ kind: 'ping', id: 8 }]);
  });

  it('returns the same frames however the bytes are cut into chunks', () => {
    const arbFrame = fc.oneof(
      fc
        .tuple(fc.integer({ min: 1, max: 9 }), fc.uint8Array({ maxLength: 30 }), fc.boolean())
        .map((args) => encodeDataFrame(...args)),
      fc
        .tuple(fc.integer({ min: 1, max: 9 }), fc.array(fc.nat(255), { maxLength: 12 }))
        .map((args) => control(...args)),
    );
    fc.assert(
      fc.property(
        fc.array(arbFrame, { maxLength: 6 }),
        fc.array(fc.nat(), { maxLength: 8 }),
        (frames, cuts) => {
          const whole = Buffer.concat(frames);
          const boundaries = [0, ...cuts.map((cut) => cut % (whole.length + 1)), whole.length].sort(
            (a, b) => a - b,
          );
          const parser = new SpdyParser();
          const found = boundaries
            .slice(1)
            .flatMap((end, index) => parser.feed(whole.subarray(boundaries[index], end)));
          expect(joinData(found)).toEqual(joinData(new SpdyParser().feed(whole)));
        },
      ),
    );
  });

  it('parses any bytes without an exception', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 200 })), (chunks) => {
        const parser = new SpdyParser();
        for (const chunk of chunks) parser.feed(chunk);
      }),
    );
  });

  it('buffers less than 16 MiB of a control frame that claims to be that large', () => {
    const parser = new SpdyParser();
    parser.feed(Buffer.from([0x80, 3, 0, 8, 0, 0xff, 0xff, 0xff]));
    const before = process.memoryUsage().arrayBuffers;
    for (let part = 0; part < 200; part += 1) parser.feed(Buffer.alloc(64 * 1024));
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16 * 1024 * 1024);
  });
});

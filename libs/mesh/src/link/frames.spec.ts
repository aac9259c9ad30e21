import fc from 'fast-check';
import {
  encodeHeader,
  encodeText,
  encodeWindow,
  FrameError,
  FrameReader,
  FrameType,
  HEADER_BYTES,
  MAX_CONTROL_BYTES,
  MAX_DATA_BYTES,
} from './frames.js';

type Seen = { type: number; streamId: number; payload: string };

/** Reads chunks; the parts of one data frame are joined. */
function readAll(chunks: readonly Buffer[]): Seen[] {
  const seen: Seen[] = [];
  const reader = new FrameReader({
    onData: (streamId, bytes) => {
      const last = seen.at(-1);
      const text = bytes.toString('latin1');
      if (last?.type === FrameType.data && last.streamId === streamId) last.payload += text;
      else seen.push({ type: FrameType.data, streamId, payload: text });
    },
    onControl: (type, streamId, payload) =>
      seen.push({ type, streamId, payload: payload.toString('latin1') }),
  });
  for (const chunk of chunks) reader.read(chunk);
  return seen;
}

/** Cuts bytes at the given places. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const sorted = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort(
    (left, right) => left - right,
  );
  return [...sorted, bytes.length].map((end, index) => bytes.subarray(sorted[index - 1] ?? 0, end));
}

const arbFrame = fc.record({
  type: fc.constantFrom(...Object.values(FrameType)),
  streamId: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  payload: fc.uint8Array({ minLength: 1, maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
});
const arbPlaces = fc.array(fc.nat(10_000), { maxLength: 30 });

describe('FrameReader', () => {
  it('finds the same frames however the bytes are cut', () => {
    fc.assert(
      fc.property(fc.array(arbFrame, { maxLength: 20 }), arbPlaces, (frames, places) => {
        const bytes = Buffer.concat(
          frames.flatMap(({ type, streamId, payload }) => [
            encodeHeader(type, streamId, payload.length),
            payload,
          ]),
        );
        expect(readAll(cut(bytes, places))).toEqual(readAll([bytes]));
      }),
    );
  });

  it('reads what the encoders write', () => {
    const frames = [
      encodeText(FrameType.open, 7, '{"a":1}'),
      encodeWindow(7, 65_536),
      encodeHeader(FrameType.end, 4_294_967_295, 0),
    ];
    expect(readAll([Buffer.concat(frames)])).toEqual([
      { type: FrameType.open, streamId: 7, payload: '{"a":1}' },
      { type: FrameType.window, streamId: 7, payload: '\u0000\u0001\u0000\u0000' },
      { type: FrameType.end, streamId: 4_294_967_295, payload: '' },
    ]);
  });

  it('ends with FrameError or reads on, whatever the bytes are', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 5_000 }), arbPlaces, (bytes, places) => {
        try {
          readAll(cut(Buffer.from(bytes), places));
        } catch (reason) {
          expect(reason).toBeInstanceOf(FrameError);
        }
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    { name: 'data', type: FrameType.data, limit: MAX_DATA_BYTES },
    { name: 'control', type: FrameType.open, limit: MAX_CONTROL_BYTES },
    { name: 'unknown', type: 200, limit: MAX_CONTROL_BYTES },
  ])('refuses a $name frame above its limit by the header alone', ({ type, limit }) => {
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt32BE(((type << 24) | (limit + 1)) >>> 0, 0);
    expect(() => readAll([header])).toThrow(FrameError);
    expect(() => readAll([header.subarray(0, 3), header.subarray(3)])).toThrow(FrameError);
  });
});

import fc from 'fast-check';
import {
  encodeFrame,
  encodeResize,
  FrameParser,
  MAX_FRAME_BYTES,
  parseResize,
  type Frame,
  type FrameKind,
} from './frames.js';
import { parseMessage } from './messages.js';

const kinds: readonly FrameKind[] = ['message', 'stdout', 'stderr', 'stdin', 'stdinEnd', 'resize'];
const show = ({ kind, payload }: Frame): string => `${kind} ${payload.toString('hex')}`;

describe('frames', () => {
  it('are parsed as they were encoded, in whatever chunks the bytes arrive', () => {
    const anyFrame = fc.record({
      kind: fc.constantFrom(...kinds),
      payload: fc.uint8Array({ maxLength: 300 }),
    });
    fc.assert(
      fc.property(
        fc.array(anyFrame),
        fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1 }),
        (frames, sizes) => {
          const bytes = Buffer.concat(
            frames.map(({ kind, payload }) => encodeFrame(kind, payload)),
          );
          const parser = new FrameParser();
          const seen: Frame[] = [];
          for (let start = 0, turn = 0; start < bytes.length; turn += 1) {
            const size = sizes[turn % sizes.length] ?? 1;
            seen.push(...parser.feed(bytes.subarray(start, start + size)));
            start += size;
          }
          expect(seen.map(show)).toEqual(
            frames.map(({ kind, payload }) => show({ kind, payload: Buffer.from(payload) })),
          );
        },
      ),
    );
  });

  it('are parsed without an error other than kind invalid, whatever the bytes', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 5 }), (chunks) => {
        const parser = new FrameParser();
        try {
          for (const chunk of chunks)
            for (const { payload } of parser.feed(Buffer.from(chunk))) parseMessage(payload);
        } catch (reason) {
          expect(reason).toMatchObject({ kind: 'invalid' });
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it('are rejected by a length over the limit before their payload arrives', () => {
    const header = Buffer.alloc(5);
    header.writeUInt32BE(MAX_FRAME_BYTES + 1, 0);
    expect(() => new FrameParser().feed(header)).toThrow(
      expect.objectContaining({ kind: 'invalid' }),
    );
  });
});

describe('resize frames', () => {
  it('carry columns and rows as 2 bytes each, big endian', () => {
    const [frame] = new FrameParser().feed(encodeResize({ columns: 300, rows: 40 }));
    expect(frame).toMatchObject({ kind: 'resize', payload: Buffer.from([1, 44, 0, 40]) });
    expect(parseResize(Buffer.from([1, 44, 0, 40]))).toEqual({ columns: 300, rows: 40 });
  });

  it.each([0, 3, 5])('are rejected with a payload of %i bytes', (length) => {
    expect(() => parseResize(Buffer.alloc(length))).toThrow(
      expect.objectContaining({ kind: 'invalid' }),
    );
  });
});

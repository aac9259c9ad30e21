import fc from 'fast-check';
import { ByteReader } from './byte-reader.js';
import { ByteWriter } from './byte-writer.js';

describe('ByteWriter', () => {
  it('round-trips all types through ByteReader with any initial capacity', () => {
    const arbitraryFields = fc.record({
      number: fc.nat(0xffff),
      big: fc.oneof(
        fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
        fc.bigInt({ min: 0n, max: 2n ** 34n }),
        fc.bigInt({ min: 2n ** 53n - 2n, max: 2n ** 53n + 2n }),
      ),
      fraction: fc.double({ noNaN: true }),
      text: fc.oneof(fc.string({ unit: 'grapheme', maxLength: 200 }), fc.string()),
      bytes: fc.uint8Array({ maxLength: 200 }),
    });
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 100 }),
        arbitraryFields,
        (capacity, { number, big, fraction, text, bytes }) => {
          const writer = new ByteWriter(capacity).uint32(1).clear();
          // prettier-ignore
          writer.uint8(number % 256).uint16(number).uint32(number).uint64(big).float64(fraction).text(text).uint16(bytes.length).bytes(bytes);
          const reader = new ByteReader(Buffer.from(writer.view()));
          expect([reader.uint8(), reader.uint16(), reader.uint32(), reader.uint64()]).toEqual([
            number % 256,
            number,
            number,
            big,
          ]);
          expect([
            reader.float64(),
            reader.text(),
            reader.bytes(reader.uint16()),
            reader.atEnd,
          ]).toEqual([fraction, text, bytes, true]);
          expect(() => reader.uint8()).toThrow(RangeError);
        },
      ),
    );
  });
});

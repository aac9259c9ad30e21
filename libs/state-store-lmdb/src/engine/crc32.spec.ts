import { crc32 as nativeCrc32 } from 'node:zlib';
import fc from 'fast-check';
import { crc32 } from './crc32.js';

describe('crc32', () => {
  it('returns the checksum of zlib for every part of a buffer', () => {
    const arbBytes = fc.uint8Array({ maxLength: 600, size: 'max' });
    fc.assert(
      fc.property(arbBytes, fc.nat(), fc.nat(), fc.nat(0xffff_ffff), (array, from, to, initial) => {
        const bytes = Buffer.from(array);
        const start = from % (bytes.length + 1);
        const end = start + (to % (bytes.length - start + 1));
        const part = bytes.subarray(start, end);
        expect(crc32(bytes, start, end)).toBe(nativeCrc32(part));
        // zlib returns 0 for no bytes, whatever they continue.
        const continued = part.length === 0 ? initial : nativeCrc32(part, initial);
        expect(crc32(bytes, start, end, initial)).toBe(continued);
      }),
    );
  });

  it.each([0, 7, 8, 9, 15, 16, 17, 255, 256, 257])(
    'returns the checksum of zlib for %i bytes',
    (length) => {
      const bytes = Buffer.from(Array.from({ length }, (_, index) => (index * 37) & 0xff));
      expect(crc32(bytes, 0, length)).toBe(nativeCrc32(bytes));
    },
  );
});

import fc from 'fast-check';
import { compareKeys, countUtf8Bytes } from './utf8.js';

const encoder = new TextEncoder();
/** Arbitrary code points, with the neighbours of the surrogates more often. */
// prettier-ignore
const arbText = fc.string({ unit: fc.oneof(fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }), fc.constantFrom('a', '\ud7ff', '\ue000', '\uffff', '😀', '\u{10ffff}')), maxLength: 8 });

describe('compareKeys', () => {
  it('orders keys like their UTF-8 bytes', () => {
    fc.assert(
      fc.property(arbText, arbText, (a, b) => {
        expect(Math.sign(compareKeys(a, b))).toBe(
          Math.sign(compareBytes(encoder.encode(a), encoder.encode(b))),
        );
      }),
    );
  });
});

describe('countUtf8Bytes', () => {
  it('counts the bytes that TextEncoder encodes', () => {
    fc.assert(
      fc.property(arbText, (text) =>
        expect(countUtf8Bytes(text)).toBe(encoder.encode(text).length),
      ),
    );
  });

  it.each(['\ud800', 'a\udc00', '\udc00\ud800', '😀\ud83d', '\ud83da'])(
    'returns undefined for a lone surrogate (case %#)',
    (text) => {
      expect(countUtf8Bytes(text)).toBeUndefined();
    },
  );
});

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let index = 0; index < Math.min(a.length, b.length); index += 1) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

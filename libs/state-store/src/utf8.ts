/**
 * Compares two keys by their UTF-8 bytes, which is the order of code points. JavaScript's `<`
 * compares UTF-16 code units and differs where a surrogate pair meets U+E000..U+FFFF.
 * @returns Negative when `a` comes first, 0 when equal, positive when `b` comes first.
 * @see RFC 3629, section 1: "byte-value lexicographic sorting order of UTF-8 strings is the same as
 *   if ordered by character numbers"
 */
export function compareKeys(a: string, b: string): number {
  if (a === b) return 0;
  const shorter = Math.min(a.length, b.length);
  for (let index = 0; index < shorter; index += 1) {
    const left = a.charCodeAt(index);
    const right = b.charCodeAt(index);
    if (left !== right) return rankUnit(left) - rankUnit(right);
  }
  return a.length - b.length;
}

/** Surrogates encode code points above U+FFFF, so they sort after every other unit. */
function rankUnit(unit: number): number {
  return unit >= 0xd800 && unit <= 0xdfff ? unit + 0x1_0000 : unit;
}

/**
 * Returns the length of `text` in UTF-8, in bytes; undefined for text with a lone surrogate, which
 * has no UTF-8 form.
 */
export function countUtf8Bytes(text: string): number | undefined {
  let bytes = text.length;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) continue;
    if (unit < 0x800) bytes += 1;
    else if (unit < 0xd800 || unit > 0xdfff) bytes += 2;
    else {
      const next = text.charCodeAt(index + 1); // NaN past the end
      if (unit > 0xdbff || !(next >= 0xdc00 && next <= 0xdfff)) return undefined;
      bytes += 2; // two units are four bytes
      index += 1;
    }
  }
  return bytes;
}

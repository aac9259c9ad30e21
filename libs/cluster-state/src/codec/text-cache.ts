/** Longest text that is kept, bytes. Longer texts are rarely equal. */
const MAX_KEPT_BYTES = 40;
/** Longest text that is decoded here, bytes. */
const MAX_BYTES = 256;
/** Number of kept texts; a power of 2, more than there are nodes in a large cluster. */
const SLOTS = 16_384;

/**
 * Decodes short ASCII text and shares equal strings: the ids of nodes and workloads are in thousands
 * of records. Keeps the last text of each hash.
 */
export class TextCache {
  private readonly slots: string[] = new Array<string>(SLOTS).fill('');

  /**
   * @param isShared - False for a text that no other message has: it does not replace others.
   * @returns Undefined when the text is long or not ASCII.
   */
  get(bytes: Uint8Array, start: number, size: number, isShared: boolean): string | undefined {
    if (size > MAX_BYTES) return undefined;
    let hash = size;
    for (let index = start; index < start + size; index += 1) {
      const byte = bytes[index] ?? 0x80;
      if (byte > 0x7f) return undefined;
      hash = (Math.imul(hash, 31) + byte) | 0;
    }
    if (size > MAX_KEPT_BYTES || !isShared) return decodeAscii(bytes, start, size);
    const slot = (hash ^ (hash >>> 15)) & (SLOTS - 1);
    const kept = this.slots[slot] ?? '';
    if (isSame(kept, bytes, start, size)) return kept;
    const text = decodeAscii(bytes, start, size);
    this.slots[slot] = text;
    return text;
  }
}

function isSame(text: string, bytes: Uint8Array, start: number, size: number): boolean {
  if (text.length !== size) return false;
  for (let index = 0; index < size; index += 1)
    if (text.charCodeAt(index) !== bytes[start + index]) return false;
  return true;
}

const { latin1Slice } = Buffer.prototype as unknown as {
  latin1Slice: (this: Uint8Array, start: number, end: number) => string;
};

function decodeAscii(bytes: Uint8Array, start: number, size: number): string {
  return latin1Slice.call(bytes, start, start + size);
}

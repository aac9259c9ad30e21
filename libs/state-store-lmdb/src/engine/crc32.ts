import { crc32 as nativeCrc32 } from 'node:zlib';

/** Longer parts go to the native function, one call of which costs as much as 400 bytes here. */
const MAX_BYTES = 512;

/** The polynomial of Ethernet and zlib, bits reversed. */
const POLYNOMIAL = 0xedb8_8320;

/** CRC of a byte followed by 0 to 3 zero bytes, for four bytes at a time ("slicing by 4"). */
const [TABLE_0, TABLE_1, TABLE_2, TABLE_3] = createTables();

/**
 * Returns the CRC-32 of a part of a buffer, an unsigned number of 32 bits: the result of `crc32` of
 * `node:zlib`, in a fraction of its time for parts of up to {@link MAX_BYTES} bytes.
 * @param start - First byte of the part; `end` is the first byte after the part.
 * @param initial - CRC of what precedes the part, to continue it. Default: nothing precedes.
 */
export function crc32(bytes: Buffer, start: number, end: number, initial = 0): number {
  if (end - start > MAX_BYTES) return nativeCrc32(bytes.subarray(start, end), initial);
  let crc = ~initial;
  let at = start;
  for (; at + 4 <= end; at += 4) {
    crc ^=
      (bytes[at] ?? 0) |
      ((bytes[at + 1] ?? 0) << 8) |
      ((bytes[at + 2] ?? 0) << 16) |
      ((bytes[at + 3] ?? 0) << 24);
    crc =
      (TABLE_3[crc & 0xff] ?? 0) ^
      (TABLE_2[(crc >>> 8) & 0xff] ?? 0) ^
      (TABLE_1[(crc >>> 16) & 0xff] ?? 0) ^
      (TABLE_0[crc >>> 24] ?? 0);
  }
  for (; at < end; at += 1) crc = (crc >>> 8) ^ (TABLE_0[(crc ^ (bytes[at] ?? 0)) & 0xff] ?? 0);
  return ~crc >>> 0;
}

function createTables(): readonly [Int32Array, Int32Array, Int32Array, Int32Array] {
  const tables = [0, 1, 2, 3].map(() => new Int32Array(256));
  const [first = new Int32Array(256)] = tables;
  for (let byte = 0; byte < 256; byte += 1) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
    first[byte] = crc;
  }
  for (let index = 1; index < tables.length; index += 1) {
    const [before, table] = [tables[index - 1], tables[index]];
    for (let byte = 0; byte < 256; byte += 1) {
      const crc = before?.[byte] ?? 0;
      if (table !== undefined) table[byte] = (crc >>> 8) ^ (first[crc & 0xff] ?? 0);
    }
  }
  return tables as unknown as readonly [Int32Array, Int32Array, Int32Array, Int32Array];
}

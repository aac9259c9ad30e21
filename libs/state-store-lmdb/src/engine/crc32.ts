import { crc32 as nativeCrc32 } from 'node:zlib';

/** Longer parts go to the native function, which is as fast from about 300 bytes on. */
const MAX_BYTES = 256;

/** The polynomial of Ethernet and zlib, bits reversed. */
const POLYNOMIAL = 0xedb8_8320;

/** CRC of a byte followed by 0 to 7 zero bytes, for eight bytes at a time ("slicing by 8"). */
const [TABLE_0, TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6, TABLE_7] = createTables();

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
  for (; at + 8 <= end; at += 8) {
    crc ^=
      (bytes[at] ?? 0) |
      ((bytes[at + 1] ?? 0) << 8) |
      ((bytes[at + 2] ?? 0) << 16) |
      ((bytes[at + 3] ?? 0) << 24);
    crc =
      (TABLE_7[crc & 0xff] ?? 0) ^
      (TABLE_6[(crc >>> 8) & 0xff] ?? 0) ^
      (TABLE_5[(crc >>> 16) & 0xff] ?? 0) ^
      (TABLE_4[crc >>> 24] ?? 0) ^
      (TABLE_3[bytes[at + 4] ?? 0] ?? 0) ^
      (TABLE_2[bytes[at + 5] ?? 0] ?? 0) ^
      (TABLE_1[bytes[at + 6] ?? 0] ?? 0) ^
      (TABLE_0[bytes[at + 7] ?? 0] ?? 0);
  }
  for (; at < end; at += 1) crc = (crc >>> 8) ^ (TABLE_0[(crc ^ (bytes[at] ?? 0)) & 0xff] ?? 0);
  return ~crc >>> 0;
}

type FourTables = readonly [Int32Array, Int32Array, Int32Array, Int32Array];
/** At each index, the table for a byte followed by `index` zero bytes. */
type Tables = readonly [...FourTables, ...FourTables];

function createTables(): Tables {
  const tables = Array.from({ length: 8 }, () => new Int32Array(256));
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
  return tables as unknown as Tables;
}

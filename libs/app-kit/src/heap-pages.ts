import { existsSync, readFileSync } from 'node:fs';

/**
 * End of the addresses of a process on x86-64, bytes. V8 asks for pages of its heap at random
 * addresses below 2^46.
 */
const END_OF_ADDRESSES = 2 ** 47;
/** Addresses that stay free for all that the process maps later, bytes. */
const ROOM_BYTES = 2 ** 42;
/**
 * Greatest and smallest size of a reservation, bytes. Gaps below the smallest stay free: 0.02 % of
 * all addresses.
 */
const LARGEST_BYTES = 2 ** 44;
const SMALLEST_BYTES = 2 ** 30;

/**
 * A buffer that may grow, for which V8 reserves the addresses of its greatest length. Part of
 * ES2024; Node.js 20 has no `transferToFixedLength`.
 */
interface GrowableBuffer extends ArrayBuffer {
  transferToFixedLength(byteLength: number): ArrayBuffer;
}
type GrowableBufferClass = new (
  byteLength: number,
  options: { readonly maxByteLength: number },
) => GrowableBuffer;

/** Mappings of this process: one in a line, in the order of addresses. */
const MAPS = '/proc/self/maps';

/** Kept, because V8 releases the addresses of buffers that nothing refers to. */
const reservations: GrowableBuffer[] = [];

/**
 * Makes the kernel place new pages of the heap side by side, by reserving nearly all other
 * addresses. V8 asks for each page (256 KiB) at a random address, so that each page has page tables
 * of its own, which the processor has to read wherever an object is. At a reserved address, the
 * kernel chooses another one, next to the previous page. The call takes about 10 ms, and neither
 * memory nor disk; the virtual size of the process becomes 124 TiB. Call this function as early as
 * possible: existing pages stay where they are.
 * @returns False, without a change, on systems other than Linux on x86-64, without `/proc`, with
 *   Node.js 20, and when the address space is limited to less than 4 TiB (`ulimit -v`). With a
 *   limit from 4 to 124 TiB, returns true and reserves addresses up to the limit only, so that
 *   pages may stay apart.
 */
export function keepHeapPagesTogether(): boolean {
  const isSupported =
    process.platform === 'linux' &&
    process.arch === 'x64' &&
    'transferToFixedLength' in ArrayBuffer.prototype &&
    existsSync(MAPS);
  const room = isSupported ? reserve(ROOM_BYTES) : undefined;
  if (room === undefined) return false;
  for (let bytes = LARGEST_BYTES; bytes >= SMALLEST_BYTES; bytes /= 2) {
    const fits = countFits(readFileSync(MAPS, 'latin1'), bytes);
    reservations.push(...reserveMany(fits, bytes));
  }
  room.transferToFixedLength(0); // releases its addresses at once
  return true;
}

/**
 * Reserves addresses that the kernel chooses.
 * @returns Undefined when no gap between the mappings of the process is large enough, or when the
 *   limit of the address space (`ulimit -v`) is reached.
 */
function reserve(bytes: number): GrowableBuffer | undefined {
  try {
    return new (ArrayBuffer as unknown as GrowableBufferClass)(0, { maxByteLength: bytes });
  } catch {
    return undefined;
  }
}

/**
 * Stops at the first failure: another thread may have mapped a page within a gap since the gaps
 * were counted.
 */
function reserveMany(count: number, bytes: number): readonly GrowableBuffer[] {
  const reserved: GrowableBuffer[] = [];
  while (reserved.length < count) {
    const next = reserve(bytes);
    if (next === undefined) break;
    reserved.push(next);
  }
  return reserved;
}

/**
 * Returns how many reservations of a size fit between the mappings of a process. Leaves the
 * smallest size out of the gap below the stack of the main thread, which grows down: that space
 * stays free unless another thread maps memory in another gap at the same time.
 * @param maps - Content of `/proc/PID/maps`.
 */
export function countFits(maps: string, bytes: number): number {
  let fits = 0;
  let gapStart = 0;
  for (const [, start, end, stack] of maps.matchAll(/^([\da-f]+)-([\da-f]+) .*?(\[stack\])?$/gm)) {
    const kept = stack === undefined ? 0 : SMALLEST_BYTES;
    const gapEnd = Math.min(Number.parseInt(start ?? '', 16) - kept, END_OF_ADDRESSES);
    fits += Math.max(0, Math.floor((gapEnd - gapStart) / bytes));
    gapStart = Number.parseInt(end ?? '', 16);
  }
  return fits;
}

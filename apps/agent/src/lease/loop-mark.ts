/** Creates the memory in which the main loop marks its turns, for both threads. */
export function createLoopMark(): SharedArrayBuffer {
  const mark = new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT);
  markTurn(mark);
  return mark;
}

/** Marks a turn of the main loop. The clock is the same in all threads of a process. */
export function markTurn(mark: SharedArrayBuffer): void {
  Atomics.store(new BigInt64Array(mark), 0, process.hrtime.bigint());
}

/** Returns the milliseconds since the last marked turn. */
export function readLoopAgeMs(mark: SharedArrayBuffer): number {
  const age = process.hrtime.bigint() - Atomics.load(new BigInt64Array(mark), 0);
  return Math.max(0, Number(age) / 1e6);
}

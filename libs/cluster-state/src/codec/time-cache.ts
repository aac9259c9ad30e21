/** A message of the type `google.protobuf.Timestamp`. */
interface Time {
  readonly seconds: bigint;
  readonly nanos: number;
}

/** Number of kept times; a power of 2. */
const SLOTS = 1_024;

/** Shares equal times: replicas of one transaction have one time of creation. */
export class TimeCache {
  private readonly times: (Time | undefined)[] = new Array<undefined>(SLOTS).fill(undefined);

  /** @returns An equal message, the given one when none is kept. */
  share<T extends Time>(time: T): T {
    const { seconds, nanos } = time;
    const hash = Math.imul(nanos, 0x9e37_79b1) + Number(BigInt.asUintN(31, seconds));
    const slot = (hash ^ (hash >>> 15)) & (SLOTS - 1);
    const kept = this.times[slot];
    if (kept !== undefined && kept.seconds === seconds && kept.nanos === nanos) return kept as T;
    this.times[slot] = time;
    return time;
  }
}

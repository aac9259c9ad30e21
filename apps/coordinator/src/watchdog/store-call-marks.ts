/** Calls of the store that the watchdog watches. */
export type WatchedCall = 'write' | 'lease';

/** All watched calls, in the order of their places in the shared memory. */
export const WATCHED_CALLS: readonly WatchedCall[] = ['write', 'lease'];

/** Numbers of each watched call in the shared memory. */
const FIELDS = ['pending', 'progress', 'stalledMs'] as const;
type Field = (typeof FIELDS)[number];

/** Place of the number of turns of the main loop in the shared memory, behind those of the calls. */
const TURNS = WATCHED_CALLS.length * FIELDS.length;

/** The state of one sort of calls, as the watchdog reads it. */
export interface CallReading {
  /** Number of calls that have not returned. */
  readonly pending: number;
  /** Changes whenever a call returns, and when a call begins while none is pending. */
  readonly progress: number;
}

/**
 * The memory in which the main thread marks calls of the store, and in which the watchdog thread
 * writes for how long none has returned; also counts the turns of the main loop. Both threads create
 * an instance over the same memory.
 */
export class StoreCallMarks {
  private readonly numbers: Int32Array;

  /** @param memory - Memory of another instance. Default: new memory. */
  constructor(readonly memory = new SharedArrayBuffer((TURNS + 1) * Int32Array.BYTES_PER_ELEMENT)) {
    this.numbers = new Int32Array(memory);
  }

  /** A call begins. */
  begin(call: WatchedCall): void {
    if (Atomics.add(this.numbers, indexOf(call, 'pending'), 1) === 0) this.countProgress(call);
  }

  /** A call has returned, with or without success. */
  end(call: WatchedCall): void {
    Atomics.sub(this.numbers, indexOf(call, 'pending'), 1);
    this.countProgress(call);
  }

  read(call: WatchedCall): CallReading {
    return {
      pending: Atomics.load(this.numbers, indexOf(call, 'pending')),
      progress: Atomics.load(this.numbers, indexOf(call, 'progress')),
    };
  }

  /** Time for which pending calls have not returned, milliseconds; 0 while they do. */
  getStalledMs(call: WatchedCall): number {
    return Atomics.load(this.numbers, indexOf(call, 'stalledMs'));
  }

  /** Called by the watchdog thread only. */
  setStalledMs(call: WatchedCall, stalledMs: number): void {
    Atomics.store(this.numbers, indexOf(call, 'stalledMs'), Math.round(stalledMs));
  }

  /** The main loop has turned. */
  countTurn(): void {
    Atomics.add(this.numbers, TURNS, 1);
  }

  /** Number of turns of the main loop so far; wraps around. */
  readTurns(): number {
    return Atomics.load(this.numbers, TURNS);
  }

  private countProgress(call: WatchedCall): void {
    Atomics.add(this.numbers, indexOf(call, 'progress'), 1);
  }
}

function indexOf(call: WatchedCall, field: Field): number {
  return WATCHED_CALLS.indexOf(call) * FIELDS.length + FIELDS.indexOf(field);
}

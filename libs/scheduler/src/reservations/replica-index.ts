import type { ReplicaId } from '@cloudless/base';
import { NO_ENTRY, type Entry } from './entry-columns.js';

const FIRST_CAPACITY = 64;
/** Numbers of a place: entry plus 1 (0 for an empty place), and hash. */
const PLACE = 2;

/**
 * The entries of reservations by replica id: a hash table with linear probing in one typed array. A
 * `Map` with a million texts takes twice the memory, keeps the garbage collector busy, and looks at
 * several texts for each id that is not there.
 *
 * Ids with equal hashes are found more slowly, never wrongly. Users cannot provoke such ids: the
 * control plane makes them.
 */
export class ReplicaIndex {
  /** Number of ids. */
  size = 0;
  private places = new Int32Array(FIRST_CAPACITY * PLACE);
  private mask = FIRST_CAPACITY - 1;

  /** @param ids - The replica id of each entry; shared with the columns of the entries. */
  constructor(private readonly ids: readonly (ReplicaId | undefined)[]) {}

  /**
   * Returns the entry of an id; {@link NO_ENTRY} without one.
   * @param hash - {@link hashReplicaId} of the id.
   */
  find(id: ReplicaId, hash: number): Entry {
    const at = this.findPlace(id, hash);
    return (this.places[at * PLACE] ?? 0) - 1;
  }

  /** Adds the entry of an id that has none. */
  add(hash: number, entry: Entry): void {
    // At most five of eight places are in use, so that an id is near the place of its hash.
    if ((this.size + 1) * 8 > (this.mask + 1) * 5) this.grow();
    this.size += 1;
    this.put(hash, entry);
  }

  /** Removes an id. Has no effect when the id has no entry. */
  remove(id: ReplicaId, hash: number): void {
    const { places, mask } = this;
    let hole = this.findPlace(id, hash);
    if (places[hole * PLACE] === 0) return;
    this.size -= 1;
    // Whatever was put after the hole because the hole was taken moves into it.
    for (let at = (hole + 1) & mask; places[at * PLACE] !== 0; at = (at + 1) & mask) {
      const wanted = (places[at * PLACE + 1] ?? 0) & mask;
      if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
      places[hole * PLACE] = places[at * PLACE] ?? 0;
      places[hole * PLACE + 1] = places[at * PLACE + 1] ?? 0;
      hole = at;
    }
    places[hole * PLACE] = 0;
  }

  /** Returns an independent copy over a copy of the ids. */
  clone(ids: readonly (ReplicaId | undefined)[]): ReplicaIndex {
    const copy = new ReplicaIndex(ids);
    copy.places = this.places.slice();
    copy.mask = this.mask;
    copy.size = this.size;
    return copy;
  }

  /** Bytes of the table. */
  get bytes(): number {
    return this.places.byteLength;
  }

  /** Returns the place of an id, or the empty place where the id is missed. */
  private findPlace(id: ReplicaId, hash: number): number {
    const { places, mask, ids } = this;
    let at = hash & mask;
    for (;;) {
      const entry = (places[at * PLACE] ?? 0) - 1;
      if (entry === NO_ENTRY) return at;
      if (places[at * PLACE + 1] === hash && ids[entry] === id) return at;
      at = (at + 1) & mask;
    }
  }

  private put(hash: number, entry: Entry): void {
    const { places, mask } = this;
    let at = hash & mask;
    while (places[at * PLACE] !== 0) at = (at + 1) & mask;
    places[at * PLACE] = entry + 1;
    places[at * PLACE + 1] = hash;
  }

  private grow(): void {
    const before = this.places;
    this.places = new Int32Array(before.length * 2);
    this.mask = before.length - 1;
    for (let at = 0; at < before.length; at += PLACE) {
      const entry = (before[at] ?? 0) - 1;
      if (entry !== NO_ENTRY) this.put(before[at + 1] ?? 0, entry);
    }
  }
}

/** Returns a whole number of 32 bits, equal for equal ids and well distributed for similar ones. */
export function hashReplicaId(id: ReplicaId): number {
  let hash = 0;
  for (let at = 0; at < id.length; at += 1) hash = (Math.imul(hash, 31) + id.charCodeAt(at)) | 0;
  // Similar ids differ in the last characters only: spread them over all bits.
  hash = Math.imul(hash ^ (hash >>> 16), 0x85eb_ca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2_ae35);
  return hash ^ (hash >>> 16);
}

import { MessageWriter } from '@cloudless/api';
import type { NetworkChanges } from './network-model.js';

/** Numbers of the fields of NetworkUpdate. */
const UPDATE = {
  ...{ revision: 1, reset: 2, complete: 3, settings: 4, services: 5, removedServices: 6 },
  ...{ endpoints: 7, removedEndpoints: 8, nodes: 9, removedNodes: 10, feedId: 11 },
  ...{ routes: 12, removedRoutes: 13 },
} as const;

/**
 * Bytes after which an update ends and another one follows: many endpoints fit, and one piece is
 * encoded and sent in a short time.
 */
export const PIECE_BYTES = 256 * 1024;

const writer = new MessageWriter();

/** Encodes an update without entries, which begins a resumed stream. */
export function encodeStart(feedId: string, revision: bigint): Uint8Array {
  writer.int64(UPDATE.revision, revision);
  writer.bool(UPDATE.complete, true);
  writer.string(UPDATE.feedId, feedId);
  return writer.finish();
}

/**
 * Returns an encoded update with `complete` set to false, by appending the field: protobuf takes
 * the last value of a field that occurs twice.
 */
export function toIncomplete(update: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(update.byteLength + INCOMPLETE.byteLength);
  bytes.set(update);
  bytes.set(INCOMPLETE, update.byteLength);
  return bytes;
}

/** The field `complete` with the value false: its number and the type of a number, and 0. */
const INCOMPLETE = Uint8Array.of(UPDATE.complete << 3, 0);

/** Encodes changes as updates of about {@link PIECE_BYTES}; the last one is complete. */
export function encodeChanges(changes: NetworkChanges, revision: bigint): Uint8Array[] {
  const pieces = new Pieces(revision);
  pieces.settings(changes.settings);
  for (const [key, bytes] of changes.services)
    pieces.entry(bytes === undefined ? UPDATE.removedServices : UPDATE.services, bytes ?? key);
  for (const [id, bytes] of changes.nodes)
    pieces.entry(bytes === undefined ? UPDATE.removedNodes : UPDATE.nodes, bytes ?? id);
  for (const [id, bytes] of changes.endpoints)
    pieces.entry(bytes === undefined ? UPDATE.removedEndpoints : UPDATE.endpoints, bytes ?? id);
  for (const [key, bytes] of changes.routes)
    pieces.entry(bytes === undefined ? UPDATE.removedRoutes : UPDATE.routes, bytes ?? key);
  return pieces.finish();
}

/** Everything that a proxy needs to know. */
export interface NetworkEntries {
  readonly settings: Uint8Array | undefined;
  readonly services: Iterable<Uint8Array>;
  readonly endpoints: Iterable<Uint8Array>;
  readonly nodes: Iterable<Uint8Array>;
  readonly routes: Iterable<Uint8Array>;
}

/**
 * Encodes everything as updates of about {@link PIECE_BYTES}: the first one with `reset`, the last
 * one complete. `pause` runs after each of them, so that other work gets its turn. Entries that
 * change meanwhile are encoded in the old or new state: send the changes since the start as well.
 */
export async function encodeEntries(
  entries: NetworkEntries,
  { feedId, revision }: { readonly feedId: string; readonly revision: bigint },
  pause: () => Promise<void>,
): Promise<Uint8Array[]> {
  const pieces = new Pieces(revision, feedId);
  const done: Uint8Array[] = [];
  const lists = [
    [UPDATE.nodes, entries.nodes],
    [UPDATE.services, entries.services],
    [UPDATE.endpoints, entries.endpoints],
    [UPDATE.routes, entries.routes],
  ] as const;
  pieces.settings(entries.settings);
  for (const [field, list] of lists)
    for (const bytes of list) {
      pieces.entry(field, bytes);
      if (pieces.count === 0) continue;
      done.push(...pieces.takeComplete());
      await pause();
    }
  return [...done, ...pieces.finish()];
}

/** Splits one consistent set of entries into updates. */
class Pieces {
  private pieces: Uint8Array[] = [];
  private parts: (readonly [number, Uint8Array | string])[] = [];
  private bytes = 0;
  private isFirst = true;

  /** @param feedId - Given for everything, whose first piece resets the proxy. */
  constructor(
    private readonly revision: bigint,
    private readonly feedId?: string,
  ) {}

  /** Number of pieces that are encoded and were not taken. */
  get count(): number {
    return this.pieces.length;
  }

  settings(bytes: Uint8Array | undefined): void {
    if (bytes !== undefined) this.entry(UPDATE.settings, bytes);
  }

  entry(field: number, content: Uint8Array | string): void {
    if (this.bytes >= PIECE_BYTES) this.encode(false);
    this.parts.push([field, content]);
    this.bytes += content.length;
  }

  takeComplete(): Uint8Array[] {
    const { pieces } = this;
    this.pieces = [];
    return pieces;
  }

  /** Returns the pieces that were not taken, the last one complete. */
  finish(): Uint8Array[] {
    this.encode(true);
    return this.takeComplete();
  }

  private encode(complete: boolean): void {
    writer.int64(UPDATE.revision, this.revision);
    if (this.isFirst && this.feedId !== undefined) {
      writer.bool(UPDATE.reset, true);
      writer.string(UPDATE.feedId, this.feedId);
    }
    writer.bool(UPDATE.complete, complete);
    for (const [field, content] of this.parts)
      if (typeof content === 'string') writer.element(field, content);
      else writer.encoded(field, content);
    this.pieces.push(writer.finish());
    this.parts = [];
    this.bytes = 0;
    this.isFirst = false;
  }
}

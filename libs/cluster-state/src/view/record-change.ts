import type { Revision } from '@cloudless/state-store';
import type { RecordKind, RecordOf } from '../records/records.js';

/** A record with the revision that wrote it, for conditional writes. */
export interface Stored<Value> {
  readonly value: Value;
  readonly revision: Revision;
  /** Bytes of key and value in the store; absent for a record that was not read from the store. */
  readonly bytes?: number;
}

/** Records of one kind by the ids in their keys; the part of a map that views use. */
export interface RecordMap<Value> extends Iterable<[string, Value]> {
  readonly size: number;
  get(id: string): Value | undefined;
  set(id: string, value: Value): unknown;
  delete(id: string): boolean;
  keys(): Iterable<string>;
  values(): Iterable<Value>;
}

/**
 * One changed record, a union over the kinds: a check of `kind` narrows `before` and `after`.
 * `before` is absent when the change created the record, `after` when the change deleted it.
 */
export type RecordChange<Kind extends RecordKind = RecordKind> = {
  readonly [K in Kind]: {
    readonly kind: K;
    readonly id: string;
    readonly before?: RecordOf<K>;
    readonly after?: RecordOf<K>;
  };
}[Kind];

import type { JsonValue } from '@bufbuild/protobuf';
import type { CliSession } from '../../call/cli-session.js';
import { followWatch, type ResumableWatch } from '../../call/resume-watch.js';
import type { Column, Row } from '../../output/table.js';
import type { FieldFilter } from './field-selector.js';
import type { ObjectKind } from './list-objects.js';
import { WatchTable } from './watch-table.js';

/** How a watch of the objects of one kind is opened and shown. */
export interface ObjectWatch<Item, Value> {
  readonly kind: ObjectKind<Value>;
  /** The filter of `--field-selector`; undefined without the option. */
  readonly filter: FieldFilter | undefined;
  readonly columns: readonly (Column | string)[];
  readonly open: ResumableWatch<Item>['open'];
  /** Returns the object of an item; undefined when the current state is complete. */
  readonly getObject: (item: Item) => Value | undefined;
  /** Returns true when an item says that its object is gone. */
  readonly isDeletion: (item: Item) => boolean;
  /** Returns an item as JSON, with `isDeleted` as one that says that its object is gone. */
  readonly toEnvelope: (item: Item, isDeleted: boolean) => JsonValue;
  /** Returns the cells that name an object; they also identify and order the objects. */
  readonly getName: (value: Value) => readonly string[];
  readonly toRow: (value: Value) => Row;
}

/**
 * Prints the objects of a watch, then a row or a line of JSON for each change, until the watch ends.
 * With a filter, an object that no longer matches counts as gone, and an object that never matched
 * is not mentioned.
 */
export async function watchObjects<Item extends { readonly revision: bigint }, Value>(
  session: CliSession,
  watch: ObjectWatch<Item, Value>,
): Promise<void> {
  const { kind, filter } = watch;
  const table = new WatchTable(session, watch.columns);
  const shown = new Set<string>();
  await followWatch(
    session,
    { open: watch.open, onRestart: () => table.restart() },
    async (item) => {
      const value = watch.getObject(item);
      if (value === undefined) return table.flush();
      const name = watch.getName(value);
      const key = name.join('/');
      const isDeleted = watch.isDeletion(item) || filter?.(kind.toJson(value)) === false;
      if (isDeleted && filter !== undefined && !shown.has(key)) return;
      if (isDeleted) shown.delete(key);
      else shown.add(key);
      if (session.isStructured)
        return session.printItem(
          session.printsEnvelopes ? watch.toEnvelope(item, isDeleted) : kind.toJson(value),
        );
      await table.add(key, isDeleted ? [...name, 'Deleted'] : watch.toRow(value));
    },
    () => table.flush(),
  );
}

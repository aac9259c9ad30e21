import { create } from '@bufbuild/protobuf';
import type { DescMessage, JsonValue, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { FieldChangeSchema, diffMessage } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import type { WorkloadName } from '../../names.js';
import type { Style } from '../../output/style.js';
import { formatFieldChange } from '../../views/field-change-view.js';
import { requireFreshManifests } from './check-generation.js';

/** A change of a field, as plans of workloads have. */
type FieldChangeInit = Required<
  Pick<
    Exclude<MessageInitShape<typeof FieldChangeSchema>, { $typeName: string }>,
    'path' | 'before' | 'after'
  >
>;

/** A change of an object that a manifest describes. */
export interface PutChange<Wanted, Current> extends WorkloadName {
  readonly action: 'CREATE' | 'UPDATE' | 'NOTHING';
  readonly wanted: Wanted;
  /** Undefined: the object does not exist. */
  readonly current: Current | undefined;
  /** Fields that change, with paths from the manifest on. */
  readonly fields: readonly FieldChangeInit[];
}

/** A deletion of an object. */
export interface DeleteChange extends WorkloadName {
  readonly action: 'DELETE';
}

/** Changes of one service or route by a manifest. */
export type ObjectChange<Wanted, Current> = PutChange<Wanted, Current> | DeleteChange;

/** A kind of object whose changes `apply` shows and makes one by one: services and routes. */
export interface ChangedKind<Wanted, Current> {
  readonly noun: 'service' | 'route';
  /** The object, for the paths of fields. */
  readonly schema: DescMessage;
  /** Creates or updates the object. `action` is not `NOTHING`. */
  put(session: CliSession, change: PutChange<Wanted, Current>): Promise<Current>;
  delete(session: CliSession, name: WorkloadName, requestId: string): Promise<unknown>;
  /** Prints the status line of a change such as `created`. */
  printStatus(session: CliSession, object: Current, change: string): Promise<void>;
}

/** Formats the name of an object for messages: `service default/web`. */
export function formatName(
  { noun }: { readonly noun: string },
  { namespace, name }: WorkloadName,
): string {
  return `${noun} ${namespace}/${name}`;
}

/** Returns true for a change that deletes the object. */
export function isDeletion(change: { readonly action: string }): change is DeleteChange {
  return change.action === 'DELETE';
}

/** Returns true for a change that creates or updates an object, or finds the object as described. */
export function isPut<Wanted, Current>(
  change: ObjectChange<Wanted, Current>,
): change is PutChange<Wanted, Current> {
  return change.action !== 'DELETE';
}

/** Returns what a call returns; undefined when the object does not exist. */
export async function getIfExists<Item>(call: Promise<Item>): Promise<Item | undefined> {
  try {
    return await call;
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.NotFound) return undefined;
    throw reason;
  }
}

/**
 * Returns the change from an object to another.
 * @param current - The object in the cluster; undefined when there is none.
 * @param before - The fields of `current` that manifests have, with all defaults; empty when there
 *   is none.
 * @param after - The fields that the manifest wants, with all defaults.
 */
export function toPutChange<Desc extends DescMessage, Wanted extends WorkloadName>(
  schema: Desc,
  wanted: Wanted,
  current: MessageShape<Desc> | undefined,
  [before, after]: readonly [MessageInitShape<Desc>, MessageInitShape<Desc>],
): PutChange<Wanted, MessageShape<Desc>> {
  const fields = diffMessage(schema, create(schema, before), create(schema, after)).map(
    (difference) => ({
      path: difference.path,
      before: difference.before === undefined ? '' : JSON.stringify(difference.before),
      after: difference.after === undefined ? '' : JSON.stringify(difference.after),
    }),
  );
  const action = current === undefined ? 'CREATE' : fields.length > 0 ? 'UPDATE' : 'NOTHING';
  const { namespace, name } = wanted;
  return { namespace, name, action, current, fields, wanted };
}

/**
 * Checks that no manifest would overwrite newer changes.
 * @param kind - For messages; `cloudlessctl get KIND NAME` prints the object.
 * @throws {@link CliFailure} with exit code 4, see {@link requireFreshManifests}.
 */
export function requireFreshChanges(
  kind: 'service' | 'route' | 'config',
  changes: readonly {
    readonly action: string;
    readonly wanted: WorkloadName & { readonly generation?: bigint };
    readonly current: { readonly generation: bigint } | undefined;
  }[],
): void {
  requireFreshManifests(
    changes.flatMap(({ action, wanted, current }) =>
      action === 'NOTHING' || current === undefined
        ? []
        : {
            subject: formatName({ noun: kind }, wanted),
            fetchCommand: `cloudlessctl ${kind} get ${wanted.namespace}/${wanted.name} -o yaml`,
            generation: wanted.generation,
            current: current.generation,
          },
    ),
  );
}

/**
 * Returns the labels of an update, which leaves no other labels: an empty value removes a label.
 */
export function toLabelChanges(
  current: Readonly<Record<string, string>>,
  wanted: Readonly<Record<string, string>>,
): Record<string, string> {
  const removed = Object.keys(current).filter((key) => !(key in wanted));
  return { ...wanted, ...Object.fromEntries(removed.map((key) => [key, ''])) };
}

const ACTION_TEXTS: Readonly<Record<ObjectChange<unknown, unknown>['action'], string>> = {
  CREATE: 'create',
  UPDATE: 'update',
  NOTHING: 'unchanged',
  DELETE: 'delete',
};

/** Formats the changes of objects with their fields, as the plans of workloads. */
export function formatObjectChanges<Wanted, Current>(
  kind: ChangedKind<Wanted, Current>,
  changes: readonly ObjectChange<Wanted, Current>[],
  style: Style,
): string {
  return changes
    .flatMap((change) => [
      `${formatName(kind, change)}: ${ACTION_TEXTS[change.action]}`,
      ...(isDeletion(change) ? [] : change.fields).flatMap((field) =>
        formatFieldChange(kind.schema, create(FieldChangeSchema, field), style),
      ),
    ])
    .map((line) => `${line}\n`)
    .join('');
}

/** Returns the changes of objects in the form of `-o json`. */
export function toObjectChangesJson(changes: readonly ObjectChange<unknown, unknown>[]): JsonValue {
  return changes.map((change) => ({
    namespace: change.namespace,
    name: change.name,
    action: change.action,
    ...(isDeletion(change) ? {} : { changes: change.fields.map((field) => ({ ...field })) }),
  }));
}

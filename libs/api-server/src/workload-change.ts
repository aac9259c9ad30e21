import { create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  WorkloadSpec_Mode as Mode,
  WorkloadSpecSchema,
  namespaceOf,
  type Workload,
  type WorkloadSpec,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  WorkloadRecordSchema,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { CloudlessError, randomHex } from '@cloudless/base';
import {
  nameKeyId,
  putSpecChange,
  versionKeyId,
  versionRecordOf,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import type { ApiServerDeps } from './ports.js';
import type { Mutation } from './requests.js';

/** The fields by which a request names a workload. */
export interface WorkloadNaming {
  readonly namespace: string;
  readonly name: string;
}

/** A validated change of one workload that is not yet part of a transaction. */
export interface WorkloadChange extends WorkloadNaming {
  /** Absent: the workload is created. */
  readonly current: Stored<WorkloadRecord> | undefined;
  /** The new spec. */
  readonly spec: WorkloadSpec;
  /** Reason of the event about the change. */
  readonly reason: string;
  /**
   * Origin of the new version when it is not a change of the spec by a user: `undo to version 1`.
   */
  readonly cause?: string;
}

/**
 * Creates the transaction of a change as its own call. Without a difference there is nothing to
 * write.
 */
export function changeWorkload(
  deps: Pick<ApiServerDeps, 'state' | 'clock' | 'random' | 'pictures'>,
  view: ClusterView,
  change: WorkloadChange,
  requestId: string,
): Mutation<Workload> {
  const { state, pictures } = deps;
  if (change.current !== undefined && !changesAnything(change))
    return { result: pictures.read(change.current.value, true) };
  const transaction = state.transaction();
  const record = putWorkloadChange(deps, view, transaction, change, requestId);
  return { result: pictures.read(record, true), transaction };
}

/** True when the new spec differs, or the workload is new. */
export function changesAnything({ current, spec }: WorkloadChange): boolean {
  return current === undefined || !equals(WorkloadSpecSchema, spec, specOf(current.value));
}

/** Adds a change and its event to a transaction. @returns The new record. */
export function putWorkloadChange(
  deps: Pick<ApiServerDeps, 'clock' | 'random'>,
  view: ClusterView,
  transaction: Transaction,
  change: WorkloadChange,
  requestId: string,
): WorkloadRecord {
  const { current, spec, reason, cause } = change;
  if (current === undefined) return putNewWorkload(deps, transaction, change, requestId);
  const told = cause === undefined ? {} : { cause };
  const record = putSpecChange(transaction, view, current, {
    spec,
    requestId,
    nowMs: deps.clock.wallTime(),
    ...told,
  });
  const { namespace, name, version, generation } = record;
  const wants =
    spec.mode === Mode.GLOBAL
      ? 'has new settings'
      : `now has ${spec.replicas ?? 1} desired replicas`;
  const what = version === current.value.version ? wants : `is now at version ${version}`;
  const why = cause === undefined ? '' : `, ${cause}`;
  const message = `workload ${namespace}/${name} ${what} (generation ${generation}${why})`;
  transaction.event({ ...aboutWorkload(record, requestId), reason, message });
  return record;
}

function putNewWorkload(
  { clock, random }: Pick<ApiServerDeps, 'clock' | 'random'>,
  transaction: Transaction,
  { namespace, name, spec, reason }: WorkloadChange,
  requestId: string,
): WorkloadRecord {
  const nowMs = clock.wallTime();
  const uid = randomHex(random, UID_BYTES);
  const createdAt = timestampFromMs(nowMs);
  const record = create(WorkloadRecordSchema, {
    uid,
    namespace,
    name,
    spec,
    generation: 1n,
    version: 1,
    createdAt,
    requestId,
  });
  transaction
    .require('name', nameKeyId(namespace, name), 'absent')
    .put('name', nameKeyId(namespace, name), create(WorkloadRecordSchema, { uid }))
    .put('workload', uid, record)
    .put('version', versionKeyId(uid, 1), versionRecordOf(spec, { version: 1, nowMs, earlier: [] }))
    .put('control', uid, create(ControlRecordSchema, { uid, nextSequence: 1n }))
    .event({
      ...aboutWorkload(record, requestId),
      reason,
      message: `workload ${namespace}/${name} was created`,
    });
  return record;
}

const UID_BYTES = 8;

/** Fields that all events about a change of a workload share. */
export function aboutWorkload({ namespace, name }: WorkloadNaming, requestId: string) {
  return {
    severity: Severity.INFO,
    category: Category.WORKLOAD,
    namespace,
    workload: name,
    requestId,
  };
}

export function specOf({ spec }: WorkloadRecord): WorkloadSpec {
  return spec ?? create(WorkloadSpecSchema);
}

/** Returns the workload that a request names. @throws kind `notFound`. */
export function found(view: ClusterView, request: WorkloadNaming): Stored<WorkloadRecord> {
  const namespace = namespaceOf(request);
  const workload = view.workloadByName(namespace, request.name);
  if (workload !== undefined) return workload;
  throw new CloudlessError('notFound', `workload "${namespace}/${request.name}" not found`);
}

/**
 * Returns the workload that a request names if it may be changed.
 * @throws kind `notFound`; `precondition` while the workload is being deleted; `conflict` when its
 *   generation is not the expected one.
 */
export function changeable(
  view: ClusterView,
  request: WorkloadNaming & { readonly expectedGeneration?: bigint | undefined },
): Stored<WorkloadRecord> {
  const current = found(view, request);
  if (current.value.deletionRequestedAt !== undefined) throw deletingError(current.value);
  checkGeneration(current.value, request.expectedGeneration);
  return current;
}

/**
 * @throws kind `conflict` when the workload does not have the generation that the client expects.
 */
export function checkGeneration(record: WorkloadRecord, expected: bigint | undefined): void {
  if (expected === undefined || expected === record.generation) return;
  throw new CloudlessError(
    'conflict',
    `workload "${record.namespace}/${record.name}" is at generation ${record.generation}, not ${expected}; read the workload again and repeat the change`,
  );
}

export function deletingError({ namespace, name }: WorkloadNaming): CloudlessError {
  return new CloudlessError('precondition', `workload "${namespace}/${name}" is being deleted`);
}

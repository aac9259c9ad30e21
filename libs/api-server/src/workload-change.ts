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

/** How a request names a workload. */
export interface WorkloadNaming {
  readonly namespace: string;
  readonly name: string;
}

/** A change of one workload that was checked and may be made; in no transaction yet. */
export interface WorkloadChange extends WorkloadNaming {
  /** Absent: it would be created. */
  readonly current: Stored<WorkloadRecord> | undefined;
  /** As it would be. */
  readonly spec: WorkloadSpec;
  /** Of the event that tells of it. */
  readonly reason: string;
  /** For the history, when it is no change by hand. */
  readonly cause?: string;
}

/** The change by itself, as a call of its own makes it; nothing is written when nothing differs. */
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

/** Whether there is anything to write. */
export function changesAnything({ current, spec }: WorkloadChange): boolean {
  return current === undefined || !equals(WorkloadSpecSchema, spec, specOf(current.value));
}

/** Writes a change with its event. @returns The record as it is then. */
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
      ? 'has other settings now'
      : `wants ${spec.replicas ?? 1} replicas now`;
  const what = version === current.value.version ? wants : `is version ${version} now`;
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

/** What every event about a change of a workload says. */
export function aboutWorkload({ namespace, name }: WorkloadNaming, requestId: string) {
  return {
    severity: Severity.INFO,
    category: Category.WORKLOAD,
    namespace,
    workload: name,
    requestId,
  };
}

/** The spec of a record. */
export function specOf({ spec }: WorkloadRecord): WorkloadSpec {
  return spec ?? create(WorkloadSpecSchema);
}

/** The workload a request names. @throws kind `notFound`. */
export function found(view: ClusterView, request: WorkloadNaming): Stored<WorkloadRecord> {
  const namespace = namespaceOf(request);
  const workload = view.workloadByName(namespace, request.name);
  if (workload !== undefined) return workload;
  throw new CloudlessError('notFound', `workload "${namespace}/${request.name}" not found`);
}

/**
 * The workload a request names, if it may be changed. @throws kinds `notFound`, `precondition`
 * while it is deleted, `conflict`.
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

/** @throws kind `conflict` when the workload is at another generation than the caller has seen. */
export function checkGeneration(record: WorkloadRecord, expected: bigint | undefined): void {
  if (expected === undefined || expected === record.generation) return;
  throw new CloudlessError(
    'conflict',
    `workload "${record.namespace}/${record.name}" is at generation ${record.generation}, not ${expected}; read it again and decide anew`,
  );
}

/** Why a workload that is being deleted cannot be changed. */
export function deletingError({ namespace, name }: WorkloadNaming): CloudlessError {
  return new CloudlessError('precondition', `workload "${namespace}/${name}" is being deleted`);
}

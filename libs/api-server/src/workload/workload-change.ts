import { create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  WorkloadSpec_Mode as Mode,
  WorkloadSpecSchema,
  type Workload,
  type WorkloadSpec,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  WorkloadRecordSchema,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { definedFields, randomHex } from '@cloudless/base';
import {
  toNameKeyId,
  putSpecUpdate,
  toVersionKeyId,
  createVersionRecord,
  resolvePins,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';
import type { MutationResult } from '../mutation/idempotent-mutation.js';
import { getSpec, type WorkloadName } from '../lookup.js';
import type { PolicyAdmission } from '../policy/policy-admission.js';
import type { JudgedCall } from '../policy/policy-override.js';
import { putFileRefs } from '../files/file-refs.js';
import { putExposedService } from '../network/exposed-service.js';
import { requireHostPorts } from '../network/host-port-conflicts.js';

/** A validated change of one workload that is not yet part of a transaction. */
export interface WorkloadChange extends WorkloadName {
  /** The workload as read; undefined when the change creates the workload. */
  readonly current: Stored<WorkloadRecord> | undefined;
  /** The new spec. */
  readonly spec: WorkloadSpec;
  /** Reason of the event about the change. */
  readonly reason: string;
  /**
   * Origin of the new version for the version history, when the caller sent no spec: `restart`,
   * `undo to version 1`. Absent when the caller sent the spec; ignored for a new workload.
   */
  readonly cause?: string;
  /** End of the message of the event about the change of an existing workload. Default: empty. */
  readonly note?: string;
}

/** Ports of {@link putWorkloadChange}. */
export type WorkloadChangeDeps = Pick<ApiServerDeps, 'clock' | 'random'> & AdmissionDeps;

/** Judges changes of workloads. */
export interface AdmissionDeps {
  readonly admission: PolicyAdmission;
}

/**
 * Creates the response and the transaction of a call that makes a single change. Without a
 * difference, the result has no transaction.
 * @param present - Builds the response, see {@link createResponsePresenter}.
 */
export function changeWorkload(
  deps: Pick<ApiServerDeps, 'state'> & WorkloadChangeDeps,
  view: ClusterView,
  change: WorkloadChange,
  call: JudgedCall,
  present: (record: WorkloadRecord) => Workload,
): MutationResult<Workload> {
  if (change.current !== undefined && !hasChanges(change))
    return { response: present(change.current.value) };
  const transaction = deps.state.transaction();
  const record = putWorkloadChange(deps, view, transaction, change, call);
  return { response: present(record), transaction };
}

/** Returns true when the change creates the workload or changes its spec. */
export function hasChanges({ current, spec }: WorkloadChange): boolean {
  return current === undefined || !equals(WorkloadSpecSchema, spec, getSpec(current.value));
}

/**
 * Adds a change and its event to a transaction. Every change that a user requests is written here, so
 * that policies judge each of them.
 * @returns The new workload record.
 * @throws reason POLICY_DENIED when policies deny the workload and the call does not override them;
 *   kind `precondition` for a new host port that is the node port of a service.
 */
export function putWorkloadChange(
  deps: WorkloadChangeDeps,
  view: ClusterView,
  transaction: Transaction,
  change: WorkloadChange,
  call: JudgedCall,
): WorkloadRecord {
  const { current, spec, reason, cause, note = '' } = change;
  const { requestId } = call;
  deps.admission.admit(view, transaction, change, call);
  putFileRefs(view, transaction, change, deps.clock.wallTime());
  requireHostPorts(view, transaction, change);
  if (current === undefined) {
    const created = putNewWorkload(deps, view, transaction, change, requestId);
    putExposedService(deps, view, transaction, created);
    return created;
  }
  const record = putSpecUpdate(transaction, view, current, {
    spec,
    requestId,
    nowMs: deps.clock.wallTime(),
    ...definedFields({ cause }),
  });
  putExposedService(deps, view, transaction, record);
  const { namespace, name, version, generation } = record;
  const settings =
    spec.mode === Mode.GLOBAL
      ? 'has new settings'
      : `now has ${spec.replicas ?? 1} desired replicas`;
  const effect = version === current.value.version ? settings : `is now at version ${version}`;
  const origin = cause === undefined ? '' : `, ${cause}`;
  const message = `workload ${namespace}/${name} ${effect} (generation ${generation}${origin})${note === '' ? '' : `; ${note}`}`;
  transaction.event({ ...createEventFields(record, requestId), reason, message });
  return record;
}

function putNewWorkload(
  { clock, random }: Pick<ApiServerDeps, 'clock' | 'random'>,
  view: ClusterView,
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
    .require('name', toNameKeyId(namespace, name), 'absent')
    // The index by name: a record of the same type with nothing but the uid.
    .put('name', toNameKeyId(namespace, name), create(WorkloadRecordSchema, { uid }))
    .put('workload', uid, record)
    .put(
      'version',
      toVersionKeyId(uid, 1),
      createVersionRecord(spec, {
        ...{ version: 1, nowMs, earlier: [] },
        pins: resolvePins(view, namespace, spec),
      }),
    )
    .put('control', uid, create(ControlRecordSchema, { uid, nextSequence: 1n }))
    .event({
      ...createEventFields(record, requestId),
      reason,
      message: `workload ${namespace}/${name} was created`,
    });
  return record;
}

/** Random bytes of a workload uid. A uid is never used again, also not after a deletion. */
const UID_BYTES = 8;

/** Fields that all events about a change of a workload share. */
export function createEventFields({ namespace, name }: WorkloadName, requestId: string) {
  return {
    severity: Severity.INFO,
    category: Category.WORKLOAD,
    namespace,
    workload: name,
    requestId,
  };
}

import { clone, create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Rollout_Strategy as Strategy,
  WorkloadSpecSchema,
  extractTemplate,
  toTemplate,
  type WorkloadSpec,
} from '@cloudless/api';
import {
  VersionRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
  type VersionRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { toVersionKeyId } from '../records/records.js';
import type { ClusterView, Stored } from '../view/view.js';
import {
  applyPins,
  listFileRefs,
  putFilesUse,
  resolvePins,
  restorePins,
  type FilePins,
  type FilesView,
} from './file-pins.js';
import type { Transaction } from './transaction.js';

/** A new spec of a workload, and its origin. */
export interface SpecUpdate {
  readonly spec: WorkloadSpec;
  /** Request id of the call that changes the spec. */
  readonly requestId: string;
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
  /**
   * The origin that the version history shows, for example `undo to version 1`. Absent for an
   * update by a user.
   */
  readonly cause?: string;
  /**
   * Makes a new version although the spec has the template of the newest version already, because
   * secrets or configs have new versions. Default: false.
   */
  readonly forceVersion?: boolean;
}

/**
 * Writes a changed spec as the next generation, and as a new version when the replica template
 * differs. A new version keeps the versions of secrets and configs that are the newest now. The
 * commit conflicts when the workload has changed since it was read, or a secret or config that the
 * new version uses.
 * @returns The new workload record.
 */
export function putSpecUpdate(
  transaction: Transaction,
  view: Pick<ClusterView, 'versions'> & FilesView,
  current: Stored<WorkloadRecord>,
  update: SpecUpdate,
): WorkloadRecord {
  const { spec, requestId, nowMs, cause = '', forceVersion = false } = update;
  const next = clone(WorkloadRecordSchema, current.value);
  const before = next.spec ?? create(WorkloadSpecSchema);
  next.spec = spec;
  next.requestId = requestId;
  next.generation += 1n;
  transaction.require('workload', next.uid, current);
  if (forceVersion || !equals(WorkloadSpecSchema, toTemplate(before), toTemplate(spec))) {
    if (listFileRefs(spec).length > 0) putFilesUse(view, transaction, next.namespace);
    next.version += 1;
    const record = createVersionRecord(spec, {
      version: next.version,
      nowMs,
      cause,
      earlier: view.versions(next.uid),
      pins: resolvePins(view, next.namespace, spec),
    });
    transaction.put('version', toVersionKeyId(next.uid, next.version), record);
  }
  transaction.put('workload', next.uid, next);
  return next;
}

/**
 * Builds the record of a version.
 * @param fields - `earlier`: the kept versions, ascending. `pins`: the versions of secrets and configs
 *   that the version keeps.
 */
export function createVersionRecord(
  spec: WorkloadSpec,
  fields: {
    readonly version: number;
    readonly nowMs: number;
    readonly cause?: string;
    readonly earlier: readonly VersionRecord[];
    readonly pins: FilePins;
  },
): VersionRecord {
  const template = applyPins(toTemplate(spec), fields.pins);
  const same = fields.earlier.find(
    (kept) => kept.template !== undefined && equals(WorkloadSpecSchema, kept.template, template),
  );
  return create(VersionRecordSchema, {
    version: fields.version,
    template,
    createdAt: timestampFromMs(fields.nowMs),
    asWritten: extractTemplate(spec),
    sameAs: same === undefined ? 0 : same.sameAs || same.version,
    cause: fields.cause ?? '',
  });
}

/**
 * Returns the oldest version with the same template as `version`. Replicas of both versions are
 * interchangeable.
 */
export function toCanonicalVersion(
  view: Pick<ClusterView, 'version'>,
  uid: string,
  version: number,
): number {
  return view.version(uid, version)?.sameAs || version;
}

/**
 * Returns a predicate for the replicas of a workload that may be endpoints and count as ready: all
 * replicas, but under BLUE_GREEN only the replicas of the active version.
 */
export function createServingFilter(
  view: Pick<ClusterView, 'version' | 'control'>,
  uid: string,
): (replica: Pick<ReplicaRecord, 'version'>) => boolean {
  const control = view.control(uid)?.value;
  if (control?.rollout?.strategy !== Strategy.BLUE_GREEN || control.activeVersion === 0)
    return () => true;
  const active = toCanonicalVersion(view, uid, control.activeVersion);
  return ({ version }) => toCanonicalVersion(view, uid, version) === active;
}

/**
 * The spec that an undo writes: the template of an older version with its versions of secrets and
 * configs, everything else from the current spec.
 */
export function restoreSpecOfVersion(
  view: FilesView,
  { namespace, spec: current = create(WorkloadSpecSchema) }: WorkloadRecord,
  { asWritten, template }: VersionRecord,
): WorkloadSpec {
  const spec = clone(WorkloadSpecSchema, asWritten ?? template ?? create(WorkloadSpecSchema));
  if (current.replicas !== undefined) spec.replicas = current.replicas;
  if (current.rollout !== undefined) spec.rollout = current.rollout;
  if (current.disconnect !== undefined) spec.disconnect = current.disconnect;
  spec.expose = current.expose;
  return restorePins(spec, template, view, namespace);
}

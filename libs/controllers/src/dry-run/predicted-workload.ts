import { clone, create, equals } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, diffSpecs, toTemplate } from '@cloudless/api';
import { WorkloadRecordSchema, type WorkloadRecord } from '@cloudless/api/store';
import {
  createVersionRecord,
  resolvePins,
  type ClusterView,
  type FilesView,
  type PlanSubject,
} from '@cloudless/cluster-state';
import type { DryRunCluster } from './dry-run-cluster.js';

/** A workload as a change would leave it. */
export interface PredictedWorkload {
  readonly workload: WorkloadRecord;
  /** The fields of the spec that differ. */
  readonly changes: ReturnType<typeof diffSpecs>;
  /** True when the change makes a new version. */
  readonly newVersion: boolean;
}

/**
 * Adds a workload to a simulated cluster as a change would leave it.
 * @param nowMs - Wall-clock milliseconds, for the age of a new version.
 */
export function putPredictedWorkload(
  cluster: DryRunCluster,
  view: Pick<ClusterView, 'versions'> & FilesView,
  { namespace, name, current, spec }: PlanSubject,
  nowMs: number,
): PredictedWorkload {
  const before = current?.spec ?? create(WorkloadSpecSchema);
  const changes = diffSpecs(before, spec);
  const newVersion =
    current === undefined || !equals(WorkloadSpecSchema, toTemplate(before), toTemplate(spec));
  const workload =
    current === undefined
      ? create(WorkloadRecordSchema, { uid: `planned/${namespace}/${name}`, namespace, name })
      : clone(WorkloadRecordSchema, current);
  workload.spec = spec;
  if (changes.length > 0 || newVersion) workload.generation += 1n;
  if (newVersion) workload.version += 1;
  const { uid, version } = workload;
  cluster.putWorkload(
    workload,
    newVersion
      ? createVersionRecord(spec, {
          ...{ version, nowMs, earlier: view.versions(uid) },
          pins: resolvePins(view, namespace, spec),
        })
      : undefined,
  );
  return { workload, changes, newVersion };
}

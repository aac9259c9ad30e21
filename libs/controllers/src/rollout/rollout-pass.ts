import type {
  ControlRecord,
  ReplicaRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import type { ClusterView, Stored, Transaction } from '@cloudless/cluster-state';
import type { EventView } from '../common/causes.js';

/** The part of a pass over a workload that concerns its rollout. */
export interface RolloutPass {
  /** The view at the begin of the pass. */
  readonly view: EventView & Pick<ClusterView, 'version'>;
  readonly workload: Stored<WorkloadRecord>;
  readonly control: Stored<ControlRecord>;
  /** The versions that still have a record, ascending. */
  readonly versions: readonly VersionRecord[];
  /** Ascending by sequence. */
  readonly replicas: readonly Stored<ReplicaRecord>[];
  readonly transaction: Transaction;
  /** The control record as the pass will write it. Changed in place. */
  readonly nextControl: ControlRecord;
}

/** Most writes of a pass, without the final events and the control record. */
export const MAX_PASS_WRITES = 90;

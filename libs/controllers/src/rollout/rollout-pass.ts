import type {
  ControlRecord,
  ReplicaRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import type { ClusterView, FilesView, Stored, Transaction } from '@cloudless/cluster-state';
import type { EventView } from '../common/causes.js';

/** The part of a pass over a workload that concerns its rollout. */
export interface RolloutPass {
  /** The view at the begin of the pass. */
  readonly view: EventView & Pick<ClusterView, 'version' | 'versions'> & FilesView;
  readonly workload: Stored<WorkloadRecord>;
  readonly control: Stored<ControlRecord>;
  /** The versions that have a record, in ascending order. */
  readonly versions: readonly VersionRecord[];
  /** In ascending order of the sequence number. */
  readonly replicas: readonly Stored<ReplicaRecord>[];
  readonly transaction: Transaction;
  /** The control record that the pass writes. The functions of a pass change it in place. */
  readonly nextControl: ControlRecord;
}

/**
 * Most writes of a pass before its last events and the control record, which then still fit into
 * the 100 writes of a transaction.
 */
export const MAX_PASS_WRITES = 90;

import type { NodeRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import type { Cluster } from '@cloudless/scheduler';
import type { NodeDirectory } from '../node/node-directory.js';
import type { ReadinessTracker } from '../rollout/readiness-tracker.js';

/** The records that a simulation reads. They stay the same while the simulation runs. */
export interface SimulationView extends Pick<
  ClusterView,
  | 'workload'
  | 'control'
  | 'version'
  | 'versions'
  | 'node'
  | 'replicasOf'
  | 'replicasOn'
  | 'revision'
  | 'config'
  | 'secret'
  | 'filesGuard'
  | 'filesUse'
> {
  workloads(): Iterable<Stored<WorkloadRecord>>;
  nodes(): Iterable<Stored<NodeRecord>>;
  /** Replicas that wait for a node. */
  unplaced(): Iterable<Stored<ReplicaRecord>>;
}

/** The state that a simulation starts from. */
export interface SimulationSource {
  readonly view: SimulationView;
  readonly nodes: Pick<NodeDirectory, 'status' | 'isAlive'>;
  readonly readiness: Pick<ReadinessTracker, 'readyForMs'>;
  /** The scheduler's model of the records. A simulation copies the model when it is created. */
  readonly cluster: Cluster;
  readonly clock: Pick<Clock, 'wallTime'>;
}

import type { WorkloadSpec } from '@cloudless/api';
import type { NodeRecord, WorkloadRecord } from '@cloudless/api/store';

/**
 * The subject of a plan: the current workload (undefined when the change creates it) and the new
 * spec.
 */
export interface PlanSubject {
  readonly namespace: string;
  readonly name: string;
  readonly current: WorkloadRecord | undefined;
  readonly spec: WorkloadSpec;
}

/** A node as a change would leave it, for a prediction. */
export type NodeSubject =
  | {
      readonly kind: 'changed';
      /** The node record as the change would write it. */
      readonly node: NodeRecord;
    }
  | {
      /** The machine is confirmed as dead: its replicas are replaced at once. */
      readonly kind: 'lost';
      readonly node: NodeRecord;
    }
  | { readonly kind: 'removed'; readonly nodeId: string };

/** Changes of a simulated cluster. They take effect together, before any replica is placed. */
export interface SimulatedChanges {
  /** Nodes as the changes leave them: lost, drained or changed nodes. */
  readonly nodes: readonly NodeSubject[];
  /** New nodes, which are alive. */
  readonly addedNodes: readonly NodeRecord[];
  /** Workloads that are created or changed. */
  readonly workloads: readonly PlanSubject[];
  readonly deletions: readonly WorkloadRecord[];
}

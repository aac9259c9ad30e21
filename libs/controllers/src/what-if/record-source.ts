import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import {
  createSnapshotView,
  type ClusterView,
  type NodeLiveStatus,
  type SnapshotRecords,
} from '@cloudless/cluster-state';
import { createCluster, type Cluster, type ScoreWeights } from '@cloudless/scheduler';
import { isReserved } from '../placement/cluster-model.js';
import { toReservation, toSchedulerNode } from '../placement/scheduler-input.js';
import type { SimulationSource } from '../dry-run/simulation-source.js';

/** A node that is alive, without conditions, and was never lost. */
export const ALIVE_NODE_STATUS: NodeLiveStatus = {
  phase: NodePhase.READY,
  alive: true,
  reason: '',
  memoryPressure: false,
  diskPressure: false,
  networkUnavailable: false,
  containersUnavailable: false,
  diskFull: false,
  diskFullReason: '',
  processesProblem: '',
  networkProxyProblem: '',
  agentSlow: false,
  agentSlowReason: '',
  quarantined: false,
  reliability: 1,
};

export interface RecordSourceOptions {
  readonly clock: Pick<Clock, 'wallTime'>;
  /** Default: the default weights of the scheduler. */
  readonly weights?: ScoreWeights | undefined;
  /**
   * Returns the live status that was saved for a node. Default: undefined for every node, so that a
   * node is alive unless its record says that it was lost.
   */
  readonly getStatus?: (nodeId: string) => NodeLiveStatus | undefined;
}

/** A state that is no longer the current one, for a simulation. */
export interface RecordSource extends SimulationSource {
  readonly view: ClusterView;
}

/**
 * Creates the source of a simulation from records. Ready replicas count as available, as their
 * readiness was not measured.
 */
export function createRecordSource(
  records: SnapshotRecords,
  { clock, weights, getStatus = () => undefined }: RecordSourceOptions,
): RecordSource {
  const view = createSnapshotView(records);
  const statusOf = (id: string): NodeLiveStatus =>
    getStatus(id) ?? getRecordedStatus(view.node(id)?.value);
  const alive = new Set(
    [...view.nodes()].map(({ value }) => value.id).filter((id) => statusOf(id).alive),
  );
  return {
    view,
    clock,
    cluster: createModel(view, statusOf, weights),
    nodes: { isAlive: (id) => alive.has(id), status: statusOf },
    readiness: {
      readyForMs: ({ ready, desiredRunning, nodeId }) =>
        ready && desiredRunning && alive.has(nodeId) ? Number.POSITIVE_INFINITY : undefined,
    },
  };
}

function getRecordedStatus(node: NodeRecord | undefined): NodeLiveStatus {
  return node === undefined || node.lost
    ? { ...ALIVE_NODE_STATUS, phase: NodePhase.LOST, alive: false }
    : ALIVE_NODE_STATUS;
}

/** Builds the scheduler's model of the records, as the running coordinator keeps it. */
function createModel(
  view: ClusterView,
  statusOf: (id: string) => NodeLiveStatus,
  weights: ScoreWeights | undefined,
): Cluster {
  const cluster = createCluster(weights === undefined ? {} : { weights });
  for (const { value } of view.nodes())
    cluster.upsertNode(toSchedulerNode(value, statusOf(value.id)));
  for (const { value } of view.replicas()) {
    const workload = view.workload(value.uid)?.value;
    const template = view.version(value.uid, value.version)?.template;
    if (!isReserved(value) || workload === undefined || template === undefined) continue;
    cluster.reserve(toReservation(workload, value, template));
  }
  return cluster;
}

import { create } from '@bufbuild/protobuf';
import {
  ForgetOrderSchema,
  OrderSchema,
  ReplicaStatus_Phase as Phase,
  StartOrderSchema,
  StopOrderSchema,
  type Order,
  type ReplicaReport,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { isLive, type ClusterView } from '@cloudless/cluster-state';
import type { ApiServerDeps } from './ports.js';

type OrderDeps = Pick<ApiServerDeps, 'state' | 'log'>;

/** Orders that the node's records ask for and the agent has not acknowledged. */
export function ordersFor(deps: OrderDeps, nodeId: string, acknowledged: ReadonlyMap<string, bigint>): readonly Order[] {
  return [...deps.state.view().replicasOn(nodeId)].flatMap(({ value }) => {
    const order = (acknowledged.get(value.id) ?? -1n) < value.orderRevision ? orderFor(deps, value) : undefined;
    return order === undefined ? [] : [order];
  });
}

/** What the record of a replica asks of its agent; undefined when that is nothing any more. */
export function orderFor({ state }: OrderDeps, replica: ReplicaRecord): Order | undefined {
  const common = { epoch: state.epoch, orderRevision: replica.orderRevision, replicaId: replica.id, workloadUid: replica.uid };
  // One that was lost with its node has ended for us only: its agent still has to hear of it.
  if (!isLive(replica) && !(replica.lost && replica.phase !== Phase.STOPPED)) return undefined;
  if (!replica.desiredRunning) {
    return create(OrderSchema, {
      ...common,
      order: { case: 'stop', value: create(StopOrderSchema, { reason: replica.stopReason }) },
    });
  }
  const view = state.view();
  const workload = view.workload(replica.uid)?.value;
  const spec = view.version(replica.uid, replica.version)?.template;
  if (workload === undefined || spec === undefined) return undefined;
  const { namespace, name } = workload;
  const start = create(StartOrderSchema, { namespace, workload: name, version: replica.version, slot: replica.slot, spec });
  return create(OrderSchema, { ...common, order: { case: 'start', value: start } });
}

/** The record of a replica is gone: its agent may drop what it kept of it. */
export function forgetOrder({ state }: OrderDeps, replicaId: string, workloadUid: string): Order {
  return create(OrderSchema, {
    epoch: state.epoch,
    orderRevision: state.view().revision,
    replicaId,
    workloadUid,
    order: { case: 'forget', value: create(ForgetOrderSchema) },
  });
}

/** No record says that this replica belongs on this node. */
export function isOrphan(view: ClusterView, nodeId: string, { replicaId }: ReplicaReport): boolean {
  return view.replica(replicaId)?.value.nodeId !== nodeId;
}

/**
 * The order for an orphan. One that has ended is forgotten, one that runs is stopped, one that is stopping is left to it;
 * but one whose order is newer than our store proves that the store went back in time: it is kept.
 */
export function orphanOrder(deps: OrderDeps, report: ReplicaReport): Order | undefined {
  const { state, log } = deps;
  const { revision } = state.view();
  const { replicaId, workloadUid, orderRevision, phase } = report;
  if (orderRevision > revision) {
    log.error('replica has a newer order than the store', { replicaId, orderRevision: String(orderRevision) });
    return undefined;
  }
  if (phase > Phase.STOPPING) return forgetOrder(deps, replicaId, workloadUid);
  if (phase === Phase.STOPPING) return undefined;
  log.warn('orphan is stopped', { replicaId, workloadId: workloadUid });
  return create(OrderSchema, {
    epoch: state.epoch,
    orderRevision: revision,
    replicaId,
    workloadUid,
    order: { case: 'stop', value: create(StopOrderSchema, { reason: 'no record says that this replica belongs here' }) },
  });
}

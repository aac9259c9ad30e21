import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  type Order,
  type ReplicaReport,
  type StartOrder,
  type StopOrder,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { isLive, isTombstone, type ClusterState } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/**
 * State from which orders are derived. Without `network`, a stop does not wait for network proxies:
 * an agent without a session cannot receive EndpointsGone.
 */
type OrderDeps = Pick<ApiServerDeps, 'state'> & Partial<Pick<ApiServerDeps, 'network'>>;

/** Longest time for which a stop waits for the network proxies. */
const AWAIT_ENDPOINTS_GONE_MS = 5_000;

/**
 * Returns true while orders may be sent. Not once the leadership has ended, also when this process
 * stood still meanwhile and its sessions are still open: agents refuse orders of an earlier epoch
 * only after they have heard of a later one. Not after a rollback of the store was detected: orders
 * are sent again once an operator has accepted the restored state.
 */
export function maySendOrders({
  isLeading,
  storeRolledBack,
}: Pick<ClusterState, 'isLeading' | 'storeRolledBack'>): boolean {
  return isLeading && storeRolledBack === undefined;
}

/**
 * Returns the orders that follow from the replica records of a node and that its agent has not
 * acknowledged.
 * @param acknowledged - Newest order revision that the agent has acknowledged, by replica id.
 */
export function listPendingOrders(
  deps: OrderDeps,
  nodeId: string,
  acknowledged: ReadonlyMap<string, bigint>,
): readonly Order[] {
  return [...deps.state.view().replicasOn(nodeId)].flatMap(({ value }) => {
    const order = isAcknowledged(deps, value, acknowledged.get(value.id))
      ? undefined
      : createOrder(deps, value);
    return order === undefined ? [] : [order];
  });
}

/**
 * Returns true when the agent has acknowledged the newest order of the replica.
 * @param acknowledged - Newest order revision that the agent has acknowledged; undefined: none.
 */
export function isAcknowledged(
  { state }: OrderDeps,
  replica: ReplicaRecord,
  acknowledged: bigint | undefined,
): boolean {
  return acknowledged !== undefined && acknowledged >= state.toOrderRevision(replica.orderRevision);
}

/** Returns true for a replica that its agent has to start, to run or to stop. */
export function hasOrder(replica: ReplicaRecord): boolean {
  return isLive(replica) || isTombstone(replica);
}

/**
 * Returns the start or stop order that follows from the record of a replica; undefined when the
 * replica has ended, or when its workload or version is no longer stored.
 */
export function createOrder(deps: OrderDeps, replica: ReplicaRecord): Order | undefined {
  if (!hasOrder(replica)) return undefined;
  const order = createContent(deps, replica);
  if (order === undefined) return undefined;
  const { id: replicaId, uid: workloadUid } = replica;
  const { epoch } = deps.state;
  const orderRevision = deps.state.toOrderRevision(replica.orderRevision);
  return { $typeName: 'cloudless.api.Order', epoch, orderRevision, replicaId, workloadUid, order };
}

function createContent(
  { state, network }: OrderDeps,
  replica: ReplicaRecord,
): Order['order'] | undefined {
  if (!replica.desiredRunning) {
    const stop = createStop(replica.stopReason);
    if (network?.hasEndpoint(replica) === true)
      stop.awaitEndpointsGone = durationFromMs(AWAIT_ENDPOINTS_GONE_MS);
    return { case: 'stop', value: stop };
  }
  const view = state.view();
  const workload = view.workload(replica.uid)?.value;
  const spec = view.version(replica.uid, replica.version)?.template;
  if (workload === undefined || spec === undefined) return undefined;
  const { namespace, name } = workload;
  const { version, slot, stopAfter } = replica;
  const start: StartOrder = {
    $typeName: 'cloudless.api.StartOrder',
    namespace,
    workload: name,
    version,
    slot,
    spec,
  };
  if (stopAfter !== undefined) start.stopAfter = stopAfter;
  return { case: 'start', value: start };
}

function createStop(reason: string): StopOrder {
  return { $typeName: 'cloudless.api.StopOrder', reason };
}

/**
 * Returns true when no record assigns the reported replica to this node, or when the replica runs
 * although its record says that it has ended.
 * @param record - The record of the replica; undefined when there is none.
 */
export function isOrphan(
  record: ReplicaRecord | undefined,
  nodeId: string,
  { phase }: Pick<ReplicaReport, 'phase'>,
): boolean {
  if (record?.nodeId !== nodeId) return true;
  return phase <= Phase.STOPPING && !isLive(record) && !isTombstone(record);
}

/**
 * Returns the order for an orphan: forget when the orphan has ended, stop when it runs, undefined
 * while it is stopping. Also undefined when the orphan has an order newer than any order of this
 * store: the store has gone back in time, and the lost state may contain the replica.
 */
export function createOrphanOrder({ state }: OrderDeps, report: ReplicaReport): Order | undefined {
  const { orderRevision: newest, epoch } = state;
  const { replicaId, workloadUid, orderRevision, phase } = report;
  if (orderRevision > newest || phase === Phase.STOPPING) return undefined;
  const order: Order['order'] =
    phase > Phase.STOPPING
      ? { case: 'forget', value: { $typeName: 'cloudless.api.ForgetOrder' } }
      : { case: 'stop', value: createStop('no record assigns this replica to this node') };
  return {
    $typeName: 'cloudless.api.Order',
    epoch,
    orderRevision: newest,
    replicaId,
    workloadUid,
    order,
  };
}

/**
 * Returns the orders that follow from the records and from the reports of an agent: those that the
 * agent has not acknowledged, and those for its orphans.
 */
export function listOrdersAfter(
  deps: Pick<ApiServerDeps, 'state'>,
  nodeId: string,
  reports: readonly ReplicaReport[],
): readonly Order[] {
  const view = deps.state.view();
  const acknowledged = new Map(reports.map((report) => [report.replicaId, report.orderRevision]));
  const orphans = reports.filter((report) =>
    isOrphan(view.replica(report.replicaId)?.value, nodeId, report),
  );
  return [
    // `network` is left out: a Heartbeat has no later message that would end a wait for the
    // network.
    ...listPendingOrders({ state: deps.state }, nodeId, acknowledged),
    ...orphans.flatMap((report) => createOrphanOrder(deps, report) ?? []),
  ];
}

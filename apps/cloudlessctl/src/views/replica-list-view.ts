import type { ReplicaStatus, ResourceList } from '@cloudless/api';
import { formatAge, formatBytes, formatCpu } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell, Column, Row } from '../output/table.js';
import { formatReplicaReason, haveFailedStarts, toReplicaPhaseCell } from './replica-view.js';

/** A replica with the names of its workload. */
export interface PlacedReplica {
  readonly namespace: string;
  /** Name of the workload. */
  readonly workload: string;
  /** The resources that each replica of the workload requests; absent: the defaults. */
  readonly requests: ResourceList | undefined;
  readonly replica: ReplicaStatus;
}

/** Returns the columns of a list of replicas. */
export function getReplicaListColumns(wide: boolean): readonly (Column | string)[] {
  return [
    { header: 'NAMESPACE', dropOrder: 1 },
    { header: 'WORKLOAD', fit: 'shorten' },
    'REPLICA',
    { header: 'STATUS', usualWidth: 'Stopping,Leaving'.length },
    'READY',
    { header: 'NODE', fit: 'shorten' },
    { header: 'RESTARTS', dropOrder: 3 },
    ...(wide ? ['FAILED STARTS'] : []),
    { header: 'AGE', dropOrder: 2, usualWidth: '59m59s'.length },
    ...(wide ? ['VERSION', 'SLOT', 'ZONE', 'CONTAINER', 'ENDPOINTS'] : []),
    { header: 'REASON', fit: 'wrap' },
  ];
}

/** Returns the table row of a replica. */
export function toReplicaListRow(
  { namespace, workload, replica }: PlacedReplica,
  nowMs: number,
  style: Style,
  wide: boolean,
): readonly (Cell | string)[] {
  const { id, ready, nodeId, restarts, failedStarts, createdAt } = replica;
  const { version, slot, zone, containerId } = replica;
  const endpoints = replica.endpoints.map(({ portName, ip, port }) => `${portName}=${ip}:${port}`);
  const extra = [
    String(version),
    String(slot),
    zone,
    containerId.slice(0, SHORT_ID_LENGTH),
    endpoints.join(','),
  ];
  return [
    namespace,
    workload,
    id,
    toReplicaPhaseCell(replica, style),
    ready ? 'yes' : 'no',
    nodeId,
    String(restarts),
    ...(wide ? [String(failedStarts)] : []),
    formatAge(createdAt, nowMs),
    ...(wide ? extra : []),
    formatReplicaReason(replica, nowMs),
  ];
}

/** Number of digits of a container id in a table, as in `docker ps`. */
const SHORT_ID_LENGTH = 12;

/** Formats replicas of several workloads as a table. */
export function formatReplicaList(
  replicas: readonly PlacedReplica[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  const rows = replicas.map((item) => toReplicaListRow(item, nowMs, style, wide));
  return formatTable(getReplicaListColumns(wide), rows, style, { wide });
}

/**
 * Formats the replicas of one node as a table, with the resources that each requests. The column
 * FAILED STARTS is present when a replica has some.
 */
export function formatNodeReplicas(
  replicas: readonly PlacedReplica[],
  nowMs: number,
  style: Style,
): string {
  const showsFailedStarts = haveFailedStarts(replicas.map(({ replica }) => replica));
  const columns: readonly (Column | string)[] = [
    { header: 'WORKLOAD', fit: 'shorten', minWidth: 16 },
    'REPLICA',
    'STATUS',
    { header: 'READY', dropOrder: 3 },
    { header: 'CPU', dropOrder: 4 },
    { header: 'MEMORY', dropOrder: 5 },
    { header: 'RESTARTS', dropOrder: 1 },
    ...(showsFailedStarts ? [{ header: 'FAILED STARTS', dropOrder: 1 }] : []),
    { header: 'AGE', dropOrder: 2 },
    { header: 'REASON', fit: 'wrap', minWidth: 20 },
  ];
  const rows = replicas.map(({ namespace, workload, requests, replica }): Row => [
    `${namespace}/${workload}`,
    replica.id,
    toReplicaPhaseCell(replica, style),
    replica.ready ? 'yes' : 'no',
    requests?.cpuMillis === undefined ? '' : formatCpu(requests.cpuMillis),
    requests?.memoryBytes === undefined ? '' : formatBytes(requests.memoryBytes),
    String(replica.restarts),
    ...(showsFailedStarts ? [String(replica.failedStarts)] : []),
    formatAge(replica.createdAt, nowMs),
    formatReplicaReason(replica, nowMs),
  ]);
  return formatTable(columns, rows, style);
}

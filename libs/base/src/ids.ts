import type { Random } from './random.js';

declare const brand: unique symbol;
/** A string with a distinct type: a `NodeId` is not a `ReplicaId`. */
export type Branded<Text extends string, Name extends string> = Text & { readonly [brand]: Name };

/** Name of a node, a DNS label. Unique while the node exists. */
export type NodeId = Branded<string, 'NodeId'>;
/** Uid of a workload: 16 hex digits, generated at creation and never reused. */
export type WorkloadId = Branded<string, 'WorkloadId'>;
/** Id of a replica: `<workload uid>-<sequence number>`, never reused. */
export type ReplicaId = Branded<string, 'ReplicaId'>;
/** Id of a container: 64 hex digits, new at each start of a container or process. */
export type ContainerId = Branded<string, 'ContainerId'>;

/** These conversions change only the type; they do not check the text. */
export const toNodeId = (text: string): NodeId => text as NodeId;
export const toWorkloadId = (text: string): WorkloadId => text as WorkloadId;
export const toReplicaId = (text: string): ReplicaId => text as ReplicaId;
export const toContainerId = (text: string): ContainerId => text as ContainerId;

/** Returns the id of the replica with number `sequence` of a workload. */
export function replicaIdOf(workloadId: WorkloadId, sequence: number): ReplicaId {
  // A template makes a text that also keeps its parts: up to 32 bytes more in each record.
  return [workloadId, sequence].join('-') as ReplicaId;
}

/** Returns `byteCount` random bytes as lower-case hex digits. */
export function randomHex(random: Random, byteCount: number): string {
  return Array.from(random.bytes(byteCount), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export { ClusterState, openClusterState } from './cluster-state.js';
export type { ChangeListener, ClusterStateOptions } from './cluster-state.js';
export { nameKeyId, replicaKeyId, versionKeyId } from './records.js';
export type { RecordKind, RecordOf } from './records.js';
export { Transaction } from './transaction.js';
export type { EventInit, EventStamp } from './transaction.js';
export type { ClusterView, RecordChange, Stored } from './view.js';
export { copyReplica, holdsResources, isLive } from './replicas.js';

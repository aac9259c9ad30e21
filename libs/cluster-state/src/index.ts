export { ClusterState, openClusterState } from './cluster-state.js';
export { LeadershipLostError } from './leadership-lost.js';
export { StorageFault } from '@cloudless/state-store';
export type { HistoricChange, HistoricChanges } from './history.js';
export type { ChangeListener, ClusterStateOptions } from './cluster-state.js';
export { RestoredStateError } from './restored-state.js';
export type { AcceptedState, HeldByAgent } from './restored-state.js';
export {
  REMOVED_EVENTS_KEY,
  decodeRecord,
  nameKeyId,
  parseKey,
  replicaKeyId,
  versionKeyId,
} from './records.js';
export type { RecordKind, RecordOf } from './records.js';
export { Transaction } from './transaction.js';
export type { EventInit, EventStamp } from './transaction.js';
export type { ClusterView, RecordChange, Stored } from './view.js';
export { replicasOf } from './event-index.js';
export type { EventSubject } from './event-index.js';
export { copyReplica, holdsResources, isLive, isTombstone } from './replicas.js';
export { putNodeReturn } from './node-return.js';
export {
  canonicalVersion,
  putSpecChange,
  servesOf,
  specOfVersion,
  versionRecordOf,
} from './spec-change.js';
export type { SpecChange } from './spec-change.js';

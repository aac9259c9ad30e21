export { ClusterState, openClusterState } from './cluster-state.js';
export { LeadershipLostError } from './leadership-lost.js';
export { StorageFault } from '@cloudless/state-store';
export type { HistoricChange, HistoricChanges } from './history.js';
export type { ChangeListener, ClusterStateOptions } from './cluster-state.js';
export { RestoredStateError } from './restored-state.js';
export type { AcceptedState, AgentOrderState } from './restored-state.js';
export {
  REMOVED_EVENTS_KEY,
  decodeRecord,
  toNameKeyId,
  parseKey,
  toReplicaKeyId,
  toVersionKeyId,
} from './records.js';
export type { RecordKind, RecordOf } from './records.js';
export { Transaction } from './transaction.js';
export type { EventInit, EventStamp } from './transaction.js';
export type { ClusterView, RecordChange, Stored } from './view.js';
export { listReplicaIds } from './event-index.js';
export type { EventSubject } from './event-index.js';
export { copyReplica, holdsResources, isLive, isTombstone } from './replicas.js';
export { putNodeReturn } from './node-return.js';
export {
  toCanonicalVersion,
  putSpecUpdate,
  createServingFilter,
  restoreSpecOfVersion,
  createVersionRecord,
} from './spec-change.js';
export type { SpecUpdate } from './spec-change.js';

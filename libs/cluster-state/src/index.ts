export { ClusterState, openClusterState } from './cluster-state.js';
export { LeadershipLostError } from './leadership/leadership-lost.js';
export { StorageFault } from '@cloudless/state-store';
export type { HistoricChange, HistoricChanges } from './history.js';
export type { ChangeListener, ClusterStateOptions } from './cluster-state.js';
export { RestoredStateError } from './leadership/restored-state.js';
export type { AcceptedState, AgentOrderState } from './leadership/restored-state.js';
export {
  REMOVED_EVENTS_KEY,
  decodeRecord,
  toNameKeyId,
  parseKey,
  toReplicaKeyId,
  toVersionKeyId,
} from './records/records.js';
export type { RecordKind, RecordOf } from './records/records.js';
export { Transaction } from './transaction.js';
export type { EventInit, EventStamp } from './transaction.js';
export type { ClusterView, RecordChange, Stored } from './view/view.js';
export { listReplicaIds } from './view/event-index.js';
export type { EventSubject } from './view/event-index.js';
export { copyReplica, holdsResources, isLive, isTombstone } from './records/replicas.js';
export { putNodeReturn } from './records/node-return.js';
export {
  toCanonicalVersion,
  putSpecUpdate,
  createServingFilter,
  restoreSpecOfVersion,
  createVersionRecord,
} from './records/spec-update.js';
export type { SpecUpdate } from './records/spec-update.js';

export { ClusterState, openClusterState } from './cluster-state.js';
export { LeadershipLostError, NotLeaderError } from './leadership/leadership-lost.js';
export type { KnownLeader } from './leadership/leadership-lost.js';
export type { CoordinatorRole, LeadershipMode, RoleChange } from './leadership/leadership.js';
export { LeaderElection } from './leadership/leader-election.js';
export { findNextInLine } from './leadership/succession.js';
export { CoordinatorPresence } from './leadership/coordinator-presence.js';
export type { CoordinatorPresenceDeps } from './leadership/coordinator-presence.js';
export type { CandidateIdentity } from './leadership/campaign.js';
export type { LeadershipTerm } from './leadership/leadership-term.js';
export { StorageFault } from '@cloudless/state-store';
export type { HistoricChange, HistoricChanges } from './history.js';
export type { ChangeListener, ClusterStateOptions } from './cluster-state.js';
export { RestoredStateError } from './leadership/restored-state.js';
export type { OrderState, AgentOrderState } from './leadership/restored-state.js';
export {
  CERTIFICATE_AUTHORITY_KEY,
  NETWORK_SETTINGS_KEY,
  POLICY_GUARD_KEY,
  REMOVED_EVENTS_KEY,
  ROUTE_GUARD_KEY,
  decodeRecord,
  encodeRecord,
  toConfigKeyId,
  toNameKeyId,
  parseKey,
  toReplicaKeyId,
  toRouteKeyId,
  toSecretKeyId,
  toServiceKeyId,
  toValueKeyId,
  toVersionKeyId,
} from './records/records.js';
export type { RecordKind, RecordOf } from './records/records.js';
export { markRestored } from './records/mark-restored.js';
export { readClusterLayout } from './records/cluster-layout.js';
export type { ClusterLayout } from './records/cluster-layout.js';
export { Transaction } from './transaction/transaction.js';
export type { EventInit, EventStamp } from './transaction/transaction.js';
export { PreloadedView } from './view/preloaded-view.js';
export type { ClusterView, RecordChange, Stored } from './view/view.js';
export { MAX_LISTED_REPLICAS, getListedReplicas, limitListed } from './view/listed-replicas.js';
export type { ListedReplicas } from './view/listed-replicas.js';
export type { ReplicaCounts, SequenceEnds, VersionCounts } from './view/replica-counts.js';
export { createSnapshotView } from './view/snapshot-view.js';
export type { SnapshotRecords } from './view/snapshot-view.js';
export { listReplicaIds } from './view/event-index.js';
export type { EventSubject } from './view/event-index.js';
export {
  compactList,
  copyReplica,
  createReplicaRecord,
  holdsResources,
  getNextOrderRevision,
  isLive,
  isTombstone,
  toShownPhase,
  waitsForNode,
} from './records/replicas.js';
export { shareContainer, shareTime, shareTimeFromMs } from './records/shared-parts.js';
export { putNodeReturn } from './transaction/node-return.js';
export {
  toCanonicalVersion,
  putSpecUpdate,
  createServingFilter,
  restoreSpecOfVersion,
  createVersionRecord,
} from './transaction/spec-update.js';
export type { SpecUpdate } from './transaction/spec-update.js';
export { listRollbackVersions } from './transaction/rollback-versions.js';
export {
  NO_PINS,
  describeNewPins,
  isRotated,
  findNewestVersion,
  findVersionKeys,
  listKeptVersions,
  listFileRefs,
  putFilesGuard,
  resolvePins,
  putFilesUse,
  toNoun,
} from './transaction/file-pins.js';
export type { FileKind, FilePins, FileRef, FilesView } from './transaction/file-pins.js';
export { getZone, selectsNode, toEffectiveNode, toTaintKey } from './records/effective-node.js';
export type { EffectiveNode } from './records/effective-node.js';
export type { NodeLiveStatus } from './records/node-live-status.js';
export type { NodeSubject, PlanSubject, SimulatedChanges } from './records/plan-subject.js';
export {
  NODE_RENEWAL_GRACE_MS,
  RENEWAL_SETTLE_MS,
  advanceRotation,
  createAuthorityRecord,
  getRotationProgress,
  getServerGeneration,
  isRotating,
  needsRenewal,
  noteKeyHolder,
  putRotationPhase,
  startRotation,
} from './identity/certificate-authority.js';
export type { RotationProgress } from './identity/certificate-authority.js';
export { listReplicasHeldBy, toDrainStatus } from './view/drain-status.js';
export type { DrainSources } from './view/drain-status.js';
export {
  createEndpointPortIndex,
  hasEndpoint,
  isReadyEndpoint,
  matchTargetPort,
  selectsWorkload,
} from './network/service-endpoints.js';
export { canCheckEndpoints, findChecker, scoreChecker } from './network/endpoint-checker.js';
export {
  listExternalAddressIds,
  putServiceDeletion,
  toNodePortId,
} from './network/service-deletion.js';
export type { EndpointPort, EndpointPortIndex } from './network/service-endpoints.js';

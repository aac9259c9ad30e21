export { ClusterIdentities, describeUntrustedKeys } from './identity/cluster-identities.js';
export type {
  AuthorityKeys,
  CertificateLifetimes,
  ClusterIdentitiesOptions,
} from './identity/cluster-identities.js';
export { ExpiryWatch } from './identity/expiry-watch.js';
export type { ExpiryWatchOptions } from './identity/expiry-watch.js';
export { ServerCertificate } from './identity/server-certificate.js';
export type { KeyAndChain, ServerCertificateOptions } from './identity/server-certificate.js';
export { startControllers } from './controllers.js';
export type { Controllers, ControllersOptions } from './controllers.js';
export { sumAllocated } from './node/node-allocations.js';
export type { NodeAllocation } from './node/node-allocations.js';
export { NodeDirectory } from './node/node-directory.js';
export type { NodeDirectoryOptions } from './node/node-directory.js';
export { openReadModel } from './read-model.js';
export type { ReadModel, ReadModelOptions } from './read-model.js';
export { DEFAULT_RETENTION } from './retention.js';
export type { RetentionLimits } from './retention.js';
export { DryRunService, explainImpossibleLimits } from './dry-run/dry-run-service.js';
export type { DryRunServiceDeps } from './dry-run/dry-run-service.js';
export { WhatIfService } from './what-if/what-if-service.js';
export type { WhatIfServiceDeps } from './what-if/what-if-service.js';
export { WorkloadPresenter } from './workload/workload-presenter.js';
export {
  toPlacementRequest,
  toRequests,
  toReservation,
  toSchedulerNode,
} from './placement/scheduler-input.js';
export { NetworkFeed } from './network/network-feed.js';
export type { FeedCounts } from './network/feed-metrics.js';
export type { FeedPosition, FeedReader } from './network/network-feed.js';

import type { ClusterState } from '@cloudless/cluster-state';
import { ExpiryWatch, type Controllers } from '@cloudless/controllers';
import type { Metrics } from '@cloudless/observability';
import type { CoordinatorConfig } from '../config.js';
import type { CoordinatorMachine } from '../coordinator.js';
import type { CoordinatorIdentity } from './coordinator-identity.js';
import { IdentityFilesWatch } from './identity-files-watch.js';
import { registerIdentityMetrics } from './identity-metrics.js';

/** The watches over the certificates and key files of a coordinator with TLS. */
export interface IdentityWatches {
  /** Returns what makes this process degraded: files that its next start needs are lost. */
  listFileWarnings(): readonly string[];
  /** Returns all warnings for operators, one sentence each. */
  listWarnings(): readonly string[];
  close(): void;
}

/** Starts the watches, and registers their metrics. */
export function startIdentityWatches(
  { nodeCertificateLifetimeMs: nodeLifetimeMs }: CoordinatorConfig,
  { clock, log: rootLog }: CoordinatorMachine,
  {
    state,
    identity,
    controllers: { nodes },
    metrics,
  }: {
    readonly state: ClusterState;
    readonly identity: CoordinatorIdentity;
    readonly controllers: Controllers;
    readonly metrics: Metrics;
  },
): IdentityWatches {
  const log = rootLog.child({ component: 'identity' });
  const expiry = new ExpiryWatch({
    ...{ state, nodes, clock, log, nodeLifetimeMs },
    getAuthorityExpiry: () => identity.identities.getAuthorityExpiry(),
  });
  const files = new IdentityFilesWatch({
    ...{ state, clock, log, metrics, directory: identity.directory },
    findProblem: () => identity.findFileProblem(),
  });
  registerIdentityMetrics(metrics, identity, clock);
  return {
    listFileWarnings: () => files.listWarnings(),
    listWarnings: () => [...expiry.listWarnings(), ...files.listWarnings()],
    close: () => {
      expiry.close();
      files.close();
    },
  };
}

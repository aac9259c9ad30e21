import type { ClusterState } from '@cloudless/cluster-state';
import type { Metrics } from '@cloudless/observability';
import type { CoordinatorMachine } from '../coordinator-machine.js';
import type { CoordinatorIdentity } from './coordinator-identity.js';
import { IdentityFilesWatch } from './identity-files-watch.js';
import { registerIdentityMetrics } from './identity-metrics.js';

/** Starts the watch over the key files of a coordinator with TLS, and registers its metrics. */
export function watchIdentityFiles(
  { clock, log }: CoordinatorMachine,
  {
    state,
    identity,
    metrics,
  }: {
    readonly state: ClusterState;
    readonly identity: CoordinatorIdentity;
    readonly metrics: Metrics;
  },
): IdentityFilesWatch {
  registerIdentityMetrics(metrics, identity, clock);
  return new IdentityFilesWatch({
    ...{ state, clock, metrics, directory: identity.directory },
    log: log.child({ component: 'identity' }),
    findProblem: () => identity.findFileProblem(),
  });
}

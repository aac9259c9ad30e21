import type { SecretKeys } from '@cloudless/api-server';
import type { ClusterState } from '@cloudless/cluster-state';
import type { HealthReport } from '@cloudless/rpc-node/server';
import { describeRole } from './roles/describe-role.js';
import { listViewProblems } from './roles/view-problems.js';
import type { StoreHealth } from './store-health.js';

/** What /health and /ready tell about. */
export interface HealthSources {
  readonly state: Pick<
    ClusterState,
    'role' | 'leader' | 'viewAgeMs' | 'storeRolledBackReason' | 'view'
  >;
  readonly storeHealth: Pick<
    StoreHealth,
    'getHealth' | 'getReadinessProblems' | 'listReadinessWarnings'
  >;
  /** The parts of the current role. */
  readonly roles: { listWarnings(): readonly string[] };
  /** The files of the identity directory. Absent without TLS. */
  readonly files?: { listWarnings(): readonly string[] } | undefined;
  readonly secretKeys: Pick<SecretKeys, 'findProblem'>;
}

/**
 * Returns the report of /health: the role, and what is wrong with this process or its way to the
 * store. An old view is no reason to restart the process.
 */
export function checkHealth({ state, storeHealth, files }: HealthSources): HealthReport {
  const warnings = [...(files?.listWarnings() ?? []), ...listViewProblems(state)];
  return { ...storeHealth.getHealth(warnings), facts: describeRole(state) };
}

/**
 * Returns the report of /ready: whether this coordinator serves calls itself. Without the right
 * key-encryption key it is ready, because it refuses only calls that need the keys of the cluster.
 */
export async function checkReadiness({
  state,
  storeHealth,
  roles,
  files,
  secretKeys,
}: HealthSources): Promise<HealthReport> {
  const keyProblem = await secretKeys.findProblem(state.view());
  const reasons = [
    ...storeHealth.getReadinessProblems(),
    ...listViewProblems(state),
    ...(state.storeRolledBackReason === undefined ? [] : [state.storeRolledBackReason]),
  ];
  const degraded = [
    ...storeHealth.listReadinessWarnings(),
    ...roles.listWarnings(),
    ...(files?.listWarnings() ?? []),
    ...(keyProblem === undefined ? [] : [`secrets: ${keyProblem}`]),
  ];
  if (reasons.length > 0) return { ok: false, reasons: [...reasons, ...degraded] };
  return degraded.length === 0 ? { ok: true } : { ok: true, degraded };
}

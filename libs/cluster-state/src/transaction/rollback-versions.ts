import { RolloutStatus_Phase as Phase } from '@cloudless/api';
import type { ControlRecord } from '@cloudless/api/store';

/**
 * Returns the versions whose template an automatic rollback can make the newest again: the active
 * version, from which the next rollout begins, and until the end of a rollout also the version that
 * the rollout replaces. A change of `on_failure` during a rollout changes nothing: both settings
 * count as ROLLBACK. May contain a version twice, and the newest version.
 */
export function listRollbackVersions({
  activeVersion,
  rollout,
  rolloutPhase,
}: ControlRecord): readonly number[] {
  const hasEnded = rolloutPhase === Phase.COMPLETED || rolloutPhase === Phase.ROLLED_BACK;
  return [activeVersion, hasEnded ? 0 : (rollout?.fromVersion ?? 0)].filter(
    (version) => version !== 0,
  );
}

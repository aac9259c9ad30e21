import { CliFailure, ExitCode } from '../../call/failure.js';

/** A change by a manifest that may have been printed by an older `get -o yaml`. */
export interface DatedChange {
  /** The object in messages: `service default/web`. */
  readonly subject: string;
  /** The command that prints the object as it is now. */
  readonly fetchCommand: string;
  /** Generation in the manifest. Undefined: the manifest names none, and may change any. */
  readonly generation: bigint | undefined;
  /** Generation of the object in the cluster. */
  readonly current: bigint;
}

/**
 * Returns why a change would overwrite newer changes: the manifest has an older generation than the
 * object in the cluster. Undefined when the change may be made. A manifest with a newer generation
 * may be applied, because an object that was restored from a backup, or was deleted and created
 * again, counts from a lower generation.
 */
export function findStaleReason({
  subject,
  fetchCommand,
  generation,
  current,
}: DatedChange): string | undefined {
  if (generation === undefined || generation >= current) return undefined;
  return `${subject}: the manifest has generation ${generation}, and the object in the cluster has generation ${current}: applying it would overwrite newer changes. Print the current object with "${fetchCommand}" and edit it, or remove the line "generation" to overwrite the newer changes`;
}

/**
 * Checks the generations of manifests before anything is changed.
 * @param changes - Only changes that have an effect.
 * @throws {@link CliFailure} with exit code 4 that lists every stale manifest.
 */
export function requireFreshManifests(changes: readonly DatedChange[]): void {
  const reasons = changes.flatMap((change) => findStaleReason(change) ?? []);
  if (reasons.length > 0)
    throw new CliFailure(ExitCode.conflict, ['nothing was applied:', ...reasons].join('\n'));
}

/**
 * Checks the generation of a manifest whose change has an effect.
 * @throws {@link CliFailure} with exit code 4 for a stale manifest.
 */
export function requireFreshManifest(change: DatedChange): void {
  const reason = findStaleReason(change);
  if (reason !== undefined) throw new CliFailure(ExitCode.conflict, reason);
}

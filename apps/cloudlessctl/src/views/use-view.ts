import { WorkloadUse_Effect as Effect, type Secret, type Workload } from '@cloudless/api';
import { formatWorkloadName, type WorkloadName } from '../names.js';
import { formatCount } from '../output/human.js';

/** A workload that uses a secret or config, and the effect of a new version on the workload. */
export interface Use extends WorkloadName {
  readonly effect: Effect;
  /** Version that the spec names. Undefined: the newest. */
  readonly pinned?: number;
  /** The workload before the change. */
  readonly workload: Workload;
}

/** Formats the effects of a new version as lines: `  workload default/web: rolls out`. */
export function formatUses(uses: readonly Use[]): string {
  return uses.map((use) => `  ${formatWorkloadName(use)}: ${describeEffect(use)}\n`).join('');
}

/** Formats the routes that use a secret as lines: `  route default/shop: serves ...`. */
export function formatRouteUses({ namespace, usedByRoutes }: Secret): string {
  return usedByRoutes
    .map((name) => `  route ${namespace}/${name}: serves the new certificate at once\n`)
    .join('');
}

/** Describes the effect of a new version on a workload. */
export function describeEffect({ effect, pinned }: Pick<Use, 'effect' | 'pinned'>): string {
  switch (effect) {
    case Effect.ROLLOUT:
      return 'gets a new version, which is rolled out';
    case Effect.SIGNAL:
      return 'the files are replaced, and the main processes get a signal';
    case Effect.FILES:
      return 'the files are replaced';
    case Effect.IMAGE_PULL:
      return 'the next pull of the image uses the new version';
    default:
      return pinned === undefined ? 'no change' : `no change: the spec names version ${pinned}`;
  }
}

/** Returns the numbers of the effects in words: `2 workloads roll out, 1 workload gets a signal`. */
export function summariseUses(uses: readonly Use[]): string {
  const count = (effect: Effect): number => uses.filter((use) => use.effect === effect).length;
  const rollouts = count(Effect.ROLLOUT);
  const signals = count(Effect.SIGNAL);
  const files = count(Effect.FILES);
  return [
    rollouts === 0 ? '' : `roll out ${formatCount(rollouts, 'workload')}`,
    signals === 0 ? '' : `signal ${formatCount(signals, 'workload')}`,
    files === 0 ? '' : `replace the files of ${formatCount(files, 'workload')}`,
  ]
    .filter((text) => text !== '')
    .join(', ');
}

import { InvalidInputError, type Violation } from '@cloudless/base';
import {
  Rollout_Strategy as Strategy,
  WorkloadSpec_Mode as Mode,
  type WorkloadSpec,
} from '../gen.js';

const NO_COUNT = 'is not allowed with GLOBAL, which runs one replica on each matching node';

/** Yields a violation for each field that mode GLOBAL does not support. */
export function* validateMode({
  mode,
  replicas,
  placement,
  rollout,
}: WorkloadSpec): Generator<Violation> {
  if (mode !== Mode.GLOBAL) return;
  if (replicas !== undefined) yield { field: 'spec.replicas', message: NO_COUNT };
  if (placement?.spread !== undefined) {
    yield {
      field: 'spec.placement.spread',
      message: 'is not allowed with GLOBAL, which runs on each matching node in every zone',
    };
  }
  if (rollout?.strategy === Strategy.BLUE_GREEN) {
    yield {
      field: 'spec.rollout.strategy',
      message:
        'BLUE_GREEN is not allowed with GLOBAL, which cannot run two replicas on a node; use ROLLING_UPDATE or RECREATE',
    };
  }
  if ((rollout?.steps.length ?? 0) > 0) {
    yield {
      field: 'spec.rollout.steps',
      message: 'canary steps are not allowed with GLOBAL; remove them',
    };
  }
}

/**
 * Checks that a workload has a replica count that can be changed.
 * @throws {@link InvalidInputError} for field `replicas` when the mode is GLOBAL.
 */
export function checkScalable(spec: WorkloadSpec): void {
  if (spec.mode === Mode.GLOBAL)
    throw new InvalidInputError([{ field: 'replicas', message: NO_COUNT }]);
}

/**
 * Checks that an update does not change the mode of a workload, because replica count and
 * `min_available` would change their meaning.
 * @throws {@link InvalidInputError} for field `spec.mode` when the modes differ.
 */
export function checkSameMode(before: WorkloadSpec, after: WorkloadSpec): void {
  if (before.mode === after.mode) return;
  const [was, is] = [Mode[before.mode], Mode[after.mode]];
  const message = `cannot change from ${was} to ${is}; create another workload, and delete this one when the other is ready`;
  throw new InvalidInputError([{ field: 'spec.mode', message }]);
}

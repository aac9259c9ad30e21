import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { Rollout_OnFailure as OnFailure, Rollout_Promotion as Promotion } from '@cloudless/api';
import { ControlRecordSchema } from '@cloudless/api/store';
import { listRollbackVersions } from '@cloudless/cluster-state';
import { NO_ROLLOUT, advanceRollout, getStepSize, resolveLimits } from '@cloudless/rollout';
import { aSpec } from '../testing/test-bed.js';
import { toRolloutSettings, writeRolloutState } from './rollout-state.js';

describe('toRolloutSettings', () => {
  it('converts canary steps, with the weight as the size of a step that has only a weight', () => {
    const { canarySteps } = toRolloutSettings(
      aSpec({
        rollout: {
          steps: [
            { weightPercent: 10, wait: durationFromMs(60_000), gate: 'errors_per_s < 1' },
            { percent: 25, weightPercent: 20, promotion: Promotion.MANUAL },
            { replicas: 3, weightPercent: 50 },
            { weightPercent: 0 },
          ],
        },
      }),
    );
    expect(canarySteps).toEqual([
      { size: { percent: 10 }, wait: { ms: 60_000 }, gate: 'errors_per_s < 1' },
      { size: { percent: 25 }, wait: 'promotion' },
      { size: { replicas: 3 }, wait: { ms: 0 } },
      { size: { percent: 0 }, wait: { ms: 0 } },
    ]);
  });

  it('gives steps with only weights the fewest replicas that have the share of the weight', () => {
    const weights = fc
      .uniqueArray(fc.integer({ min: 0, max: 100 }), { minLength: 1, maxLength: 10 })
      .map((values) => values.toSorted((a, b) => a - b));
    fc.assert(
      fc.property(weights, fc.integer({ min: 1, max: 10_000 }), (values, replicas) => {
        const steps = values.map((weightPercent) => ({ weightPercent }));
        const { canarySteps } = toRolloutSettings(aSpec({ replicas, rollout: { steps } }));
        for (const [index, weight] of values.entries()) {
          const fewest = Math.max(1, Math.ceil((weight * replicas) / 100));
          expect(getStepSize(canarySteps, index, replicas)).toBe(fewest);
        }
      }),
    );
  });
});

describe('listRollbackVersions', () => {
  it('contains the version to which any decision rolls back', () => {
    const arbVersion = fc.integer({ min: 0, max: 4 });
    const arbState = fc.record({
      phase: fc.constantFrom(
        ...(['inProgress', 'paused', 'failed', 'completed', 'rolledBack'] as const),
      ),
      version: fc.constantFrom(4, 5),
      ...{ fromVersion: arbVersion, activeVersion: arbVersion, retry: fc.boolean() },
      rollsBackFrom: fc.constantFrom(0, 3, 4),
      strategy: fc.constantFrom(...(['rollingUpdate', 'recreate', 'blueGreen'] as const)),
    });
    const settings = toRolloutSettings(aSpec({ rollout: { onFailure: OnFailure.ROLLBACK } }));
    const rollbacks = { toActive: 0, toReplaced: 0 };
    fc.assert(
      fc.property(arbState, arbVersion, (state, sameAs) => {
        const before = { ...NO_ROLLOUT, ...state };
        const { rollBackTo } = advanceRollout(before, {
          ...{ settings, version: 5, failures: 3, pausedByUser: false, changed: false },
          nowMs: 1_000,
          toCanonical: (version) => (version === 5 && sameAs !== 0 ? sameAs : version),
          observed: { ...resolveLimits({ desired: 1 }), replicas: [] },
        });
        if (rollBackTo === undefined) return;
        rollbacks[rollBackTo === before.activeVersion ? 'toActive' : 'toReplaced'] += 1;
        const control = create(ControlRecordSchema);
        writeRolloutState(control, before);
        expect(listRollbackVersions(control)).toContain(rollBackTo);
      }),
      { numRuns: 1_000 },
    );
    expect(Math.min(rollbacks.toActive, rollbacks.toReplaced)).toBeGreaterThan(0);
  });
});

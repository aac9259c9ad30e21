import { definedFields } from '@cloudless/base';
import {
  findImpossibleLimits,
  predictRollout,
  decideNextSteps,
  resolveLimits,
  validateVoluntaryStop,
  type RolloutObserved,
  type RolloutReplica,
} from './index.js';
import { aReplica, anObserved, someReplicas } from './testing/builders.js';
import { decideShape } from './testing/decision-shape.js';

/**
 * The sentences of CLD-REQ-023 that the planner implements, in their order and wording. Its callers
 * implement the others.
 */

const outdated = (count: number, changes: Partial<RolloutReplica> = {}) =>
  someReplicas(count, { version: 1, ...changes }, 1);
const current = (count: number, changes: Partial<RolloutReplica> = {}) =>
  someReplicas(count, { version: 2, ...changes }, 101);
const unready: Partial<RolloutReplica> = { available: false };
const notYetAvailable: Partial<RolloutReplica> = { available: false, notYetAvailable: true };
const leaving = { desired: 'stopped' as const };
const draining = { draining: true };
const blueGreenActive = (
  activeVersion: number,
  changes: { maySwitch?: boolean; keepVersion?: number } = {},
) => ({ strategy: { kind: 'blueGreen', activeVersion, maySwitch: true, ...changes } }) as const;
const recreate = { strategy: { kind: 'recreate' } } as const;

/**
 * The decision for a workload of 3 replicas that rolls from version 1 to 2; see {@link
 * decideShape}.
 */
interface Row {
  readonly name: string;
  readonly changes: Partial<RolloutObserved>;
  readonly expected: string;
}
const describeRule = (sentence: string, rows: readonly Row[]): void =>
  describe(sentence, () =>
    it.each(rows)('$name', ({ changes, expected }) => expect(decideShape(changes)).toBe(expected)),
  );

describe('"A rolling update keeps minAvailable replicas ready at every instant."', () => {
  it.each([
    { desired: 1 },
    { desired: 3, minAvailable: 3 },
    { desired: 6, maxUnavailable: 4 },
    { desired: 6, maxUnavailable: 4, minAvailable: 5, maxSurge: 3 },
    { desired: 5, maxSurge: 0 },
  ])('holds for limits %j', (spec) => {
    const limits = resolveLimits(spec);
    const prediction = predictRollout(anObserved({ ...limits, replicas: outdated(limits.want) }));
    expect(prediction.outcome).toEqual({ kind: 'completes' });
    expect(prediction.lowestAvailable).toBeGreaterThanOrEqual(limits.minAvailable);
  });
});

describeRule(
  '"Strategies: ROLLING_UPDATE, RECREATE, BLUE_GREEN"; "steps (canary: replicas or percent, then a wait or MANUAL)"',
  [
    {
      name: 'ROLLING_UPDATE creates one replica and stops one',
      changes: { replicas: outdated(3) },
      expected: '+2 -3',
    },
    {
      name: 'RECREATE stops all replicas',
      changes: { replicas: outdated(3), ...recreate },
      expected: '-3 -2 -1',
    },
    {
      name: 'BLUE_GREEN creates a whole set',
      changes: { replicas: outdated(3), ...blueGreenActive(1) },
      expected: '+2 +2 +2',
    },
    {
      name: 'a canary step waits when its replicas are available',
      changes: {
        replicas: [...outdated(2), ...current(1)],
        baseVersion: 1,
        strategy: { kind: 'rollingUpdate', updated: 1 },
      },
      expected: 'stepReached',
    },
  ],
);

describe('"Default of min_available (when 0): desired − max_unavailable if max_unavailable > 0, else max(1, desired − 1)"', () => {
  it.each([
    { spec: { desired: 5, minAvailable: 0, maxUnavailable: 2 }, minAvailable: 3 },
    { spec: { desired: 5, minAvailable: 0, maxUnavailable: 0 }, minAvailable: 4 },
    { spec: { desired: 5 }, minAvailable: 4 },
    { spec: { desired: 1 }, minAvailable: 1 },
  ])('resolves $spec to min_available $minAvailable', ({ spec, minAvailable }) =>
    expect(resolveLimits(spec)).toMatchObject({ minAvailable }),
  );
});

describe('"always clamped to 0..desired"', () => {
  it.each([
    { spec: { desired: 3, minAvailable: 9 }, minAvailable: 3 },
    { spec: { desired: 3, maxUnavailable: 9 }, minAvailable: 0 },
    { spec: { desired: 0 }, minAvailable: 0 },
  ])('resolves $spec to min_available $minAvailable', ({ spec, minAvailable }) =>
    expect(resolveLimits(spec)).toMatchObject({ minAvailable }),
  );
});

describe('"min_available wins over max_unavailable."', () => {
  it('keeps 4 of 5 replicas with max_unavailable 3', () => {
    const limits = resolveLimits({ desired: 5, maxUnavailable: 3, minAvailable: 4 });
    expect(limits.minAvailable).toBe(4);
    expect(decideShape({ ...limits, replicas: outdated(5) })).toBe('+2 -5');
  });
});

describeRule('"Stoppable now = freshly ready − min_available, never below 0."', [
  {
    name: 'stops 1 of 3 available replicas with min_available 2',
    changes: { minAvailable: 2, batch: 3, replicas: outdated(3) },
    expected: '+2 -3',
  },
  {
    name: 'stops none of 3 available replicas with min_available 3',
    changes: { minAvailable: 3, batch: 3, replicas: outdated(3) },
    expected: '+2',
  },
  {
    name: 'stops none of 2 available replicas with min_available 3',
    changes: { minAvailable: 3, batch: 3, replicas: outdated(2) },
    expected: '+2 +2',
  },
  {
    name: 'does not count a replica that is ready for less than min_ready_duration',
    changes: { minAvailable: 3, replicas: [...outdated(3), ...current(1, notYetAvailable)] },
    expected: 'notYetAvailable',
  },
]);

describe('"validateVoluntaryStop(ready, min) (ready = freshly ready after the stop) fails when ready < min, naming both numbers"', () => {
  it.each([
    { ready: 2, min: 2, expected: { allowed: true } },
    {
      ready: 1,
      min: 2,
      expected: {
        allowed: false,
        reason: 'the stop would leave 1 available, below min_available 2',
      },
    },
  ])(
    'validates a stop that leaves $ready ready replicas with min_available $min',
    ({ ready, min, expected }) => expect(validateVoluntaryStop(ready, min)).toMatchObject(expected),
  );
});

describeRule(
  '"a broken workload must be fixable […] and unready old replicas may always be stopped."',
  [
    {
      name: 'stops all old replicas when none is ready',
      changes: { minAvailable: 3, replicas: outdated(3, unready) },
      expected: '+2 -3 -2 -1',
    },
    {
      name: 'stops an unready replica below the minimum',
      changes: { minAvailable: 3, replicas: [...outdated(2), aReplica(9, unready)] },
      expected: '+2 -9',
    },
  ],
);

describeRule(
  '"Batch = min(max_unavailable or 1, freshly ready − min_available), counted anew at each decision."',
  [
    {
      name: 'stops one replica with max_unavailable 0',
      changes: { ...resolveLimits({ desired: 4 }), replicas: outdated(4) },
      expected: '+2 -4',
    },
    {
      name: 'stops two replicas with max_unavailable 2',
      changes: { ...resolveLimits({ desired: 4, maxUnavailable: 2 }), replicas: outdated(4) },
      expected: '+2 -4 -3',
    },
    {
      name: 'counts an old replica that failed',
      changes: { ...resolveLimits({ desired: 4, maxUnavailable: 2 }), replicas: outdated(3) },
      expected: '+2 +2 -3',
    },
  ],
);

describe('"When that is 0, surge first: max_surge is optional, unset means 1."', () => {
  it.each([
    { maxSurge: undefined, created: 1, expected: '+2' },
    { maxSurge: 2, created: 2, expected: '+2 +2' },
  ])(
    'creates $created of 3 new replicas first with max_surge $maxSurge',
    ({ maxSurge, expected }) => {
      const limits = resolveLimits({
        desired: 3,
        minAvailable: 3,
        ...definedFields({ maxSurge }),
      });
      expect(decideShape({ ...limits, replicas: outdated(3) })).toBe(expected);
    },
  );
});

describe('"an explicit 0 that leaves no possible move […] is refused at create and update"', () => {
  it.each(
    [
      {
        spec: { desired: 3, maxSurge: 0, minAvailable: 3 },
        text: 'max_surge 0 and min_available 3 of 3 leave no possible move',
      },
      { spec: { desired: 3, maxSurge: 0, minAvailable: 2 }, text: undefined },
      { spec: { desired: 0, maxSurge: 0, minAvailable: 3 }, text: undefined },
    ].map((row) => ({ ...row, result: row.text === undefined ? 'undefined' : 'a reason' })),
  )('returns $result for $spec', ({ spec, text }) => expect(findImpossibleLimits(spec)).toBe(text));
});

describe('"if it arises later by scaling, the rollout pauses with that text"', () => {
  it('pauses when 4 replicas are scaled to 3 with min_available 3', () => {
    const limits = resolveLimits({ desired: 3, maxSurge: 0, minAvailable: 3 });
    expect(decideNextSteps(anObserved({ ...limits, replicas: outdated(3) }))).toEqual({
      kind: 'waiting',
      reason: {
        kind: 'impossibleLimits',
        text: 'max_surge 0 and min_available 3 of 3 leave no possible move',
      },
      wakeOn: { kind: 'spec' },
    });
  });
});

describeRule('"It never goes below the minimum to make progress."', [
  {
    name: 'waits while a new replica is not ready',
    changes: { minAvailable: 3, replicas: [...outdated(3), ...current(1, unready)] },
    expected: 'notReady',
  },
  {
    name: 'waits for the replacement of a lost replica',
    changes: { replicas: [...outdated(2), ...current(1, unready), aReplica(9, { lost: true })] },
    expected: '+2',
  },
]);

describeRule('"Ceiling of live replicas: desired + max_surge (rolling)"', [
  {
    name: 'allows 3 + 1 live replicas',
    changes: { minAvailable: 3, replicas: outdated(3) },
    expected: '+2',
  },
  {
    name: 'allows 3 + 2 live replicas with max_surge 2',
    changes: { minAvailable: 3, maxSurge: 2, replicas: outdated(3) },
    expected: '+2 +2',
  },
  {
    name: 'counts stopping replicas as live',
    changes: { minAvailable: 3, replicas: [...outdated(3), aReplica(9, leaving)] },
    expected: 'stopping',
  },
]);

describeRule('"+ 1 per replica being drained"', [
  {
    name: 'adds a replacement without surge',
    changes: {
      version: 1,
      minAvailable: 3,
      maxSurge: 0,
      replicas: [...outdated(1), ...someReplicas(2, draining, 8)],
    },
    expected: '+1 +1',
  },
  {
    name: 'adds a replacement beside the surge',
    changes: { minAvailable: 3, replicas: [...outdated(2), aReplica(9, draining)] },
    expected: '+2 +2',
  },
]);

describeRule('"2 × desired (blue/green)"', [
  {
    name: 'creates a second set',
    changes: { replicas: outdated(3), ...blueGreenActive(1) },
    expected: '+2 +2 +2',
  },
  {
    name: 'does not create a third set',
    changes: { version: 3, replicas: [...outdated(3), ...current(3)], ...blueGreenActive(1) },
    expected: '-103 -102 -101',
  },
  {
    name: 'waits until a third set is gone',
    changes: {
      version: 3,
      replicas: [...outdated(3), ...current(3, leaving)],
      ...blueGreenActive(1),
    },
    expected: 'stopping',
  },
]);

describeRule('"max(old, desired) while scaling down"', [
  {
    name: 'adds nothing to 6 replicas on the way to 3',
    changes: { minAvailable: 3, replicas: outdated(6) },
    expected: '-6 -5 -4',
  },
]);

describeRule('"replicas on lost nodes do not count."', [
  {
    name: 'ignores lost replicas for the maximum',
    changes: { minAvailable: 3, replicas: [...outdated(3), aReplica(9, { lost: true })] },
    expected: '+2',
  },
  {
    name: 'ignores lost replicas for the wanted count',
    changes: { version: 1, replicas: [...outdated(3), aReplica(9, { lost: true })] },
    expected: 'converged',
  },
]);

describeRule('"Steps wait for readiness held for min_ready_duration […] not for clocks."', [
  {
    name: 'waits for a replica that is not ready',
    changes: { minAvailable: 3, replicas: [...outdated(3), ...current(1, unready)] },
    expected: 'notReady',
  },
  {
    name: 'waits for a replica that is ready for less than min_ready_duration',
    changes: { minAvailable: 3, replicas: [...outdated(3), ...current(1, notYetAvailable)] },
    expected: 'notYetAvailable',
  },
  {
    name: 'continues when the replica is available',
    changes: { minAvailable: 3, replicas: [...outdated(3), ...current(1)] },
    expected: '-3',
  },
]);

describeRule('"Extra old replicas are deleted, not restarted."', [
  {
    name: 'stops the surplus of a scale-down during an update',
    changes: { minAvailable: 2, replicas: outdated(5) },
    expected: '-5 -4',
  },
  {
    name: 'stops surplus replicas that are not ready first',
    changes: { replicas: [...outdated(2), ...current(3), aReplica(9, unready)] },
    expected: '-9 -2 -1',
  },
]);

describe('"Scale and update combined end at the desired count exactly."', () => {
  it.each([
    { from: 3, to: 5 },
    { from: 5, to: 3 },
    { from: 10, to: 1 },
    { from: 2, to: 0 },
  ])('holds for an update that scales from $from to $to replicas', ({ from, to }) => {
    for (const strategy of [undefined, recreate.strategy, blueGreenActive(1).strategy]) {
      const { steps, outcome } = predictRollout(
        anObserved({
          ...resolveLimits({ desired: to }),
          replicas: outdated(from),
          ...definedFields({ strategy }),
        }),
      );
      expect(outcome).toEqual({ kind: 'completes' });
      const created = steps.filter(({ step }) => step.kind === 'createReplica').length;
      const stopped = steps.filter(({ step }) => step.kind === 'stopReplica').length;
      expect(from + created - stopped).toBe(to);
      const createdNew = steps.filter(
        ({ step }) => step.kind === 'createReplica' && step.version === 2,
      );
      expect(createdNew).toHaveLength(to);
    }
  });
});

describeRule('"RECREATE stops all, then starts all; its own stops count min_available as 0"', [
  {
    name: 'stops all replicas of the old version',
    changes: { minAvailable: 3, replicas: outdated(3), ...recreate },
    expected: '-3 -2 -1',
  },
  {
    name: 'waits for the last stop',
    changes: { replicas: [aReplica(1, leaving)], ...recreate },
    expected: 'stopping',
  },
  {
    name: 'creates all new replicas',
    changes: { replicas: [], ...recreate },
    expected: '+2 +2 +2',
  },
  {
    name: 'replaces a draining replica first',
    changes: {
      minAvailable: 3,
      replicas: [...current(2), aReplica(9, { version: 2, ...draining })],
      ...recreate,
    },
    expected: '+2',
  },
]);

describeRule(
  '"BLUE_GREEN places the full new set in one all-or-nothing decision, waits until ready, switches traffic in one step, keeps blue for pause_duration […], then removes it."',
  [
    {
      name: 'creates the whole new set in one decision',
      changes: { replicas: outdated(3), ...blueGreenActive(1) },
      expected: '+2 +2 +2',
    },
    {
      name: 'creates nothing when there is room for a part only',
      changes: {
        replicas: [...outdated(3), aReplica(9, { version: 3, ...leaving })],
        ...blueGreenActive(1),
      },
      expected: 'stopping',
    },
    {
      name: 'waits until the new set is ready',
      changes: {
        replicas: [...outdated(3), ...current(2), aReplica(9, { version: 2, ...unready })],
        ...blueGreenActive(1),
      },
      expected: 'notReady',
    },
    {
      name: 'switches in one step',
      changes: { replicas: [...outdated(3), ...current(3)], ...blueGreenActive(1) },
      expected: '=2',
    },
    {
      name: 'waits for a promotion with MANUAL',
      changes: {
        replicas: [...outdated(3), ...current(3)],
        ...blueGreenActive(1, { maySwitch: false }),
      },
      expected: 'promotion',
    },
    {
      name: 'keeps the previous set',
      changes: {
        replicas: [...outdated(3), ...current(3)],
        ...blueGreenActive(2, { keepVersion: 1 }),
      },
      expected: 'kept',
    },
    {
      name: 'stops the previous set afterwards',
      changes: { replicas: [...outdated(3), ...current(3)], ...blueGreenActive(2) },
      expected: '-3 -2 -1',
    },
  ],
);

describeRule('"can be paused, resumed, undone; a new update supersedes it"', [
  {
    name: 'rolls nothing while paused',
    changes: { paused: true, baseVersion: 1, replicas: [...outdated(2), ...current(1)] },
    expected: 'paused',
  },
  {
    name: 'replaces a lost replica with the previous version while paused',
    changes: { paused: true, baseVersion: 1, replicas: outdated(2) },
    expected: '+1',
  },
  {
    name: 'continues after the resume',
    changes: { replicas: [...outdated(2), ...current(1)] },
    expected: '+2 -2',
  },
  {
    name: 'returns to the old version after an undo',
    changes: { version: 1, replicas: [...outdated(2), ...current(1)] },
    expected: '+1 -101',
  },
  {
    name: 'rolls to a newer version',
    changes: { version: 3, minAvailable: 3, replicas: [...outdated(3), ...current(1, unready)] },
    expected: '-101',
  },
  {
    name: 'replaces the new set by that of a newer version',
    changes: { version: 3, replicas: [...outdated(3), ...current(3)], ...blueGreenActive(1) },
    expected: '-103 -102 -101',
  },
]);

describeRule(
  '"Both versions count and serve in a rolling update; under BLUE_GREEN only the active version counts and serves."',
  [
    {
      name: 'counts a new replica of a rolling update',
      changes: {
        minAvailable: 3,
        replicas: [...outdated(2), aReplica(9, draining), ...current(1)],
      },
      expected: '+2 -9',
    },
    {
      name: 'does not count a new replica under blue/green',
      changes: {
        minAvailable: 3,
        replicas: [
          ...outdated(2),
          aReplica(9, draining),
          ...current(3, unready).slice(1),
          ...current(1),
        ],
        ...blueGreenActive(1),
      },
      expected: '+1',
    },
  ],
);

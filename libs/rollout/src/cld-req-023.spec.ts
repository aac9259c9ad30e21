import {
  impossibleLimits,
  layOut,
  nextSteps,
  resolveLimits,
  validateVoluntaryStop,
  type RolloutObserved,
} from './index.js';
import { aReplica, anObserved, someReplicas } from './testing/builders.js';
import { shapeFor } from './testing/shape.js';

/**
 * The sentences of CLD-REQ-023 that the planner keeps, in their order and words; the others are
 * kept by its callers.
 */

const old = (count: number, changes = {}) => someReplicas(count, { version: 1, ...changes }, 1);
const current = (count: number, changes = {}) =>
  someReplicas(count, { version: 2, ...changes }, 101);
const unready = { ready: false };
const unproven = { ready: false, unproven: true };
const leaving = { desired: 'stopped' as const };
const draining = { draining: true };
const active = (activeVersion: number, more: { maySwitch?: boolean; keepVersion?: number } = {}) =>
  ({ strategy: { kind: 'blueGreen', activeVersion, maySwitch: true, ...more } }) as const;
const recreate = { strategy: { kind: 'recreate' } } as const;

/** What is decided about a workload of 3 that rolls from version 1 to 2; see {@link shapeFor}. */
interface Row {
  readonly name: string;
  readonly changes: Partial<RolloutObserved>;
  readonly gives: string;
}
const decides = (sentence: string, rows: readonly Row[]): void =>
  describe(sentence, () =>
    it.each(rows)('$name', ({ changes, gives }) => expect(shapeFor(changes)).toBe(gives)),
  );

describe('"A rolling update keeps minAvailable replicas ready at every instant."', () => {
  it.each([
    { desired: 1 },
    { desired: 3, minAvailable: 3 },
    { desired: 6, maxUnavailable: 4 },
    { desired: 6, maxUnavailable: 4, minAvailable: 5, maxSurge: 3 },
    { desired: 5, maxSurge: 0 },
  ])('%j', (spec) => {
    const limits = resolveLimits(spec);
    const laidOut = layOut(anObserved({ ...limits, replicas: old(limits.want) }));
    expect(laidOut.verdict).toEqual({ kind: 'completes' });
    expect(laidOut.lowestReady).toBeGreaterThanOrEqual(limits.minAvailable);
  });
});

decides(
  '"Strategies: ROLLING_UPDATE, RECREATE, BLUE_GREEN"; "steps (canary: replicas or percent, then a wait or MANUAL)"',
  [
    { name: 'ROLLING_UPDATE', changes: { replicas: old(3) }, gives: '+2 -3' },
    { name: 'RECREATE', changes: { replicas: old(3), ...recreate }, gives: '-3 -2 -1' },
    { name: 'BLUE_GREEN', changes: { replicas: old(3), ...active(1) }, gives: '+2 +2 +2' },
    {
      name: 'a canary step waits when it is reached',
      changes: {
        replicas: [...old(2), ...current(1)],
        baseVersion: 1,
        strategy: { kind: 'rollingUpdate', updated: 1 },
      },
      gives: 'stepReached',
    },
  ],
);

describe('"Default of min_available (when 0): desired − max_unavailable if max_unavailable > 0, else max(1, desired − 1)"', () => {
  it.each([
    { spec: { desired: 5, minAvailable: 0, maxUnavailable: 2 }, minAvailable: 3 },
    { spec: { desired: 5, minAvailable: 0, maxUnavailable: 0 }, minAvailable: 4 },
    { spec: { desired: 5 }, minAvailable: 4 },
    { spec: { desired: 1 }, minAvailable: 1 },
  ])('$spec: $minAvailable', ({ spec, minAvailable }) =>
    expect(resolveLimits(spec)).toMatchObject({ minAvailable }),
  );
});

describe('"always clamped to 0..desired"', () => {
  it.each([
    { spec: { desired: 3, minAvailable: 9 }, minAvailable: 3 },
    { spec: { desired: 3, maxUnavailable: 9 }, minAvailable: 0 },
    { spec: { desired: 0 }, minAvailable: 0 },
  ])('$spec: $minAvailable', ({ spec, minAvailable }) =>
    expect(resolveLimits(spec)).toMatchObject({ minAvailable }),
  );
});

describe('"min_available wins over max_unavailable."', () => {
  it('5 wanted, at least 4, and 3 may be missing', () => {
    const limits = resolveLimits({ desired: 5, maxUnavailable: 3, minAvailable: 4 });
    expect(limits.minAvailable).toBe(4);
    expect(shapeFor({ ...limits, replicas: old(5) })).toBe('+2 -5');
  });
});

decides('"Stoppable now = freshly ready − min_available, never below 0."', [
  { name: '3 − 2', changes: { minAvailable: 2, batch: 3, replicas: old(3) }, gives: '+2 -3' },
  { name: '3 − 3', changes: { minAvailable: 3, batch: 3, replicas: old(3) }, gives: '+2' },
  { name: '2 − 3', changes: { minAvailable: 3, batch: 3, replicas: old(2) }, gives: '+2 +2' },
  {
    name: 'one that has been ready for a moment is not freshly ready',
    changes: { minAvailable: 3, replicas: [...old(3), ...current(1, unproven)] },
    gives: 'unproven',
  },
]);

describe('"validateVoluntaryStop(ready, min) (ready = freshly ready after the stop) fails when ready < min, naming both numbers"', () => {
  it.each([
    { ready: 2, min: 2, gives: { allowed: true } },
    {
      ready: 1,
      min: 2,
      gives: { allowed: false, reason: 'the stop would leave 1 ready, below min_available 2' },
    },
  ])('$ready, $min', ({ ready, min, gives }) =>
    expect(validateVoluntaryStop(ready, min)).toMatchObject(gives),
  );
});

decides('"a broken workload must be fixable […] and unready old replicas may always be stopped."', [
  {
    name: 'none is ready',
    changes: { minAvailable: 3, replicas: old(3, unready) },
    gives: '+2 -3 -2 -1',
  },
  {
    name: 'below the minimum',
    changes: { minAvailable: 3, replicas: [...old(2), aReplica(9, unready)] },
    gives: '+2 -9',
  },
]);

decides(
  '"Batch = min(max_unavailable or 1, freshly ready − min_available), counted anew at each decision."',
  [
    {
      name: 'max_unavailable 0 is 1',
      changes: { ...resolveLimits({ desired: 4 }), replicas: old(4) },
      gives: '+2 -4',
    },
    {
      name: 'max_unavailable 2',
      changes: { ...resolveLimits({ desired: 4, maxUnavailable: 2 }), replicas: old(4) },
      gives: '+2 -4 -3',
    },
    {
      name: 'one of the old failed meanwhile',
      changes: { ...resolveLimits({ desired: 4, maxUnavailable: 2 }), replicas: old(3) },
      gives: '+2 +2 -3',
    },
  ],
);

describe('"When that is 0, surge first: max_surge is optional, unset means 1."', () => {
  it.each([
    { maxSurge: undefined, gives: '+2' },
    { maxSurge: 2, gives: '+2 +2' },
  ])('max_surge $maxSurge', ({ maxSurge, gives }) => {
    const limits = resolveLimits({
      desired: 3,
      minAvailable: 3,
      ...(maxSurge === undefined ? {} : { maxSurge }),
    });
    expect(shapeFor({ ...limits, replicas: old(3) })).toBe(gives);
  });
});

describe('"an explicit 0 that leaves no possible move […] is refused at create and update"', () => {
  it.each([
    {
      spec: { desired: 3, maxSurge: 0, minAvailable: 3 },
      text: 'max_surge 0 and min_available 3 of 3 leave no possible move',
    },
    { spec: { desired: 3, maxSurge: 0, minAvailable: 2 }, text: undefined },
    { spec: { desired: 0, maxSurge: 0, minAvailable: 3 }, text: undefined },
  ])('$spec: $text', ({ spec, text }) => expect(impossibleLimits(spec)).toBe(text));
});

describe('"if it arises later by scaling, the rollout pauses with that text"', () => {
  it('4 scaled to 3, of which 3 must be there', () => {
    const limits = resolveLimits({ desired: 3, maxSurge: 0, minAvailable: 3 });
    expect(nextSteps(anObserved({ ...limits, replicas: old(3) }))).toEqual({
      kind: 'waiting',
      reason: {
        kind: 'impossibleLimits',
        text: 'max_surge 0 and min_available 3 of 3 leave no possible move',
      },
      wakeOn: { kind: 'spec' },
    });
  });
});

decides('"It never goes below the minimum to make progress."', [
  {
    name: 'a new one is never ready',
    changes: { minAvailable: 3, replicas: [...old(3), ...current(1, unready)] },
    gives: 'notReady',
  },
  {
    name: 'an old one was lost',
    changes: { replicas: [...old(2), ...current(1, unready), aReplica(9, { lost: true })] },
    gives: '+2',
  },
]);

decides('"Ceiling of live replicas: desired + max_surge (rolling)"', [
  { name: '3 + 1', changes: { minAvailable: 3, replicas: old(3) }, gives: '+2' },
  { name: '3 + 2', changes: { minAvailable: 3, maxSurge: 2, replicas: old(3) }, gives: '+2 +2' },
  {
    name: 'those still stopping are live',
    changes: { minAvailable: 3, replicas: [...old(3), aReplica(9, leaving)] },
    gives: 'stopping',
  },
]);

decides('"+ 1 per replica being drained"', [
  {
    name: 'without surge',
    changes: {
      version: 1,
      minAvailable: 3,
      maxSurge: 0,
      replicas: [...old(1), ...someReplicas(2, draining, 8)],
    },
    gives: '+1 +1',
  },
  {
    name: 'beside surge',
    changes: { minAvailable: 3, replicas: [...old(2), aReplica(9, draining)] },
    gives: '+2 +2',
  },
]);

decides('"2 × desired (blue/green)"', [
  { name: 'two sets', changes: { replicas: old(3), ...active(1) }, gives: '+2 +2 +2' },
  {
    name: 'but not three',
    changes: { version: 3, replicas: [...old(3), ...current(3)], ...active(1) },
    gives: '-103 -102 -101',
  },
  {
    name: 'not before the third has gone',
    changes: { version: 3, replicas: [...old(3), ...current(3, leaving)], ...active(1) },
    gives: 'stopping',
  },
]);

decides('"max(old, desired) while scaling down"', [
  {
    name: 'nothing is added to 6 on the way to 3',
    changes: { minAvailable: 3, replicas: old(6) },
    gives: '-6 -5 -4',
  },
]);

decides('"replicas on lost nodes do not count."', [
  {
    name: 'for the ceiling',
    changes: { minAvailable: 3, replicas: [...old(3), aReplica(9, { lost: true })] },
    gives: '+2',
  },
  {
    name: 'for the wanted count',
    changes: { version: 1, replicas: [...old(3), aReplica(9, { lost: true })] },
    gives: 'converged',
  },
]);

decides('"Steps wait for readiness held for min_ready_duration […] not for clocks."', [
  {
    name: 'not ready',
    changes: { minAvailable: 3, replicas: [...old(3), ...current(1, unready)] },
    gives: 'notReady',
  },
  {
    name: 'not for long enough',
    changes: { minAvailable: 3, replicas: [...old(3), ...current(1, unproven)] },
    gives: 'unproven',
  },
  {
    name: 'ready for long enough',
    changes: { minAvailable: 3, replicas: [...old(3), ...current(1)] },
    gives: '-3',
  },
]);

decides('"Extra old replicas are deleted, not restarted."', [
  {
    name: 'scaled from 5 to 3 in an update',
    changes: { minAvailable: 2, replicas: old(5) },
    gives: '-5 -4',
  },
  {
    name: 'extra ones that are not ready',
    changes: { replicas: [...old(2), ...current(3), aReplica(9, unready)] },
    gives: '-9 -2 -1',
  },
]);

describe('"Scale and update combined end at the desired count exactly."', () => {
  it.each([
    { from: 3, to: 5 },
    { from: 5, to: 3 },
    { from: 10, to: 1 },
    { from: 2, to: 0 },
  ])('from $from to $to', ({ from, to }) => {
    for (const strategy of [undefined, recreate.strategy, active(1).strategy]) {
      const { steps, verdict } = layOut(
        anObserved({
          ...resolveLimits({ desired: to }),
          replicas: old(from),
          ...(strategy === undefined ? {} : { strategy }),
        }),
      );
      expect(verdict).toEqual({ kind: 'completes' });
      const made = steps.filter(({ step }) => step.kind === 'createReplica').length;
      const stopped = steps.filter(({ step }) => step.kind === 'stopReplica').length;
      expect(from + made - stopped).toBe(to);
      const ofNew = steps.filter(({ step }) => step.kind === 'createReplica' && step.version === 2);
      expect(ofNew).toHaveLength(to);
    }
  });
});

decides('"RECREATE stops all, then starts all; its own stops count min_available as 0"', [
  {
    name: 'stops all',
    changes: { minAvailable: 3, replicas: old(3), ...recreate },
    gives: '-3 -2 -1',
  },
  {
    name: 'waits for the last',
    changes: { replicas: [aReplica(1, leaving)], ...recreate },
    gives: 'stopping',
  },
  { name: 'starts all', changes: { replicas: [], ...recreate }, gives: '+2 +2 +2' },
  {
    name: 'a drain is not its own stop',
    changes: {
      minAvailable: 3,
      replicas: [...current(2), aReplica(9, { version: 2, ...draining })],
      ...recreate,
    },
    gives: '+2',
  },
]);

decides(
  '"BLUE_GREEN places the full new set in one all-or-nothing decision, waits until ready, switches traffic in one step, keeps blue for pause_duration […], then removes it."',
  [
    {
      name: 'the full new set in one decision',
      changes: { replicas: old(3), ...active(1) },
      gives: '+2 +2 +2',
    },
    {
      name: 'all or nothing',
      changes: { replicas: [...old(3), aReplica(9, { version: 3, ...leaving })], ...active(1) },
      gives: 'stopping',
    },
    {
      name: 'waits until ready',
      changes: {
        replicas: [...old(3), ...current(2), aReplica(9, { version: 2, ...unready })],
        ...active(1),
      },
      gives: 'notReady',
    },
    {
      name: 'switches in one step',
      changes: { replicas: [...old(3), ...current(3)], ...active(1) },
      gives: '=2',
    },
    {
      name: 'promotion MANUAL',
      changes: { replicas: [...old(3), ...current(3)], ...active(1, { maySwitch: false }) },
      gives: 'promotion',
    },
    {
      name: 'keeps blue',
      changes: { replicas: [...old(3), ...current(3)], ...active(2, { keepVersion: 1 }) },
      gives: 'kept',
    },
    {
      name: 'then removes it',
      changes: { replicas: [...old(3), ...current(3)], ...active(2) },
      gives: '-3 -2 -1',
    },
  ],
);

decides('"can be paused, resumed, undone; a new update supersedes it"', [
  {
    name: 'paused',
    changes: { paused: true, baseVersion: 1, replicas: [...old(2), ...current(1)] },
    gives: 'paused',
  },
  {
    name: 'paused, a loss is replaced by the version before',
    changes: { paused: true, baseVersion: 1, replicas: old(2) },
    gives: '+1',
  },
  { name: 'resumed', changes: { replicas: [...old(2), ...current(1)] }, gives: '+2 -2' },
  {
    name: 'undone',
    changes: { version: 1, replicas: [...old(2), ...current(1)] },
    gives: '+1 -101',
  },
  {
    name: 'superseded',
    changes: { version: 3, minAvailable: 3, replicas: [...old(3), ...current(1, unready)] },
    gives: '-101',
  },
  {
    name: 'superseded before the switch',
    changes: { version: 3, replicas: [...old(3), ...current(3)], ...active(1) },
    gives: '-103 -102 -101',
  },
]);

decides(
  '"Both versions count and serve in a rolling update; under BLUE_GREEN only the active version counts and serves."',
  [
    {
      name: 'rolling update: the new one lets an old one go',
      changes: { minAvailable: 3, replicas: [...old(2), aReplica(9, draining), ...current(1)] },
      gives: '+2 -9',
    },
    {
      name: 'blue/green: it does not',
      changes: {
        minAvailable: 3,
        replicas: [
          ...old(2),
          aReplica(9, draining),
          ...current(3, unready).slice(1),
          ...current(1),
        ],
        ...active(1),
      },
      gives: '+1',
    },
  ],
);

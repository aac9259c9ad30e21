import {
  decideNextSteps,
  resolveLimits,
  type RolloutDecision,
  type RolloutObserved,
  type RolloutReplica,
} from '../index.js';
import { aReplica, anObserved, someReplicas } from '../testing/builders.js';

const outdated = (count: number, changes: Partial<RolloutReplica> = {}) =>
  someReplicas(count, { version: 1, ...changes }, 1);
const current = (count: number, changes: Partial<RolloutReplica> = {}) =>
  someReplicas(count, { version: 2, ...changes }, 101);

/** The number of creations and the ids of the stops; for a wait its kind, or `converged`. */
function toDetails(decision: RolloutDecision) {
  if (decision.kind !== 'steps')
    return decision.kind === 'waiting' ? decision.reason.kind : decision.kind;
  const stops = decision.steps.flatMap((step) =>
    step.kind === 'stopReplica' ? [step.replicaId.slice(2)] : [],
  );
  return { creates: decision.steps.length - stops.length, stops };
}
const decideDetails = (changes: Partial<RolloutObserved>) =>
  toDetails(decideNextSteps(anObserved(changes)));

describe('decideNextSteps at creation and scaling', () => {
  it.each([
    {
      name: 'creates all replicas of a new workload at once',
      changes: { want: 5 },
      expected: { creates: 5, stops: [] },
    },
    {
      name: 'does not create surplus replicas for max_surge',
      changes: { want: 5, maxSurge: 3 },
      expected: { creates: 5, stops: [] },
    },
    {
      name: 'converges when no replica is wanted and none exists',
      changes: { want: 0 },
      expected: 'converged',
    },
    {
      name: 'converges when all wanted replicas are available',
      changes: { replicas: current(3) },
      expected: 'converged',
    },
    {
      name: 'creates the missing replicas at a scale-up',
      changes: { want: 5, replicas: current(3) },
      expected: { creates: 2, stops: [] },
    },
    {
      name: 'stops the newest replicas at a scale-down',
      changes: { want: 3, replicas: current(5) },
      expected: { creates: 0, stops: ['105', '104'] },
    },
    {
      name: 'stops unready replicas first at a scale-down',
      changes: {
        want: 2,
        replicas: [...current(3), aReplica(99, { version: 2, available: false })],
      },
      expected: { creates: 0, stops: ['99', '103'] },
    },
    {
      name: 'stops draining replicas before the newest at a scale-down',
      changes: { want: 2, replicas: [...current(2), aReplica(99, { version: 2, draining: true })] },
      expected: { creates: 0, stops: ['99'] },
    },
    {
      name: 'stops all replicas at once when scaled to 0',
      changes: { want: 0, replicas: current(3) },
      expected: { creates: 0, stops: ['103', '102', '101'] },
    },
    {
      name: 'stops unready replicas before those not yet available at a scale-down',
      changes: {
        want: 2,
        replicas: [
          ...current(1),
          aReplica(103, { version: 2, available: false, notYetAvailable: true }),
          aReplica(99, { version: 2, available: false }),
        ],
      },
      expected: { creates: 0, stops: ['99'] },
    },
    {
      name: 'does not wait for unconfirmed stops when scaled to 0',
      changes: {
        want: 0,
        replicas: [...outdated(2), aReplica(9, { desired: 'stopped' as const })],
      },
      expected: { creates: 0, stops: ['2', '1'] },
    },
    {
      name: 'stops both versions when scaled to 0 during an update',
      changes: { want: 0, replicas: [...outdated(2), ...current(1, { available: false })] },
      expected: { creates: 0, stops: ['101', '2', '1'] },
    },
    {
      name: 'waits until stops are confirmed',
      changes: {
        want: 2,
        replicas: [...current(2), aReplica(9, { version: 2, desired: 'stopped' })],
      },
      expected: 'stopping',
    },
    {
      name: 'waits until new replicas are ready',
      changes: { replicas: current(3, { available: false }) },
      expected: 'notReady',
    },
  ])('$name', ({ changes, expected }) => expect(decideDetails(changes)).toEqual(expected));
});

describe('decideNextSteps during an update', () => {
  it.each([
    {
      name: 'creates one replica and stops one when minAvailable allows it',
      changes: { replicas: outdated(3) },
      expected: { creates: 1, stops: ['3'] },
    },
    {
      name: 'creates one replica and stops none when minAvailable allows no stop',
      changes: { minAvailable: 3, replicas: outdated(3) },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'stops the newest old replica when the new one is available',
      changes: { minAvailable: 3, replicas: [...outdated(3), ...current(1)] },
      expected: { creates: 0, stops: ['3'] },
    },
    {
      name: 'stops nothing while the new replica is not ready',
      changes: { minAvailable: 3, replicas: [...outdated(3), ...current(1, { available: false })] },
      expected: 'notReady',
    },
    {
      name: 'stops up to max_unavailable replicas at once',
      changes: { want: 6, minAvailable: 3, batch: 3, replicas: outdated(6) },
      expected: { creates: 1, stops: ['6', '5', '4'] },
    },
    {
      name: 'stops no more than min_available allows',
      changes: { want: 6, minAvailable: 4, batch: 3, replicas: outdated(6) },
      expected: { creates: 1, stops: ['6', '5'] },
    },
    {
      name: 'starts no batch before the previous batch was replaced',
      changes: {
        want: 6,
        minAvailable: 1,
        batch: 2,
        maxSurge: 0,
        replicas: [...outdated(4), ...current(2, { available: false })],
      },
      expected: 'notReady',
    },
    {
      name: 'counts unconfirmed stops as part of the batch',
      changes: {
        want: 3,
        maxSurge: 3,
        replicas: [...outdated(2), ...current(3), aReplica(9, { desired: 'stopped' })],
      },
      expected: 'stopping',
    },
    {
      name: 'stops unready old replicas in any case',
      changes: { minAvailable: 3, replicas: outdated(3, { available: false }) },
      expected: { creates: 1, stops: ['3', '2', '1'] },
    },
    {
      name: 'stops the unready replicas of an old version first',
      changes: {
        minAvailable: 3,
        maxSurge: 0,
        replicas: [...outdated(2, { available: false }), aReplica(9)],
      },
      expected: { creates: 0, stops: ['2', '1'] },
    },
    {
      name: 'creates replicas and stops no available one below minAvailable',
      changes: { minAvailable: 3, replicas: outdated(2) },
      expected: { creates: 2, stops: [] },
    },
    {
      name: 'waits at impossible limits',
      changes: { minAvailable: 3, maxSurge: 0, replicas: outdated(3) },
      expected: 'impossibleLimits',
    },
    {
      name: 'stops an old replica before it creates a new one with max_surge 0',
      changes: { maxSurge: 0, replicas: outdated(3) },
      expected: { creates: 0, stops: ['3'] },
    },
    {
      name: 'returns to an older version during an update',
      changes: { version: 1, replicas: [...outdated(2), ...current(2)] },
      expected: { creates: 0, stops: ['102'] },
    },
    {
      name: 'replaces replicas of two old versions',
      changes: {
        version: 3,
        minAvailable: 3,
        replicas: [...outdated(2), ...current(2, { available: false })],
      },
      expected: { creates: 0, stops: ['102', '101'] },
    },
    {
      name: 'combines a scale-up with an update',
      changes: { want: 5, replicas: outdated(3) },
      expected: { creates: 3, stops: [] },
    },
    {
      name: 'stops the surplus at once when an update comes with a scale-down',
      changes: { want: 3, replicas: outdated(10) },
      expected: { creates: 0, stops: ['10', '9', '8', '7', '6', '5', '4'] },
    },
  ])('$name', ({ changes, expected }) => expect(decideDetails(changes)).toEqual(expected));
});

describe('decideNextSteps with lost, draining and not yet available replicas', () => {
  it.each([
    {
      name: 'replaces a lost replica and keeps the others',
      changes: {
        replicas: [...current(2), aReplica(9, { version: 2, available: false, lost: true })],
      },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'creates the surge although a lost replica exists',
      changes: { minAvailable: 3, replicas: [...outdated(3), aReplica(9, { lost: true })] },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'converges although a lost replica exists',
      changes: { replicas: [...current(3), aReplica(9, { lost: true })] },
      expected: 'converged',
    },
    {
      name: 'stops no old replica after a loss until enough replicas are available again',
      changes: {
        want: 4,
        minAvailable: 3,
        replicas: [...outdated(2), ...current(1), aReplica(9, { lost: true })],
      },
      expected: { creates: 2, stops: [] },
    },
    {
      name: 'creates the replacement of a draining replica before its stop',
      changes: { want: 1, minAvailable: 1, maxSurge: 0, replicas: current(1, { draining: true }) },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'stops a draining replica when its replacement is available',
      changes: {
        want: 1,
        minAvailable: 1,
        maxSurge: 0,
        replicas: [...current(1, { draining: true }), aReplica(9, { version: 2 })],
      },
      expected: { creates: 0, stops: ['101'] },
    },
    {
      name: 'stops a draining replica before its replacement is created with max_surge 0',
      changes: { want: 1, minAvailable: 0, maxSurge: 0, replicas: current(1, { draining: true }) },
      expected: { creates: 0, stops: ['101'] },
    },
    {
      name: 'creates no replacement before the stop of a draining replica is confirmed with max_surge 0',
      changes: {
        want: 1,
        minAvailable: 0,
        maxSurge: 0,
        replicas: current(1, { draining: true, desired: 'stopped' }),
      },
      expected: 'stopping',
    },
    {
      name: 'creates the replacement of a draining replica after its stop with max_surge 0',
      changes: { want: 1, minAvailable: 0, maxSurge: 0 },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'stops draining replicas in batches of max_unavailable with max_surge 0',
      changes: {
        ...resolveLimits({ desired: 6, maxUnavailable: 2, maxSurge: 0 }),
        replicas: current(6, { draining: true }),
      },
      expected: { creates: 0, stops: ['106', '105'] },
    },
    {
      name: 'stops no draining replica before the previous batch was replaced with max_surge 0',
      changes: {
        want: 6,
        minAvailable: 1,
        batch: 2,
        maxSurge: 0,
        replicas: [
          ...current(4, { draining: true }),
          ...outdated(2, { available: false, version: 2 }),
        ],
      },
      expected: 'notReady',
    },
    {
      name: 'replaces a lost replica beside a draining one with max_surge 0',
      changes: {
        maxSurge: 0,
        replicas: [
          ...current(1),
          aReplica(8, { version: 2, draining: true }),
          aReplica(9, { version: 2, lost: true }),
        ],
      },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'replaces all draining replicas at once',
      changes: { want: 4, minAvailable: 4, replicas: current(4, { draining: true }) },
      expected: { creates: 4, stops: [] },
    },
    {
      name: 'stops all draining replicas at once when all replacements are available',
      changes: {
        want: 4,
        minAvailable: 4,
        replicas: [...current(4, { draining: true }), ...someReplicas(4, { version: 2 }, 11)],
      },
      expected: { creates: 0, stops: ['104', '103', '102', '101'] },
    },
    {
      name: 'stops draining old replicas before other old ones',
      changes: { replicas: [...outdated(2), aReplica(0, { draining: true })] },
      expected: { creates: 2, stops: ['0'] },
    },
    {
      name: 'keeps an old replica that is not yet available while the others do not satisfy minAvailable',
      changes: {
        minAvailable: 2,
        replicas: outdated(3, { available: false, notYetAvailable: true }),
      },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'stops an old replica that is not yet available when the others satisfy minAvailable',
      changes: {
        minAvailable: 2,
        replicas: [...current(2), aReplica(1, { available: false, notYetAvailable: true })],
      },
      expected: { creates: 1, stops: ['1'] },
    },
    {
      name: 'keeps a replica of the wanted version that is not yet available',
      changes: {
        replicas: [
          ...current(2),
          aReplica(9, { version: 2, available: false, notYetAvailable: true }),
        ],
      },
      expected: 'notYetAvailable',
    },
    {
      name: 'stops replicas that are not yet available at a deletion',
      changes: { want: 0, replicas: current(1, { available: false, notYetAvailable: true }) },
      expected: { creates: 0, stops: ['101'] },
    },
  ])('$name', ({ changes, expected }) => expect(decideDetails(changes)).toEqual(expected));
});

describe('decideNextSteps', () => {
  it.each([
    { name: 'rolls nothing while paused', changes: { replicas: outdated(3) }, expected: 'paused' },
    {
      name: 'replaces a missing replica while paused',
      changes: { replicas: [...outdated(1), ...current(1)] },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'scales down while paused',
      changes: { want: 1, replicas: outdated(3) },
      expected: { creates: 0, stops: ['3', '2'] },
    },
    {
      name: 'keeps a surplus of two versions up to the maximum while paused',
      changes: { replicas: [...outdated(3), ...current(1)] },
      expected: 'paused',
    },
    {
      name: 'stops a surplus above the maximum while paused',
      changes: { replicas: [...outdated(3), ...current(2, { available: false })] },
      expected: { creates: 0, stops: ['102'] },
    },
    {
      name: 'replaces a draining replica although a failed new one exists while paused',
      changes: {
        minAvailable: 3,
        replicas: [
          ...outdated(2),
          ...current(1, { available: false }),
          aReplica(9, { draining: true }),
        ],
      },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'scales to 0 while paused',
      changes: { want: 0, replicas: [...outdated(1), ...current(1)] },
      expected: { creates: 0, stops: ['101', '1'] },
    },
    {
      name: 'stops a draining replica before its replacement while paused with max_surge 0',
      changes: { maxSurge: 0, replicas: [...outdated(2), aReplica(9, { draining: true })] },
      expected: { creates: 0, stops: ['9'] },
    },
    {
      name: 'replaces a draining replica while paused',
      changes: { want: 1, replicas: outdated(1, { draining: true }) },
      expected: { creates: 1, stops: [] },
    },
    {
      name: 'converges while paused when all replicas have the version',
      changes: { replicas: current(3) },
      expected: 'converged',
    },
  ])('$name', ({ changes, expected }) =>
    expect(decideDetails({ paused: true, baseVersion: 1, ...changes })).toEqual(expected),
  );
});

describe('decideNextSteps without a possible step', () => {
  it('returns the wait reason and what can change it', () => {
    expect(
      decideNextSteps(
        anObserved({ replicas: [...current(2), aReplica(9, { version: 2, available: false })] }),
      ),
    ).toEqual({
      kind: 'waiting',
      reason: { kind: 'notReady', text: '2 of 3 replicas are ready, 1 not yet' },
      wakeOn: { kind: 'replicas' },
    });
    expect(
      decideNextSteps(
        anObserved({
          ...resolveLimits({ desired: 3, maxSurge: 0, minAvailable: 3 }),
          replicas: outdated(3),
        }),
      ),
    ).toEqual({
      kind: 'waiting',
      reason: {
        kind: 'impossibleLimits',
        text: 'max_surge 0 and min_available 3 of 3 leave no possible move',
      },
      wakeOn: { kind: 'spec' },
    });
  });

  const unplaced = 'no node fits: cpu: 3 of 3 nodes';
  const noRoom =
    '3 of 3 replicas are ready, 1 extra not yet: no node fits: cpu: 3 of 3 nodes; min_available 3 allows no stop before the new replica is ready: ' +
    'free resources, or lower min_available, or raise max_unavailable';
  const unplacedReplica = aReplica(9, { version: 2, available: false, unplaced });
  it.each<{ name: string; changes: Partial<RolloutObserved>; text: string }>([
    {
      name: 'names min_available as the user wrote it, when it is above the number of replicas',
      changes: {
        ...resolveLimits({ desired: 3, minAvailable: 5 }),
        replicas: [...outdated(3), unplacedReplica],
      },
      text: noRoom.replace('min_available 3', 'min_available 5, which counts as 3,'),
    },
    {
      name: 'tells the user what to do when no node fits the new replica and no stop is allowed',
      changes: { replicas: [...outdated(3), unplacedReplica] },
      text: noRoom,
    },
    {
      name: 'gives the reason of the oldest replica without a node',
      changes: {
        maxSurge: 2,
        replicas: [
          ...outdated(3),
          aReplica(10, { version: 2, available: false, unplaced: 'later' }),
          unplacedReplica,
        ],
      },
      text: noRoom.replace('1 extra', '2 extra'),
    },
    {
      name: 'says how many of the unready replicas are extra',
      changes: {
        replicas: [
          ...outdated(2),
          aReplica(8, { version: 2, available: false }),
          aReplica(9, { version: 2, available: false }),
        ],
      },
      text: '2 of 3 replicas are ready, 2 not yet (1 extra)',
    },
    {
      name: 'gives no advice while a stop frees resources',
      changes: {
        replicas: [...outdated(3), aReplica(8, { desired: 'stopped' }), unplacedReplica],
        maxSurge: 2,
      },
      text: '3 of 3 replicas are ready, 1 extra not yet',
    },
    {
      name: 'gives no advice when no old replica holds resources',
      changes: { replicas: [...current(2), unplacedReplica] },
      text: '2 of 3 replicas are ready, 1 not yet',
    },
    {
      name: 'tells the user what to do when a draining replica waits for unready ones with max_surge 0',
      changes: {
        minAvailable: 2,
        maxSurge: 0,
        replicas: [
          ...current(1),
          aReplica(8, { version: 2, draining: true }),
          aReplica(9, { version: 2, available: false }),
        ],
      },
      text: '2 of 3 replicas are ready, 1 not yet; 1 replica that has to leave its node stops before its replacement starts, and waits until 3 are ready: to go on before that, raise max_unavailable, and lower min_available if it is set',
    },
    {
      name: 'advises to lower min_available when no other limit holds up a draining replica with max_surge 0',
      changes: {
        ...resolveLimits({ desired: 3, minAvailable: 2, maxUnavailable: 2, maxSurge: 0 }),
        replicas: [
          ...current(1),
          aReplica(8, { version: 2, draining: true }),
          aReplica(9, { version: 2, available: false }),
        ],
      },
      text: '2 of 3 replicas are ready, 1 not yet; 1 replica that has to leave its node stops before its replacement starts, and waits until 3 are ready: to go on before that, lower min_available',
    },
    {
      name: 'advises to raise max_unavailable when no other limit holds up a draining replica, and says why an unready replica has no node',
      changes: {
        ...resolveLimits({ desired: 3, minAvailable: 1, maxSurge: 0 }),
        replicas: [...current(1), aReplica(8, { version: 2, draining: true }), unplacedReplica],
      },
      text: '2 of 3 replicas are ready, 1 not yet: no node fits: cpu: 3 of 3 nodes; 1 replica that has to leave its node stops before its replacement starts, and waits until 3 are ready: to go on before that, raise max_unavailable',
    },
    {
      name: 'advises to change both limits when both hold up a draining replica with max_surge 0',
      changes: {
        ...resolveLimits({ desired: 5, minAvailable: 4, maxUnavailable: 2, maxSurge: 0 }),
        replicas: [
          ...current(2),
          aReplica(8, { version: 2, draining: true }),
          ...someReplicas(2, { version: 2, available: false }, 20),
        ],
      },
      text: '3 of 5 replicas are ready, 2 not yet; 1 replica that has to leave its node stops before its replacement starts, and waits until 5 are ready: to go on before that, lower min_available and raise max_unavailable',
    },
    {
      name: 'says how many draining replicas wait for how many ready ones with max_surge 0',
      changes: {
        ...resolveLimits({ desired: 5, maxUnavailable: 2, maxSurge: 0 }),
        replicas: [
          ...someReplicas(3, { version: 2, draining: true }),
          ...current(2, { available: false }),
        ],
      },
      text: '3 of 5 replicas are ready, 2 not yet; 3 replicas that have to leave their nodes stop before their replacements start, and wait until 4 are ready: to go on before that, raise max_unavailable, and lower min_available if it is set',
    },
    {
      name: 'gives no advice while a draining replica waits for the end of another with max_surge 0',
      changes: {
        minAvailable: 1,
        maxSurge: 0,
        replicas: [
          aReplica(7, { version: 2, draining: true }),
          aReplica(8, { version: 2, draining: true, desired: 'stopped' }),
          aReplica(9, { version: 2, available: false }),
        ],
      },
      text: '1 of 3 replicas are ready, 1 not yet',
    },
    {
      name: 'gives no advice while a batch, not minAvailable, delays the update',
      changes: { minAvailable: 1, maxSurge: 0, replicas: [...outdated(2), unplacedReplica] },
      text: '2 of 3 replicas are ready, 1 not yet',
    },
  ])('$name', ({ changes, text }) => {
    const decision = decideNextSteps(
      anObserved({ ...resolveLimits({ desired: 3, minAvailable: 3 }), ...changes }),
    );
    expect(decision).toMatchObject({ kind: 'waiting', reason: { kind: 'notReady', text } });
  });
});

describe('example of the README', () => {
  it('creates, waits and stops', () => {
    const limits = resolveLimits({ desired: 3, minAvailable: 3 });
    expect(limits).toEqual({ want: 3, minAvailable: 3, maxSurge: 1, batch: 1 });
    const replicas = outdated(3);
    expect(decideNextSteps({ ...limits, version: 2, replicas })).toEqual({
      kind: 'steps',
      steps: [{ kind: 'createReplica', version: 2 }],
    });
    const starting = aReplica(4, { version: 2, available: false });
    expect(
      decideNextSteps({ ...limits, version: 2, replicas: [...replicas, starting] }),
    ).toMatchObject({
      kind: 'waiting',
      reason: { kind: 'notReady' },
    });
    const stops = [{ kind: 'stopReplica', replicaId: 'w-3' }];
    expect(
      decideNextSteps({
        ...limits,
        version: 2,
        replicas: [...replicas, { ...starting, available: true }],
      }),
    ).toEqual({
      kind: 'steps',
      steps: stops,
    });
  });
});

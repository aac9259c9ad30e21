import { nextSteps, resolveLimits, type RolloutDecision, type RolloutObserved } from './index.js';
import { aReplica, anObserved, someReplicas } from './testing/builders.js';

const old = (count: number, changes = {}) => someReplicas(count, { version: 1, ...changes }, 1);
const current = (count: number, changes = {}) =>
  someReplicas(count, { version: 2, ...changes }, 101);

function shape(decision: RolloutDecision) {
  if (decision.kind !== 'steps')
    return decision.kind === 'waiting' ? decision.reason.kind : decision.kind;
  const stops = decision.steps.flatMap((step) =>
    step.kind === 'stopReplica' ? [step.replicaId.slice(2)] : [],
  );
  return { creates: decision.steps.length - stops.length, stops };
}
const decide = (changes: Partial<RolloutObserved>) => shape(nextSteps(anObserved(changes)));

describe('nextSteps: create and scale', () => {
  it.each([
    {
      name: 'a new workload starts all at once',
      changes: { want: 5 },
      gives: { creates: 5, stops: [] },
    },
    {
      name: 'surge does not add replicas nobody wants',
      changes: { want: 5, maxSurge: 3 },
      gives: { creates: 5, stops: [] },
    },
    { name: 'nothing wanted, nothing there', changes: { want: 0 }, gives: 'converged' },
    { name: 'all there, all ready', changes: { replicas: current(3) }, gives: 'converged' },
    {
      name: 'scale-up adds the difference',
      changes: { want: 5, replicas: current(3) },
      gives: { creates: 2, stops: [] },
    },
    {
      name: 'scale-down stops the newest',
      changes: { want: 3, replicas: current(5) },
      gives: { creates: 0, stops: ['105', '104'] },
    },
    {
      name: 'scale-down takes unready ones first',
      changes: { want: 2, replicas: [...current(3), aReplica(99, { version: 2, ready: false })] },
      gives: { creates: 0, stops: ['99', '103'] },
    },
    {
      name: 'scale-down takes draining ones before the newest',
      changes: { want: 2, replicas: [...current(2), aReplica(99, { version: 2, draining: true })] },
      gives: { creates: 0, stops: ['99'] },
    },
    {
      name: 'scale to 0 needs no floor and no batch',
      changes: { want: 0, replicas: current(3) },
      gives: { creates: 0, stops: ['103', '102', '101'] },
    },
    {
      name: 'scale-down takes unready ones before unproven ones',
      changes: {
        want: 2,
        replicas: [
          ...current(1),
          aReplica(103, { version: 2, ready: false, unproven: true }),
          aReplica(99, { version: 2, ready: false }),
        ],
      },
      gives: { creates: 0, stops: ['99'] },
    },
    {
      name: 'scale to 0 does not wait for stops in flight',
      changes: { want: 0, replicas: [...old(2), aReplica(9, { desired: 'stopped' as const })] },
      gives: { creates: 0, stops: ['2', '1'] },
    },
    {
      name: 'scale to 0 in the middle of an update',
      changes: { want: 0, replicas: [...old(2), ...current(1, { ready: false })] },
      gives: { creates: 0, stops: ['101', '2', '1'] },
    },
    {
      name: 'waits until stops are confirmed',
      changes: {
        want: 2,
        replicas: [...current(2), aReplica(9, { version: 2, desired: 'stopped' })],
      },
      gives: 'stopping',
    },
    {
      name: 'waits until new ones are ready',
      changes: { replicas: current(3, { ready: false }) },
      gives: 'notReady',
    },
  ])('$name', ({ changes, gives }) => expect(decide(changes)).toEqual(gives));
});

describe('nextSteps: update', () => {
  it.each([
    {
      name: 'adds and takes one where the floor allows',
      changes: { replicas: old(3) },
      gives: { creates: 1, stops: ['3'] },
    },
    {
      name: 'surges first where the floor does not',
      changes: { minAvailable: 3, replicas: old(3) },
      gives: { creates: 1, stops: [] },
    },
    {
      name: 'then stops one old, the newest',
      changes: { minAvailable: 3, replicas: [...old(3), ...current(1)] },
      gives: { creates: 0, stops: ['3'] },
    },
    {
      name: 'a surge that is not ready stops nothing',
      changes: { minAvailable: 3, replicas: [...old(3), ...current(1, { ready: false })] },
      gives: 'notReady',
    },
    {
      name: 'batch is max_unavailable',
      changes: { want: 6, minAvailable: 3, batch: 3, replicas: old(6) },
      gives: { creates: 1, stops: ['6', '5', '4'] },
    },
    {
      name: 'min_available wins over the batch',
      changes: { want: 6, minAvailable: 4, batch: 3, replicas: old(6) },
      gives: { creates: 1, stops: ['6', '5'] },
    },
    {
      name: 'the next batch waits for the one before it',
      changes: {
        want: 6,
        minAvailable: 1,
        batch: 2,
        maxSurge: 0,
        replicas: [...old(4), ...current(2, { ready: false })],
      },
      gives: 'notReady',
    },
    {
      name: 'stops still in flight are part of the batch',
      changes: {
        want: 3,
        maxSurge: 3,
        replicas: [...old(2), ...current(3), aReplica(9, { desired: 'stopped' })],
      },
      gives: 'stopping',
    },
    {
      name: 'unready old ones always go',
      changes: { minAvailable: 3, replicas: old(3, { ready: false }) },
      gives: { creates: 1, stops: ['3', '2', '1'] },
    },
    {
      name: 'an update away from a version that never starts',
      changes: {
        minAvailable: 3,
        maxSurge: 0,
        replicas: [...old(2, { ready: false }), aReplica(9)],
      },
      gives: { creates: 0, stops: ['2', '1'] },
    },
    {
      name: 'below the floor new ones are added and no ready one is stopped',
      changes: { minAvailable: 3, replicas: old(2) },
      gives: { creates: 2, stops: [] },
    },
    {
      name: 'limits without a move',
      changes: { minAvailable: 3, maxSurge: 0, replicas: old(3) },
      gives: 'impossibleLimits',
    },
    {
      name: 'surge 0 takes first',
      changes: { maxSurge: 0, replicas: old(3) },
      gives: { creates: 0, stops: ['3'] },
    },
    {
      name: 'back to an older version in the middle',
      changes: { version: 1, replicas: [...old(2), ...current(2)] },
      gives: { creates: 0, stops: ['102'] },
    },
    {
      name: 'three versions at once',
      changes: {
        version: 3,
        minAvailable: 3,
        replicas: [...old(2), ...current(2, { ready: false })],
      },
      gives: { creates: 0, stops: ['102', '101'] },
    },
    {
      name: 'scale-up and update go together',
      changes: { want: 5, replicas: old(3) },
      gives: { creates: 3, stops: [] },
    },
    {
      name: 'scale-down and update: what exceeds the ceiling goes at once, then a batch',
      changes: { want: 3, replicas: old(10) },
      gives: { creates: 0, stops: ['10', '9', '8', '7', '6', '5', '4'] },
    },
  ])('$name', ({ changes, gives }) => expect(decide(changes)).toEqual(gives));
});

describe('nextSteps: lost, draining and unproven replicas', () => {
  it.each([
    {
      name: 'a lost replica is replaced, the others stay',
      changes: { replicas: [...current(2), aReplica(9, { version: 2, ready: false, lost: true })] },
      gives: { creates: 1, stops: [] },
    },
    {
      name: 'a lost one takes no room, so the rollout surges as before',
      changes: { minAvailable: 3, replicas: [...old(3), aReplica(9, { lost: true })] },
      gives: { creates: 1, stops: [] },
    },
    {
      name: 'lost ones do not keep a workload from being done',
      changes: { replicas: [...current(3), aReplica(9, { lost: true })] },
      gives: 'converged',
    },
    {
      name: 'a node loss in the middle halts the update until ready replicas are back',
      changes: {
        want: 4,
        minAvailable: 3,
        replicas: [...old(2), ...current(1), aReplica(9, { lost: true })],
      },
      gives: { creates: 2, stops: [] },
    },
    {
      name: 'a draining replica gets its replacement first where the floor is tight',
      changes: { want: 1, minAvailable: 1, maxSurge: 0, replicas: current(1, { draining: true }) },
      gives: { creates: 1, stops: [] },
    },
    {
      name: 'and goes when the replacement is ready',
      changes: {
        want: 1,
        minAvailable: 1,
        maxSurge: 0,
        replicas: [...current(1, { draining: true }), aReplica(9, { version: 2 })],
      },
      gives: { creates: 0, stops: ['101'] },
    },
    {
      name: 'every draining replica may be replaced at once',
      changes: { want: 4, minAvailable: 4, replicas: current(4, { draining: true }) },
      gives: { creates: 4, stops: [] },
    },
    {
      name: 'and all of them go at once when all replacements are ready',
      changes: {
        want: 4,
        minAvailable: 4,
        replicas: [...current(4, { draining: true }), ...someReplicas(4, { version: 2 }, 11)],
      },
      gives: { creates: 0, stops: ['104', '103', '102', '101'] },
    },
    {
      name: 'draining old ones go before other old ones',
      changes: { replicas: [...old(2), aReplica(0, { draining: true })] },
      gives: { creates: 2, stops: ['0'] },
    },
    {
      name: 'an unproven old replica stays while the others do not hold the floor',
      changes: { minAvailable: 2, replicas: old(3, { ready: false, unproven: true }) },
      gives: { creates: 1, stops: [] },
    },
    {
      name: 'and goes when they do',
      changes: {
        minAvailable: 2,
        replicas: [...current(2), aReplica(1, { ready: false, unproven: true })],
      },
      gives: { creates: 1, stops: ['1'] },
    },
    {
      name: 'an unproven replica of the right version is not replaced',
      changes: {
        replicas: [...current(2), aReplica(9, { version: 2, ready: false, unproven: true })],
      },
      gives: 'unproven',
    },
    {
      name: 'a deletion stops unproven ones too',
      changes: { want: 0, replicas: current(1, { ready: false, unproven: true }) },
      gives: { creates: 0, stops: ['101'] },
    },
  ])('$name', ({ changes, gives }) => expect(decide(changes)).toEqual(gives));
});

describe('nextSteps: paused', () => {
  it.each([
    { name: 'rolls nothing', changes: { replicas: old(3) }, gives: 'paused' },
    {
      name: 'replaces what is missing',
      changes: { replicas: [...old(1), ...current(1)] },
      gives: { creates: 1, stops: [] },
    },
    {
      name: 'scales down',
      changes: { want: 1, replicas: old(3) },
      gives: { creates: 0, stops: ['3', '2'] },
    },
    {
      name: 'keeps a surplus of two versions within the ceiling',
      changes: { replicas: [...old(3), ...current(1)] },
      gives: 'paused',
    },
    {
      name: 'and no more than that',
      changes: { replicas: [...old(3), ...current(2, { ready: false })] },
      gives: { creates: 0, stops: ['102'] },
    },
    {
      name: 'works around a new one that failed when a node is drained',
      changes: {
        minAvailable: 3,
        replicas: [...old(2), ...current(1, { ready: false }), aReplica(9, { draining: true })],
      },
      gives: { creates: 1, stops: [] },
    },
    {
      name: 'scales to 0',
      changes: { want: 0, replicas: [...old(1), ...current(1)] },
      gives: { creates: 0, stops: ['101', '1'] },
    },
    {
      name: 'drains',
      changes: { want: 1, replicas: old(1, { draining: true }) },
      gives: { creates: 1, stops: [] },
    },
    {
      name: 'has nothing to do when all have the version',
      changes: { replicas: current(3) },
      gives: 'converged',
    },
  ])('$name', ({ changes, gives }) =>
    expect(decide({ paused: true, baseVersion: 1, ...changes })).toEqual(gives),
  );
});

describe('nextSteps: waiting', () => {
  it('says what it waits for and what can change that', () => {
    expect(
      nextSteps(
        anObserved({ replicas: [...current(2), aReplica(9, { version: 2, ready: false })] }),
      ),
    ).toEqual({
      kind: 'waiting',
      reason: { kind: 'notReady', text: '2 of 3 replicas are ready, 1 not yet' },
      wakeOn: { kind: 'replicas' },
    });
    expect(
      nextSteps(
        anObserved({
          ...resolveLimits({ desired: 3, maxSurge: 0, minAvailable: 3 }),
          replicas: old(3),
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
    '3 of 3 replicas are ready, 1 not yet: no node fits: cpu: 3 of 3 nodes; min_available 3 lets no other go first: ' +
    'make room, or allow fewer ready ones meanwhile by min_available or max_unavailable';
  const homeless = aReplica(9, { version: 2, ready: false, unplaced });
  it.each<{ name: string; changes: Partial<RolloutObserved>; text: string }>([
    {
      name: 'what to do when what comes first finds no node, and nothing may go',
      changes: { replicas: [...old(3), homeless] },
      text: noRoom,
    },
    {
      name: 'why the oldest finds none',
      changes: {
        maxSurge: 2,
        replicas: [
          ...old(3),
          aReplica(10, { version: 2, ready: false, unplaced: 'later' }),
          homeless,
        ],
      },
      text: noRoom.replace('1 not yet', '2 not yet'),
    },
    {
      name: 'no more while a stop makes room',
      changes: {
        replicas: [...old(3), aReplica(8, { desired: 'stopped' }), homeless],
        maxSurge: 2,
      },
      text: '3 of 3 replicas are ready, 1 not yet',
    },
    {
      name: 'no more when nothing old holds any room',
      changes: { replicas: [...current(2), homeless] },
      text: '2 of 3 replicas are ready, 1 not yet',
    },
    {
      name: 'no more where a batch is under way, and not the floor is in the way',
      changes: { minAvailable: 1, maxSurge: 0, replicas: [...old(2), homeless] },
      text: '2 of 3 replicas are ready, 1 not yet',
    },
  ])('says $name', ({ changes, text }) => {
    const decision = nextSteps(
      anObserved({ ...resolveLimits({ desired: 3, minAvailable: 3 }), ...changes }),
    );
    expect(decision).toMatchObject({ kind: 'waiting', reason: { kind: 'notReady', text } });
  });
});

describe('the example of the README', () => {
  it('surges, waits, stops', () => {
    const limits = resolveLimits({ desired: 3, minAvailable: 3 });
    expect(limits).toEqual({ want: 3, minAvailable: 3, maxSurge: 1, batch: 1 });
    const replicas = old(3);
    expect(nextSteps({ ...limits, version: 2, replicas })).toEqual({
      kind: 'steps',
      steps: [{ kind: 'createReplica', version: 2 }],
    });
    const starting = aReplica(4, { version: 2, ready: false });
    expect(nextSteps({ ...limits, version: 2, replicas: [...replicas, starting] })).toMatchObject({
      kind: 'waiting',
      reason: { kind: 'notReady' },
    });
    const stops = [{ kind: 'stopReplica', replicaId: 'w-3' }];
    expect(
      nextSteps({ ...limits, version: 2, replicas: [...replicas, { ...starting, ready: true }] }),
    ).toEqual({
      kind: 'steps',
      steps: stops,
    });
  });
});

import type { RolloutStrategy } from './index.js';
import { aReplica, someReplicas } from './testing/builders.js';
import { shapeFor } from './testing/shape.js';

const old = (count: number, changes = {}) => someReplicas(count, { version: 1, ...changes }, 1);
const current = (count: number, changes = {}) =>
  someReplicas(count, { version: 2, ...changes }, 101);
const leaving = { desired: 'stopped' as const };
const unready = { ready: false };

describe('nextSteps: canary', () => {
  const canary = (updated: number, changes: object) =>
    shapeFor({ baseVersion: 1, want: 4, strategy: { kind: 'rollingUpdate', updated }, ...changes });
  it.each([
    {
      name: 'makes as many as the step allows',
      updated: 1,
      changes: { replicas: old(4) },
      gives: '+2 -4',
    },
    {
      name: 'waits until they are ready',
      updated: 1,
      changes: { replicas: [...old(3), ...current(1, unready)] },
      gives: 'notReady',
    },
    {
      name: 'then waits at the step',
      updated: 1,
      changes: { replicas: [...old(3), ...current(1)] },
      gives: 'stepReached',
    },
    {
      name: 'waits at the step though one of the version before is not ready',
      updated: 1,
      changes: { replicas: [...old(2), aReplica(9, unready), ...current(1)] },
      gives: 'stepReached',
    },
    {
      name: 'goes on with the next step',
      updated: 2,
      changes: { replicas: [...old(3), ...current(1)] },
      gives: '+2 -3',
    },
    {
      name: 'replaces what is missing by the version it is of',
      updated: 1,
      changes: { replicas: [...old(2), ...current(1)] },
      gives: '+1',
    },
    {
      name: 'goes back when the step shrinks',
      updated: 1,
      changes: { replicas: [...old(2), ...current(2)] },
      gives: '+1 -102',
    },
    {
      name: 'replaces third versions by the version before',
      updated: 0,
      changes: { replicas: [...old(3), aReplica(9, { version: 3 })] },
      gives: '+1 -9',
    },
    {
      name: 'has no shares when the step is all',
      updated: 4,
      changes: { replicas: current(4) },
      gives: 'converged',
    },
    {
      name: 'rolls nothing while paused',
      updated: 2,
      changes: { paused: true, replicas: [...old(3), ...current(1)] },
      gives: 'paused',
    },
  ])('$name', ({ updated, changes, gives }) => expect(canary(updated, changes)).toBe(gives));
});

describe('nextSteps: recreate', () => {
  const recreate = (changes: object) =>
    shapeFor({ baseVersion: 1, strategy: { kind: 'recreate' }, ...changes });
  it.each([
    {
      name: 'stops all of other versions',
      changes: { minAvailable: 3, replicas: old(3) },
      gives: '-3 -2 -1',
    },
    {
      name: 'makes none while one is live',
      changes: { replicas: [aReplica(1, leaving)] },
      gives: 'stopping',
    },
    {
      name: 'waits for no lost one',
      changes: { replicas: [aReplica(1, { lost: true })] },
      gives: '+2 +2 +2',
    },
    {
      name: 'keeps what has the version already',
      changes: { replicas: [...old(1), ...current(2)] },
      gives: '-1',
    },
    {
      name: 'adds nothing beside what it has',
      changes: { replicas: [...current(2), aReplica(9, { version: 2, ...leaving })] },
      gives: 'stopping',
    },
    {
      name: 'drains one version within the floor: replacement first',
      changes: { want: 1, minAvailable: 1, replicas: current(1, { draining: true }) },
      gives: '+2',
    },
    {
      name: 'scales down by what is beyond the wanted count',
      changes: { want: 1, replicas: current(3) },
      gives: '-103 -102',
    },
    {
      name: 'paused, replaces by the version before while one of it is live',
      changes: { paused: true, replicas: old(2) },
      gives: '+1',
    },
    {
      name: 'paused, makes the new one when none is',
      changes: { paused: true, replicas: current(2) },
      gives: '+2',
    },
  ])('$name', ({ changes, gives }) => expect(recreate(changes)).toBe(gives));
});

describe('nextSteps: blue/green', () => {
  const blueGreen = (
    changes: object,
    strategy: Partial<Extract<RolloutStrategy, { kind: 'blueGreen' }>> = {},
  ) =>
    shapeFor({
      strategy: { kind: 'blueGreen', activeVersion: 1, maySwitch: true, ...strategy },
      ...changes,
    });
  it.each([
    { name: 'makes the whole new set', changes: { replicas: old(3) }, gives: '+2 +2 +2' },
    {
      name: 'makes nothing of it while there is no room for all',
      changes: { replicas: [...old(3), aReplica(9, { version: 3, ...leaving })] },
      gives: 'stopping',
    },
    {
      name: 'stops third versions freely, and counts them until they have gone',
      changes: { minAvailable: 3, replicas: [...old(3), aReplica(9, { version: 3 })] },
      gives: '-9',
    },
    {
      name: 'waits until it is ready',
      changes: { replicas: [...old(3), ...current(3, unready)] },
      gives: 'notReady',
    },
    {
      name: 'waits until it has been ready for long enough',
      changes: {
        replicas: [
          ...old(3),
          ...current(2),
          aReplica(9, { version: 2, ...unready, unproven: true }),
        ],
      },
      gives: 'unproven',
    },
    {
      name: 'replaces a member that failed',
      changes: { replicas: [...old(3), ...current(2)] },
      gives: '+2',
    },
    {
      name: 'moves a member that drains, with no floor',
      changes: {
        minAvailable: 3,
        replicas: [...old(3), ...current(2), aReplica(9, { version: 2, draining: true })],
      },
      gives: '+2 -9',
    },
    {
      name: 'switches when it is complete',
      changes: { replicas: [...old(3), ...current(3)] },
      gives: '=2',
    },
    {
      name: 'switches also while the active set is being mended',
      changes: { replicas: [...old(1), ...current(3)] },
      gives: '=2',
    },
    {
      name: 'keeps the active set whole',
      changes: { replicas: [...old(2), ...current(3, unready)] },
      gives: '+1',
    },
    {
      name: 'drains the active set within its floor',
      changes: {
        minAvailable: 3,
        replicas: [...old(2), aReplica(9, { draining: true }), ...current(3, unready)],
      },
      gives: '+1',
    },
    {
      name: 'a ready new set holds no floor',
      changes: {
        minAvailable: 2,
        batch: 3,
        replicas: [...old(2), aReplica(9, { draining: true }), ...current(2)],
      },
      gives: '+1 +2 -9',
    },
    {
      name: 'scales both sets up',
      changes: { want: 4, replicas: [...old(3), ...current(3, unready)] },
      gives: '+1 +2',
    },
    {
      name: 'scales both sets down',
      changes: { want: 2, replicas: [...old(3), ...current(3, unready)] },
      gives: '-3 -103',
    },
    {
      name: 'a newer version takes the place of the new set',
      changes: { version: 3, replicas: [...old(3), ...current(2)] },
      gives: '-102 -101',
    },
    {
      name: 'scaled to 0, stops all, then switches',
      changes: { want: 0, replicas: [...old(1), ...current(1)] },
      gives: '-1 -101',
    },
    { name: 'and switches when nothing is left', changes: { want: 0, replicas: [] }, gives: '=2' },
  ])('$name', ({ changes, gives }) => expect(blueGreen(changes)).toBe(gives));

  it.each([
    {
      name: 'waits for a promotion',
      changes: { replicas: [...old(3), ...current(3)] },
      strategy: { maySwitch: false },
      gives: 'promotion',
    },
    {
      name: 'mends the active set while it waits for a promotion',
      changes: { replicas: [...old(2), ...current(3)] },
      strategy: { maySwitch: false },
      gives: '+1',
    },
    {
      name: 'after the switch the former set stops',
      changes: { minAvailable: 3, replicas: [...old(3), ...current(3)] },
      strategy: { activeVersion: 2 },
      gives: '-3 -2 -1',
    },
    {
      name: 'or is kept',
      changes: { replicas: [...old(3), ...current(3)] },
      strategy: { activeVersion: 2, keepVersion: 1 },
      gives: 'kept',
    },
    {
      name: 'kept ones on draining nodes go, and are not replaced',
      changes: { replicas: [...old(2), aReplica(9, { draining: true }), ...current(3)] },
      strategy: { activeVersion: 2, keepVersion: 1 },
      gives: '-9',
    },
    {
      name: 'kept ones make room for another new set',
      changes: { version: 3, replicas: [...old(3), ...current(3)] },
      strategy: { activeVersion: 2, keepVersion: 1 },
      gives: '-3 -2 -1',
    },
    {
      name: 'a first deployment makes its own set',
      changes: { replicas: [] },
      strategy: { activeVersion: 2 },
      gives: '+2 +2 +2',
    },
    {
      name: 'paused, leaves the new set as it is and mends the active one',
      changes: { paused: true, replicas: [...old(2), ...current(2, unready)] },
      strategy: {},
      gives: '+1',
    },
    {
      name: 'paused, does not switch',
      changes: { paused: true, replicas: [...old(3), ...current(3)] },
      strategy: {},
      gives: 'paused',
    },
  ])('$name', ({ changes, strategy, gives }) => expect(blueGreen(changes, strategy)).toBe(gives));
});

describe('nextSteps: one replica per node', () => {
  const on = (nodeId: string, sequence: number, changes = {}) =>
    aReplica(sequence, { nodeId, ...changes });
  const global = (seats: readonly string[], changes: object) =>
    shapeFor({ seats, want: seats.length, ...changes });
  const [n1, n2] = [on('n1', 1), on('n2', 2)];
  it.each([
    { name: 'fills every seat', seats: ['n2', 'n1'], changes: {}, gives: '+2@n1 +2@n2' },
    {
      name: 'puts the new one beside the old one',
      seats: ['n1', 'n2'],
      changes: { minAvailable: 2, replicas: [n1, n2] },
      gives: '+2@n2',
    },
    {
      name: 'and stops the old one that a ready new one sits beside',
      seats: ['n1', 'n2'],
      changes: { minAvailable: 2, replicas: [n1, n2, on('n1', 9, { version: 2 })] },
      gives: '-1',
    },
    {
      name: 'stops first without surge',
      seats: ['n1', 'n2'],
      changes: { minAvailable: 1, maxSurge: 0, replicas: [n1, n2] },
      gives: '-2',
    },
    {
      name: 'an empty seat comes before a surge',
      seats: ['n1', 'n2', 'n3'],
      changes: { minAvailable: 3, replicas: [n1, n2], maxSurge: 0 },
      gives: '+2@n3',
    },
    {
      name: 'a node that is no seat any more is left',
      seats: ['n1'],
      changes: { version: 1, minAvailable: 1, replicas: [n1, n2] },
      gives: '-2',
    },
    {
      name: 'but not while its replica holds the floor',
      seats: ['n1', 'n3'],
      changes: { version: 1, minAvailable: 2, replicas: [n1, n2, on('n3', 3, { ready: false })] },
      gives: 'notReady',
    },
    {
      name: 'a second one of the version on a seat goes',
      seats: ['n1', 'n2'],
      changes: { version: 1, replicas: [n1, n2, on('n2', 9)] },
      gives: '-9',
    },
    {
      name: 'recreate stops all, then fills every seat',
      seats: ['n1', 'n2'],
      changes: { strategy: { kind: 'recreate' }, replicas: [n1, n2] },
      gives: '-2 -1',
    },
    {
      name: 'paused, fills an empty seat with the version before, and leaves a pair alone',
      seats: ['n1', 'n2'],
      changes: {
        paused: true,
        baseVersion: 1,
        replicas: [n1, on('n1', 9, { version: 2, ready: false })],
      },
      gives: '+1@n2',
    },
    {
      name: 'scaled to nothing, all go',
      seats: ['n1', 'n2'],
      changes: { want: 0, minAvailable: 0, replicas: [n1, n2] },
      gives: '-2 -1',
    },
  ])('$name', ({ seats, changes, gives }) => expect(global(seats, changes)).toBe(gives));

  it('takes no blue/green and no canary steps', () => {
    expect(() =>
      global(['n1'], { strategy: { kind: 'blueGreen', activeVersion: 1, maySwitch: true } }),
    ).toThrow('blue/green is not for one replica per node');
    expect(() => global(['n1'], { strategy: { kind: 'rollingUpdate', updated: 0 } })).toThrow(
      'canary steps are not for one replica per node',
    );
  });
});

describe('nextSteps: a forced drain', () => {
  const forced = { draining: true, forced: true };
  it.each([
    {
      name: 'stops also the last ready one',
      changes: { want: 1, version: 1, minAvailable: 1, replicas: old(1, forced) },
      gives: '+1 -1',
    },
    {
      name: 'and those left hold the floor alone',
      changes: { minAvailable: 2, replicas: [...old(2), aReplica(9, forced)] },
      gives: '+2 +2 -9',
    },
    {
      name: 'counts when its replica is lost too: nothing is there to stop',
      changes: { want: 1, version: 1, replicas: [aReplica(1, { ...forced, lost: true })] },
      gives: '+1',
    },
  ])('$name', ({ changes, gives }) => expect(shapeFor(changes)).toBe(gives));
});

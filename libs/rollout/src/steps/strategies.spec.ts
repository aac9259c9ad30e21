import type { RolloutObserved, RolloutReplica, RolloutStrategy } from '../index.js';
import { aReplica, someReplicas } from '../testing/builders.js';
import { decideShape } from '../testing/decision-shape.js';

const outdated = (count: number, changes: Partial<RolloutReplica> = {}) =>
  someReplicas(count, { version: 1, ...changes }, 1);
const current = (count: number, changes: Partial<RolloutReplica> = {}) =>
  someReplicas(count, { version: 2, ...changes }, 101);
const leaving = { desired: 'stopped' as const };
const unready: Partial<RolloutReplica> = { available: false };

describe('decideNextSteps at a canary step', () => {
  const canary = (updated: number, changes: Partial<RolloutObserved>) =>
    decideShape({
      baseVersion: 1,
      want: 4,
      strategy: { kind: 'rollingUpdate', updated },
      ...changes,
    });
  it.each([
    {
      name: 'creates as many replicas as the step allows',
      updated: 1,
      changes: { replicas: outdated(4) },
      expected: '+2 -4',
    },
    {
      name: 'waits until the new replicas are ready',
      updated: 1,
      changes: { replicas: [...outdated(3), ...current(1, unready)] },
      expected: 'notReady',
    },
    {
      name: 'waits at the step when the new replicas are available',
      updated: 1,
      changes: { replicas: [...outdated(3), ...current(1)] },
      expected: 'stepReached',
    },
    {
      name: 'waits at the step although a replica of the previous version is not ready',
      updated: 1,
      changes: { replicas: [...outdated(2), aReplica(9, unready), ...current(1)] },
      expected: 'stepReached',
    },
    {
      name: 'continues with the next step',
      updated: 2,
      changes: { replicas: [...outdated(3), ...current(1)] },
      expected: '+2 -3',
    },
    {
      name: 'replaces a missing replica with its own version',
      updated: 1,
      changes: { replicas: [...outdated(2), ...current(1)] },
      expected: '+1',
    },
    {
      name: 'stops new replicas when the step shrinks',
      updated: 1,
      changes: { replicas: [...outdated(2), ...current(2)] },
      expected: '+1 -102',
    },
    {
      name: 'replaces replicas of a third version with the previous version',
      updated: 0,
      changes: { replicas: [...outdated(3), aReplica(9, { version: 3 })] },
      expected: '+1 -9',
    },
    {
      name: 'converges when the step covers all replicas and all are updated',
      updated: 4,
      changes: { replicas: current(4) },
      expected: 'converged',
    },
    {
      name: 'rolls nothing while paused',
      updated: 2,
      changes: { paused: true, replicas: [...outdated(3), ...current(1)] },
      expected: 'paused',
    },
  ])('$name', ({ updated, changes, expected }) => expect(canary(updated, changes)).toBe(expected));
});

describe('decideNextSteps with RECREATE', () => {
  const recreate = (changes: Partial<RolloutObserved>) =>
    decideShape({ baseVersion: 1, strategy: { kind: 'recreate' }, ...changes });
  it.each([
    {
      name: 'stops all replicas of other versions',
      changes: { minAvailable: 3, replicas: outdated(3) },
      expected: '-3 -2 -1',
    },
    {
      name: 'creates none while an old replica is live',
      changes: { replicas: [aReplica(1, leaving)] },
      expected: 'stopping',
    },
    {
      name: 'does not wait for a lost replica',
      changes: { replicas: [aReplica(1, { lost: true })] },
      expected: '+2 +2 +2',
    },
    {
      name: 'keeps replicas that already have the version',
      changes: { replicas: [...outdated(1), ...current(2)] },
      expected: '-1',
    },
    {
      name: 'creates nothing beside existing replicas',
      changes: { replicas: [...current(2), aReplica(9, { version: 2, ...leaving })] },
      expected: 'stopping',
    },
    {
      name: 'replaces a draining replica of one version before its stop',
      changes: { want: 1, minAvailable: 1, replicas: current(1, { draining: true }) },
      expected: '+2',
    },
    {
      name: 'stops a draining replica before its replacement when minAvailable allows it',
      changes: { want: 1, minAvailable: 0, replicas: current(1, { draining: true }) },
      expected: '-101',
    },
    {
      name: 'waits for the end of a draining replica before it creates the replacement',
      changes: { want: 1, minAvailable: 0, replicas: current(1, { draining: true, ...leaving }) },
      expected: 'stopping',
    },
    {
      name: 'stops a draining replica before its replacement while paused',
      changes: {
        paused: true,
        want: 1,
        minAvailable: 0,
        replicas: outdated(1, { draining: true }),
      },
      expected: '-1',
    },
    {
      name: 'stops the surplus at a scale-down',
      changes: { want: 1, replicas: current(3) },
      expected: '-103 -102',
    },
    {
      name: 'creates the previous version while paused when an old replica is live',
      changes: { paused: true, replicas: outdated(2) },
      expected: '+1',
    },
    {
      name: 'creates the new version while paused when no old replica is live',
      changes: { paused: true, replicas: current(2) },
      expected: '+2',
    },
  ])('$name', ({ changes, expected }) => expect(recreate(changes)).toBe(expected));
});

describe('decideNextSteps with BLUE_GREEN', () => {
  const blueGreen = (
    changes: object,
    strategy: Partial<Extract<RolloutStrategy, { kind: 'blueGreen' }>> = {},
  ) =>
    decideShape({
      strategy: { kind: 'blueGreen', activeVersion: 1, maySwitch: true, ...strategy },
      ...changes,
    });
  it.each([
    { name: 'creates the whole new set', changes: { replicas: outdated(3) }, expected: '+2 +2 +2' },
    {
      name: 'creates nothing while there is no room for the whole set',
      changes: { replicas: [...outdated(3), aReplica(9, { version: 3, ...leaving })] },
      expected: 'stopping',
    },
    {
      name: 'stops replicas of a third version at once, and counts them until they are gone',
      changes: { minAvailable: 3, replicas: [...outdated(3), aReplica(9, { version: 3 })] },
      expected: '-9',
    },
    {
      name: 'waits until the new set is ready',
      changes: { replicas: [...outdated(3), ...current(3, unready)] },
      expected: 'notReady',
    },
    {
      name: 'waits until the new set is available',
      changes: {
        replicas: [
          ...outdated(3),
          ...current(2),
          aReplica(9, { version: 2, ...unready, notYetAvailable: true }),
        ],
      },
      expected: 'notYetAvailable',
    },
    {
      name: 'replaces a failed replica of the new set',
      changes: { replicas: [...outdated(3), ...current(2)] },
      expected: '+2',
    },
    {
      name: 'replaces a draining replica of the new set without minAvailable',
      changes: {
        minAvailable: 3,
        replicas: [...outdated(3), ...current(2), aReplica(9, { version: 2, draining: true })],
      },
      expected: '+2 -9',
    },
    {
      name: 'switches when the new set is complete',
      changes: { replicas: [...outdated(3), ...current(3)] },
      expected: '=2',
    },
    {
      name: 'switches while a replica of the active set is being replaced',
      changes: { replicas: [...outdated(1), ...current(3)] },
      expected: '=2',
    },
    {
      name: 'replaces a missing replica of the active set',
      changes: { replicas: [...outdated(2), ...current(3, unready)] },
      expected: '+1',
    },
    {
      name: 'replaces draining replicas of the active set within minAvailable',
      changes: {
        minAvailable: 3,
        replicas: [...outdated(2), aReplica(9, { draining: true }), ...current(3, unready)],
      },
      expected: '+1',
    },
    {
      name: 'does not count the new set for minAvailable',
      changes: {
        minAvailable: 2,
        batch: 3,
        replicas: [...outdated(2), aReplica(9, { draining: true }), ...current(2)],
      },
      expected: '+1 +2 -9',
    },
    {
      name: 'scales both sets up',
      changes: { want: 4, replicas: [...outdated(3), ...current(3, unready)] },
      expected: '+1 +2',
    },
    {
      name: 'scales both sets down',
      changes: { want: 2, replicas: [...outdated(3), ...current(3, unready)] },
      expected: '-3 -103',
    },
    {
      name: 'replaces the new set by that of a newer version',
      changes: { version: 3, replicas: [...outdated(3), ...current(2)] },
      expected: '-102 -101',
    },
    {
      name: 'stops all replicas before the switch when scaled to 0',
      changes: { want: 0, replicas: [...outdated(1), ...current(1)] },
      expected: '-1 -101',
    },
    {
      name: 'switches when no replica is left after a scale to 0',
      changes: { want: 0, replicas: [] },
      expected: '=2',
    },
  ])('$name', ({ changes, expected }) => expect(blueGreen(changes)).toBe(expected));

  it.each([
    {
      name: 'waits for a promotion',
      changes: { replicas: [...outdated(3), ...current(3)] },
      strategy: { maySwitch: false },
      expected: 'promotion',
    },
    {
      name: 'replaces replicas of the active set during the wait for a promotion',
      changes: { replicas: [...outdated(2), ...current(3)] },
      strategy: { maySwitch: false },
      expected: '+1',
    },
    {
      name: 'stops the previous set after the switch',
      changes: { minAvailable: 3, replicas: [...outdated(3), ...current(3)] },
      strategy: { activeVersion: 2 },
      expected: '-3 -2 -1',
    },
    {
      name: 'keeps the previous set while keepVersion names it',
      changes: { replicas: [...outdated(3), ...current(3)] },
      strategy: { activeVersion: 2, keepVersion: 1 },
      expected: 'kept',
    },
    {
      name: 'stops kept replicas on draining nodes without a replacement',
      changes: { replicas: [...outdated(2), aReplica(9, { draining: true }), ...current(3)] },
      strategy: { activeVersion: 2, keepVersion: 1 },
      expected: '-9',
    },
    {
      name: 'stops kept replicas for another new set',
      changes: { version: 3, replicas: [...outdated(3), ...current(3)] },
      strategy: { activeVersion: 2, keepVersion: 1 },
      expected: '-3 -2 -1',
    },
    {
      name: 'creates one set in a first deployment',
      changes: { replicas: [] },
      strategy: { activeVersion: 2 },
      expected: '+2 +2 +2',
    },
    {
      name: 'keeps the new set and repairs the active one while paused',
      changes: { paused: true, replicas: [...outdated(2), ...current(2, unready)] },
      strategy: {},
      expected: '+1',
    },
    {
      name: 'does not switch while paused',
      changes: { paused: true, replicas: [...outdated(3), ...current(3)] },
      strategy: {},
      expected: 'paused',
    },
  ])('$name', ({ changes, strategy, expected }) =>
    expect(blueGreen(changes, strategy)).toBe(expected),
  );
});

describe('decideNextSteps with one replica per node', () => {
  const replicaOn = (nodeId: string, sequence: number, changes: Partial<RolloutReplica> = {}) =>
    aReplica(sequence, { nodeId, ...changes });
  const decideGlobal = (globalTargets: readonly string[], changes: Partial<RolloutObserved>) =>
    decideShape({ globalTargets, want: globalTargets.length, ...changes });
  const [n1, n2] = [replicaOn('n1', 1), replicaOn('n2', 2)];
  it.each<{
    name: string;
    nodes: readonly string[];
    changes: Partial<RolloutObserved>;
    expected: string;
  }>([
    {
      name: 'creates a replica on every target node',
      nodes: ['n2', 'n1'],
      changes: {},
      expected: '+2@n1 +2@n2',
    },
    {
      name: 'creates the new replica beside the old one',
      nodes: ['n1', 'n2'],
      changes: { minAvailable: 2, replicas: [n1, n2] },
      expected: '+2@n2',
    },
    {
      name: 'stops the old replica beside an available new one',
      nodes: ['n1', 'n2'],
      changes: { minAvailable: 2, replicas: [n1, n2, replicaOn('n1', 9, { version: 2 })] },
      expected: '-1',
    },
    {
      name: 'stops an old replica first without a surge',
      nodes: ['n1', 'n2'],
      changes: { minAvailable: 1, maxSurge: 0, replicas: [n1, n2] },
      expected: '-2',
    },
    {
      name: 'keeps a draining replica that min_available needs because a pinned one is not available',
      nodes: [],
      changes: { minAvailable: 1, pinnedNodes: ['n2'], replicas: [{ ...n1, draining: true }] },
      expected: 'notReady',
    },
    {
      name: 'fills an empty target node before a surge',
      nodes: ['n1', 'n2', 'n3'],
      changes: { minAvailable: 3, replicas: [n1, n2], maxSurge: 0 },
      expected: '+2@n3',
    },
    {
      name: 'fills an empty target node while another node is drained, without a surge',
      nodes: ['n1', 'n3'],
      changes: {
        minAvailable: 1,
        maxSurge: 0,
        version: 1,
        replicas: [n1, { ...n2, draining: true, desired: 'stopped' }],
      },
      expected: '+1@n3',
    },
    {
      name: 'fills an empty target node and not one whose replica is stopping, without a surge',
      nodes: ['n1', 'n2'],
      changes: { minAvailable: 0, maxSurge: 0, replicas: [{ ...n1, desired: 'stopped' }] },
      expected: '+2@n2',
    },
    {
      name: 'fills an empty target node and not one whose replica is stopping while paused, without a surge',
      nodes: ['n1', 'n2'],
      changes: {
        paused: true,
        baseVersion: 1,
        minAvailable: 0,
        maxSurge: 0,
        replicas: [{ ...n1, desired: 'stopped' }],
      },
      expected: '+1@n2',
    },
    {
      name: 'fills an empty target node and not one whose old replica is unready, without a surge',
      nodes: ['n1', 'n2'],
      changes: { minAvailable: 0, maxSurge: 0, replicas: [{ ...n1, available: false }] },
      expected: '+2@n2 -1',
    },
    {
      name: 'creates no replica beside a duplicate that leaves, without a surge',
      nodes: ['n1', 'n2'],
      changes: {
        minAvailable: 1,
        maxSurge: 0,
        version: 1,
        replicas: [n1, replicaOn('n1', 9, { desired: 'stopped' })],
      },
      expected: 'stopping',
    },
    {
      name: 'stops the replica on a node that is no target any more',
      nodes: ['n1'],
      changes: { version: 1, minAvailable: 1, replicas: [n1, n2] },
      expected: '-2',
    },
    {
      name: 'keeps the replica on a node that is no target any more while minAvailable needs it',
      nodes: ['n1', 'n3'],
      changes: {
        version: 1,
        minAvailable: 2,
        replicas: [n1, n2, replicaOn('n3', 3, { available: false })],
      },
      expected: 'notReady',
    },
    {
      name: 'stops a duplicate on a target node',
      nodes: ['n1', 'n2'],
      changes: { version: 1, replicas: [n1, n2, replicaOn('n2', 9)] },
      expected: '-9',
    },
    {
      name: 'stops all replicas before it creates new ones under RECREATE',
      nodes: ['n1', 'n2'],
      changes: { strategy: { kind: 'recreate' }, replicas: [n1, n2] },
      expected: '-2 -1',
    },
    {
      name: 'fills an empty target node with the previous version while paused, and keeps a pair',
      nodes: ['n1', 'n2'],
      changes: {
        paused: true,
        baseVersion: 1,
        replicas: [n1, replicaOn('n1', 9, { version: 2, available: false })],
      },
      expected: '+1@n2',
    },
    {
      name: 'stops all replicas when no replica is wanted',
      nodes: ['n1', 'n2'],
      changes: { want: 0, minAvailable: 0, replicas: [n1, n2] },
      expected: '-2 -1',
    },
  ])('$name', ({ nodes, changes, expected }) =>
    expect(decideGlobal(nodes, changes)).toBe(expected),
  );

  it('refuses blue/green and canary steps', () => {
    expect(() =>
      decideGlobal(['n1'], { strategy: { kind: 'blueGreen', activeVersion: 1, maySwitch: true } }),
    ).toThrow('blue/green is not for one replica per node');
    expect(() => decideGlobal(['n1'], { strategy: { kind: 'rollingUpdate', updated: 0 } })).toThrow(
      'canary steps are not for one replica per node',
    );
  });
});

describe('decideNextSteps with a forced drain', () => {
  const forced = { draining: true, forced: true };
  it.each([
    {
      name: 'stops the last available replica',
      changes: { want: 1, version: 1, minAvailable: 1, replicas: outdated(1, forced) },
      expected: '+1 -1',
    },
    {
      name: 'stops the last available replica before its replacement with max_surge 0',
      changes: {
        want: 1,
        version: 1,
        minAvailable: 0,
        maxSurge: 0,
        replicas: outdated(1, forced),
      },
      expected: '-1',
    },
    {
      name: 'creates no replacement before the forced stop is confirmed with max_surge 0',
      changes: {
        want: 1,
        version: 1,
        minAvailable: 0,
        maxSurge: 0,
        replicas: outdated(1, { ...forced, desired: 'stopped' }),
      },
      expected: 'stopping',
    },
    {
      name: 'requires minAvailable of the other replicas only',
      changes: { minAvailable: 2, replicas: [...outdated(2), aReplica(9, forced)] },
      expected: '+2 +2 -9',
    },
    {
      name: 'does not stop a lost replica',
      changes: { want: 1, version: 1, replicas: [aReplica(1, { ...forced, lost: true })] },
      expected: '+1',
    },
  ])('$name', ({ changes, expected }) => expect(decideShape(changes)).toBe(expected));
});

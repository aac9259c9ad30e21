import { toNodeId } from '@cloudless/base';
import { createMembership, type Membership } from './index.js';

const a = toNodeId('a');
const nodeIds = (count: number) =>
  Array.from({ length: count }, (_, index) => toNodeId(`n${index}`));
/** Sweeps and returns the transitions as texts, such as `alive a` or `lost a silence`. */
const sweep = (membership: Membership, nowMs: number) =>
  membership
    .sweep(nowMs)
    .map((t) => (t.kind === 'lost' ? `lost ${t.nodeId} ${t.cause}` : `${t.kind} ${t.nodeId}`));

function aMembershipOf(count: number): Membership {
  const membership = createMembership();
  for (const nodeId of nodeIds(count)) membership.join(nodeId, 0);
  membership.sweep(0);
  return membership;
}

describe('Membership', () => {
  it('reports a join once, and a loss by silence after the lease', () => {
    const membership = createMembership();
    membership.join(a, 0);
    expect(sweep(membership, 0)).toEqual(['alive a']);
    expect(sweep(membership, 2_999)).toEqual([]);
    expect(membership.nextDeadline()).toBe(3_000);
    expect(sweep(membership, 3_000)).toEqual(['lost a silence']);
    expect(sweep(membership, 9_000)).toEqual([]);
    expect(membership.nextDeadline()).toBeUndefined();
    expect(membership.getState(a)).toBe('lost');
  });

  it('accepts a late renewal until a sweep has ended the lease', () => {
    const membership = createMembership();
    membership.join(a, 0);
    expect(membership.renew(a, 3_500)).toBe('renewed');
    expect(sweep(membership, 6_499)).toEqual(['alive a']);
    expect(sweep(membership, 6_500)).toEqual(['lost a silence']);
    expect(membership.renew(a, 6_600)).toBe('lost');
    expect(sweep(membership, 6_600)).toEqual([]);
    membership.join(a, 6_700);
    expect(sweep(membership, 6_700)).toEqual(['alive a']);
  });

  it('returns unknown for a node that never joined or has left', () => {
    const membership = createMembership();
    expect(membership.renew(a, 0)).toBe('unknown');
    membership.loseConnection(a, 0);
    membership.join(a, 0);
    membership.leave(a);
    membership.leave(a);
    expect(membership.renew(a, 1)).toBe('unknown');
    expect(sweep(membership, 9_000)).toEqual([]);
    expect(Object.values(membership.counts())).toEqual([0, 0, 0, 0, 0, 0]);
  });

  it('does not shorten a lease by an older renewal', () => {
    const membership = aMembershipOf(1);
    membership.renew(toNodeId('n0'), 1_000);
    membership.renew(toNodeId('n0'), 500);
    expect(membership.nextDeadline()).toBe(4_000);
  });

  describe('after a reset of the connection', () => {
    it('loses the node after the reconnect window', () => {
      const membership = createMembership();
      membership.join(a, 0);
      membership.sweep(0);
      membership.loseConnection(a, 1_000);
      expect(membership.nextDeadline()).toBe(1_250);
      expect(sweep(membership, 1_249)).toEqual([]);
      expect(sweep(membership, 1_250)).toEqual(['lost a reset']);
    });

    it('keeps the node when it reconnects in time', () => {
      const membership = createMembership();
      membership.join(a, 0);
      membership.sweep(0);
      membership.loseConnection(a, 1_000);
      expect(membership.getState(a)).toBe('reconnecting');
      membership.join(a, 1_200);
      expect(sweep(membership, 4_199)).toEqual([]);
      expect(sweep(membership, 4_200)).toEqual(['lost a silence']);
    });

    it('ignores the reset of an older session', () => {
      const membership = createMembership();
      const first = membership.join(a, 0);
      const second = membership.join(a, 100);
      membership.loseConnection(a, 200, first);
      expect(membership.getState(a)).toBe('connected');
      membership.loseConnection(a, 300, second);
      expect(membership.getState(a)).toBe('reconnecting');
    });

    it('ends the reconnect window at the end of the lease', () => {
      const membership = createMembership();
      membership.join(a, 0);
      membership.loseConnection(a, 2_900);
      expect(membership.nextDeadline()).toBe(3_000);
    });

    it('does not restart the reconnect window at a second reset', () => {
      const membership = createMembership();
      membership.join(a, 0);
      membership.loseConnection(a, 1_000);
      membership.loseConnection(a, 1_200);
      expect(membership.nextDeadline()).toBe(1_250);
    });

    it.each([
      { name: 'fewer than 4 resets are no mass reset', nodes: 3, resets: 3, lost: 3 },
      { name: 'the lease decides after 4 of 4 resets', nodes: 4, resets: 4, lost: 0 },
      { name: 'half of the nodes is no mass reset', nodes: 8, resets: 4, lost: 4 },
      { name: 'the lease decides after a mass reset', nodes: 8, resets: 5, lost: 0 },
    ])(
      'loses $lost of $nodes nodes when $resets of them are reset, as $name',
      ({ nodes, resets, lost }) => {
        const membership = aMembershipOf(nodes);
        for (const nodeId of nodeIds(resets)) membership.loseConnection(nodeId, 100);
        expect(sweep(membership, 350)).toHaveLength(lost);
      },
    );

    it('gives the last node of a mass reset the whole lease, and loses it by silence', () => {
      const membership = aMembershipOf(8);
      for (const nodeId of nodeIds(8)) membership.loseConnection(nodeId, 100);
      expect(sweep(membership, 150)).toEqual([]);
      for (const nodeId of nodeIds(7)) membership.join(nodeId, 1_000);
      expect(sweep(membership, 2_999)).toEqual([]);
      expect(sweep(membership, 3_000)).toEqual(['lost n7 silence']);
    });
  });

  it('extends leases and reconnect windows by the lag of the event loop', () => {
    const membership = aMembershipOf(2);
    membership.loseConnection(toNodeId('n1'), 1_000);
    membership.extendLeases(5_000);
    membership.extendLeases(-1);
    expect(sweep(membership, 6_249)).toEqual([]);
    expect(sweep(membership, 6_250)).toEqual(['lost n1 reset']);
    membership.renew(toNodeId('n0'), 7_000);
    expect(membership.nextDeadline()).toBe(10_000);
  });

  describe('after a change of the leader', () => {
    it('gives every registered node a full lease, and reports a node alive when the node joins', () => {
      const membership = createMembership();
      membership.renewAll(10_000, nodeIds(2));
      expect(membership.counts()).toMatchObject({
        expected: 2,
        connected: 0,
        reconnecting: 0,
        lost: 0,
      });
      membership.join(toNodeId('n0'), 10_500);
      expect(sweep(membership, 12_999)).toEqual(['alive n0']);
      expect(sweep(membership, 13_000)).toEqual(['lost n1 silence']);
    });

    it('keeps a node that renews before it has joined, in state expected', () => {
      const membership = createMembership();
      membership.renewAll(10_000, nodeIds(2));
      expect(membership.renew(toNodeId('n0'), 12_000)).toBe('renewed');
      expect(sweep(membership, 13_000)).toEqual(['lost n1 silence']);
      expect(membership.getState(toNodeId('n0'))).toBe('expected');
      expect(sweep(membership, 15_000)).toEqual(['lost n0 silence']);
    });

    it('adds extraMs to the lease until a node joins, then uses the usual lease', () => {
      const membership = createMembership();
      membership.renewAll(10_000, nodeIds(2), 5_000);
      membership.join(toNodeId('n0'), 11_000);
      expect(sweep(membership, 14_000)).toEqual(['alive n0', 'lost n0 silence']);
      expect(sweep(membership, 17_999)).toEqual([]);
      expect(sweep(membership, 18_000)).toEqual(['lost n1 silence']);
    });

    it('trusts expected nodes while others return, until none has returned for a lease', () => {
      const membership = createMembership();
      membership.renewAll(0, nodeIds(5), 0, 60_000);
      for (const [index, nowMs] of [2_900, 5_800, 8_700].entries()) {
        membership.join(toNodeId(`n${index}`), nowMs);
        membership.renew(toNodeId('n0'), nowMs);
        membership.renew(toNodeId('n1'), nowMs);
      }
      for (const index of [0, 1, 2]) membership.renew(toNodeId(`n${index}`), 11_000);
      expect(sweep(membership, 11_699)).toEqual(['alive n0', 'alive n1', 'alive n2']);
      expect(membership.nextDeadline()).toBe(11_700);
      expect(sweep(membership, 11_700)).toEqual(['lost n3 silence', 'lost n4 silence']);
    });

    it('trusts expected nodes for at most maxExtraMs longer than a lease', () => {
      const membership = createMembership();
      membership.renewAll(0, nodeIds(5), 0, 4_000);
      membership.join(toNodeId('n0'), 2_900);
      membership.join(toNodeId('n1'), 5_800);
      membership.renew(toNodeId('n0'), 5_800);
      expect(sweep(membership, 6_999)).toEqual(['alive n0', 'alive n1']);
      expect(sweep(membership, 7_000)).toEqual([2, 3, 4].map((n) => `lost n${n} silence`));
    });

    it('renews connected and reconnecting nodes, and lost nodes only when they are registered', () => {
      const membership = aMembershipOf(3);
      membership.renew(toNodeId('n0'), 2_900);
      membership.renew(toNodeId('n1'), 2_900);
      expect(sweep(membership, 3_000)).toEqual(['lost n2 silence']);
      membership.loseConnection(toNodeId('n1'), 5_000);
      membership.renewAll(5_100);
      expect(membership.counts()).toMatchObject({
        expected: 1,
        connected: 1,
        reconnecting: 0,
        lost: 1,
      });
      membership.renewAll(5_100, nodeIds(3));
      expect(sweep(membership, 8_099)).toEqual([]);
      expect(sweep(membership, 8_100)).toHaveLength(3);
    });
  });

  it('throws when the reconnect window is longer than the lease', () => {
    expect(() => createMembership({ leaseMs: 100 })).toThrow('no longer than the lease');
  });
});

describe('example of the README', () => {
  it('shows a node that joins, renews, is reset and is lost', () => {
    const membership = createMembership();
    const session = membership.join(a, 0);
    expect(membership.sweep(0)).toEqual([{ kind: 'alive', nodeId: a, atMs: 0 }]);
    expect(membership.renew(a, 900)).toBe('renewed');
    membership.loseConnection(a, 1_000, session);
    expect(membership.nextDeadline()).toBe(1_250);
    expect(membership.sweep(1_250)).toEqual([
      { kind: 'lost', nodeId: a, atMs: 1_250, cause: 'reset' },
    ]);
    expect(membership.renew(a, 1_300)).toBe('lost');
  });
});

import fc from 'fast-check';
import { toNodeId, type NodeId } from '@cloudless/base';
import { createMembership, createReplacementBrake, type Membership } from './index.js';

const a = toNodeId('a');
const LEASE_MS = 3_000;
const GRACE_MS = 60_000;

const sweep = (membership: Membership, nowMs: number): string[] =>
  membership
    .sweep(nowMs)
    .map((t) => (t.kind === 'lost' ? `lost ${t.nodeId} ${t.cause}` : `${t.kind} ${t.nodeId}`));

function aJoined(nodeId: NodeId = a): { membership: Membership; session: number } {
  const membership = createMembership();
  const session = membership.join(nodeId, 0);
  membership.sweep(0);
  return { membership, session };
}

describe('departure of an agent', () => {
  it('loses the node when the grace ends without a return', () => {
    const { membership, session } = aJoined();
    expect(membership.depart(a, 1_000, GRACE_MS, session)).toBe(true);
    expect([membership.getState(a), membership.nextDeadline()]).toEqual(['away', 61_000]);
    expect(sweep(membership, 60_999)).toEqual([]);
    expect(sweep(membership, 61_000)).toEqual(['lost a departure']);
  });

  it('reports nothing when the agent returns within the grace, and a crash then has the short lease', () => {
    const { membership, session } = aJoined();
    membership.depart(a, 1_000, GRACE_MS, session);
    membership.join(a, 50_000);
    expect([sweep(membership, 50_000), membership.getState(a)]).toEqual([[], 'connected']);
    expect(sweep(membership, 53_000)).toEqual(['lost a silence']);
  });

  it.each([
    { name: 'a grace of 0 leaves the lease', graceMs: 0, deadline: LEASE_MS },
    {
      name: 'a grace shorter than the lease does not shorten it',
      graceMs: 500,
      deadline: LEASE_MS,
    },
    { name: 'a negative grace counts as 0', graceMs: -1, deadline: LEASE_MS },
  ])('$name', ({ graceMs, deadline }) => {
    const { membership, session } = aJoined();
    membership.depart(a, 0, graceMs, session);
    expect(membership.nextDeadline()).toBe(deadline);
  });

  it.each([
    {
      name: 'an older session',
      depart: (membership: Membership, session: number) => {
        membership.join(a, 10);
        return membership.depart(a, 20, GRACE_MS, session);
      },
    },
    {
      name: 'a session whose connection broke',
      depart: (membership: Membership, session: number) => {
        membership.loseConnection(a, 10, session);
        return membership.depart(a, 20, GRACE_MS, session);
      },
    },
    {
      name: 'an unknown node',
      depart: (membership: Membership) => membership.depart(toNodeId('b'), 20, GRACE_MS),
    },
    {
      name: 'a lost node',
      depart: (membership: Membership, session: number) => {
        membership.sweep(LEASE_MS);
        return membership.depart(a, LEASE_MS, GRACE_MS, session);
      },
    },
  ])('a departure of $name has no effect', ({ depart }) => {
    const { membership, session } = aJoined();
    expect(depart(membership, session)).toBe(false);
    expect(membership.getState(a)).not.toBe('away');
  });

  it('the end of the connection after the departure does not shorten the grace', () => {
    const { membership, session } = aJoined();
    membership.depart(a, 1_000, GRACE_MS, session);
    membership.loseConnection(a, 1_010, session);
    expect(sweep(membership, 60_000)).toEqual([]);
  });

  it('a new leader continues the grace of an expected node', () => {
    const membership = createMembership();
    membership.renewAll(0, [a]);
    expect(membership.depart(a, 0, 20_000)).toBe(true);
    expect(sweep(membership, 19_999)).toEqual([]);
    expect(sweep(membership, 20_000)).toEqual(['lost a departure']);
  });

  it('a confirmed loss ends grace and lease at the next sweep', () => {
    const { membership, session } = aJoined();
    membership.depart(a, 10, GRACE_MS, session);
    membership.endGrace(a);
    expect(sweep(membership, 50)).toEqual(['lost a departure']);
  });

  it('ending the grace of a connected node has no effect', () => {
    const { membership } = aJoined();
    membership.endGrace(a);
    expect(sweep(membership, 50)).toEqual([]);
  });

  it('the time for which the caller was blocked extends the grace', () => {
    const { membership, session } = aJoined();
    membership.depart(a, 0, GRACE_MS, session);
    membership.extendLeases(5_000);
    expect(membership.nextDeadline()).toBe(65_000);
  });

  it('nodes that leave together and do not return engage the replacement brake', () => {
    const membership = createMembership();
    const brake = createReplacementBrake();
    const nodes = Array.from({ length: 5 }, (_, index) => toNodeId(`n${index}`));
    for (const nodeId of nodes) membership.join(nodeId, 0);
    brake.apply(membership.sweep(0));
    for (const nodeId of nodes.slice(0, 4)) membership.depart(nodeId, 0, GRACE_MS);
    for (let nowMs = 0; nowMs <= GRACE_MS; nowMs += 500) {
      membership.renew(toNodeId('n4'), nowMs);
      brake.apply(membership.sweep(nowMs));
    }
    expect(brake.check(GRACE_MS, 1)).toMatchObject({ kind: 'holding', silentCount: 4 });
  });
});

describe('an agent whose main loop does not turn', () => {
  it('is slow after a lease without a turn, and recovers with the next turn', () => {
    const { membership } = aJoined();
    expect(membership.renew(a, 2_900, 2_900)).toBe('renewed');
    expect([sweep(membership, 2_999), sweep(membership, 3_000)]).toEqual([[], ['slow a']]);
    expect(membership.getState(a)).toBe('slow');
    membership.renew(a, 5_000, 5_000);
    expect(sweep(membership, 5_000)).toEqual([]);
    membership.renew(a, 6_000);
    expect(sweep(membership, 6_000)).toEqual(['recovered a']);
    expect(membership.getState(a)).toBe('connected');
  });

  it('is lost as hung after 30 s without a turn although its lease is renewed', () => {
    const { membership } = aJoined();
    const seen: string[] = [];
    for (let nowMs = 900; nowMs <= 31_000; nowMs += 100) {
      if (nowMs % 900 === 0) membership.renew(a, nowMs, nowMs);
      seen.push(...sweep(membership, nowMs).map((text) => `${nowMs} ${text}`));
    }
    expect(seen).toEqual(['3000 slow a', '30000 lost a hung']);
    expect(membership.renew(a, 31_000)).toBe('lost');
  });

  it('is lost by silence when the lease of the slow node is not renewed', () => {
    const { membership } = aJoined();
    membership.renew(a, 2_500, 2_500);
    expect(sweep(membership, 3_000)).toEqual(['slow a']);
    expect(sweep(membership, 5_500)).toEqual(['lost a silence']);
  });

  it('a renewal that reports an older turn does not undo a newer one', () => {
    const { membership } = aJoined();
    membership.renew(a, 2_900);
    membership.renew(a, 3_000, 2_999);
    expect(sweep(membership, 3_100)).toEqual([]);
  });

  it('a slow node that joins again, leaves or loses its connection has recovered', () => {
    const slowNode = (): Membership => {
      const { membership } = aJoined();
      membership.renew(a, 2_900, 2_900);
      membership.sweep(3_000);
      return membership;
    };
    const actions: ((membership: Membership) => unknown)[] = [
      (membership) => membership.join(a, 3_100),
      (membership) => membership.depart(a, 3_100, GRACE_MS),
      (membership) => membership.loseConnection(a, 3_100),
    ];
    expect(
      actions.map((act) => {
        const membership = slowNode();
        act(membership);
        return sweep(membership, 3_100);
      }),
    ).toEqual([['recovered a'], ['recovered a'], ['recovered a']]);
  });
});

describe('Membership with random departures and slow agents', () => {
  const arbAction = fc.record({
    kind: fc.constantFrom('join', 'renew', 'renewSlow', 'depart', 'endGrace', 'sweep', 'sweep'),
    nodeId: fc.nat(3).map((index) => toNodeId(`n${index}`)),
    afterMs: fc.nat(1_500),
    loopAgeMs: fc.nat(40_000),
    graceMs: fc.nat(8_000),
  });

  it('loses exactly the nodes whose lease and grace have ended or whose main loop hangs', () => {
    fc.assert(
      fc.property(fc.array(arbAction, { maxLength: 100, size: 'max' }), (actions) => {
        const membership = createMembership();
        interface Model {
          renewedAt: number;
          turnedAt: number;
          graceEndsAt: number | undefined;
        }
        const trusted = new Map<NodeId, Model>();
        let nowMs = 0;
        for (const { kind, nodeId, afterMs, loopAgeMs, graceMs } of actions) {
          nowMs += afterMs;
          const model = trusted.get(nodeId);
          if (kind === 'join') {
            membership.join(nodeId, nowMs);
            trusted.set(nodeId, { renewedAt: nowMs, turnedAt: nowMs, graceEndsAt: undefined });
          } else if (kind === 'renew' || kind === 'renewSlow') {
            const ageMs = kind === 'renew' ? 0 : loopAgeMs;
            const result = membership.renew(nodeId, nowMs, ageMs);
            expect(result === 'renewed').toBe(model !== undefined);
            if (model === undefined) continue;
            model.renewedAt = nowMs;
            model.turnedAt = Math.max(model.turnedAt, nowMs - ageMs);
          } else if (kind === 'depart') {
            const left = membership.depart(nodeId, nowMs, graceMs);
            expect(left).toBe(model !== undefined && model.graceEndsAt === undefined);
            if (left && model !== undefined) model.graceEndsAt = nowMs + graceMs;
          } else if (kind === 'endGrace') {
            membership.endGrace(nodeId);
            if (model?.graceEndsAt !== undefined)
              Object.assign(model, { graceEndsAt: -Infinity, renewedAt: -Infinity });
          } else {
            const isDue = ({ renewedAt, turnedAt, graceEndsAt }: Model): boolean =>
              graceEndsAt === undefined
                ? Math.min(renewedAt + LEASE_MS, turnedAt + 30_000) <= nowMs
                : Math.max(renewedAt + LEASE_MS, graceEndsAt) <= nowMs;
            const expectedLosses = [...trusted].filter(([, node]) => isDue(node));
            const losses = membership.sweep(nowMs).filter((t) => t.kind === 'lost');
            expect(losses.map((t) => t.nodeId).sort()).toEqual(
              expectedLosses.map(([id]) => id).sort(),
            );
            for (const [id] of expectedLosses) trusted.delete(id);
            for (const [id, node] of trusted) {
              const state = membership.getState(id);
              if (node.graceEndsAt !== undefined) expect(state).toBe('away');
              // The reports of a node are used only while its main loop has turned within a lease.
              else expect(state).toBe(node.turnedAt + LEASE_MS > nowMs ? 'connected' : 'slow');
            }
          }
        }
      }),
      { numRuns: 400 },
    );
  });
});

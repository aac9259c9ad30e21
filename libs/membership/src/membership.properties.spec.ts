import fc from 'fast-check';
import { toNodeId, type NodeId } from '@cloudless/base';
import { createMembership, type Membership } from './index.js';

const NODES = 7;
const arbAction = fc.record({
  kind: fc.constantFrom(
    'join',
    'renew',
    'renew',
    'renew',
    'reset',
    'leave',
    'sweep',
    'sweep',
    'extendLeases',
    'renewAll',
  ),
  nodeId: fc.nat(NODES - 1).map((index) => toNodeId(`n${index}`)),
  afterMs: fc.nat(900),
  lagMs: fc.nat(400),
});

describe('Membership with random actions', () => {
  it('loses exactly the nodes without a renewal in time, with one transition for each change', () => {
    fc.assert(
      fc.property(fc.array(arbAction, { maxLength: 120, size: 'max' }), (actions) => {
        const membership = createMembership();
        let nowMs = 0;
        /** Time of the last renewal of each trusted node, plus every extension since. */
        const renewedAt = new Map<NodeId, number>();
        /** Nodes whose connection broke and that have not joined again. */
        const reset = new Set<NodeId>();
        /** Kind of the last reported transition of each node. */
        const reported = new Map<NodeId, string>();
        /** A message never shortens a lease that was extended. */
        const renewInModel = (id: NodeId): void => {
          renewedAt.set(id, Math.max(nowMs, renewedAt.get(id) ?? 0));
        };
        for (const { kind: action, nodeId, afterMs, lagMs } of actions) {
          nowMs += afterMs;
          if (action === 'join') {
            // The lease that a new leader grants ends with the first session.
            if (membership.getState(nodeId) === 'expected') renewedAt.delete(nodeId);
            membership.join(nodeId, nowMs);
            renewInModel(nodeId);
            reset.delete(nodeId);
          } else if (action === 'renew') {
            if (membership.renew(nodeId, nowMs) === 'renewed') renewInModel(nodeId);
          } else if (action === 'reset') {
            membership.loseConnection(nodeId, nowMs);
            if (membership.getState(nodeId) === 'reconnecting') reset.add(nodeId);
          } else if (action === 'leave') {
            membership.leave(nodeId);
            renewedAt.delete(nodeId);
            reported.delete(nodeId);
            reset.delete(nodeId);
          } else if (action === 'extendLeases') {
            membership.extendLeases(lagMs);
            for (const [renewedId, at] of renewedAt) renewedAt.set(renewedId, at + lagMs);
          } else if (action === 'renewAll') {
            membership.renewAll(nowMs);
            for (const renewedId of renewedAt.keys()) renewInModel(renewedId);
            reset.clear();
          } else {
            const due = membership.nextDeadline();
            const transitions = membership.sweep(nowMs);
            expect(transitions.some((t) => t.kind === 'lost')).toBe(
              due !== undefined && due <= nowMs,
            );
            for (const transition of transitions) {
              const { nodeId: changedId, kind } = transition;
              if (kind === 'lost') {
                expect(reported.get(changedId)).toBe('alive');
                const silentMs = nowMs - (renewedAt.get(changedId) ?? NaN);
                if (transition.cause === 'silence') expect(silentMs).toBeGreaterThanOrEqual(3_000);
                else expect(reset).toContain(changedId);
                renewedAt.delete(changedId);
              }
              reported.set(changedId, kind);
            }
            for (const at of renewedAt.values()) expect(nowMs - at).toBeLessThan(3_000);
          }
          const { expected, connected, reconnecting, lost } = membership.counts();
          expect(expected + connected + reconnecting).toBe(renewedAt.size);
          expect(lost).toBe(
            [...reported.values()].filter((kind) => kind === 'lost').length -
              countRejoined(reported, renewedAt),
          );
        }
      }),
      { numRuns: 600 },
    );
  });

  it('finds in each sweep what a look at all nodes finds', () => {
    const arbStep = fc.record({
      kind: fc.constantFrom(
        ...(['join', 'renew', 'renew', 'renew', 'loseConnection', 'depart', 'endGrace'] as const),
        ...(['leave', 'extendLeases', 'renewAll'] as const),
      ),
      nodeId: fc.nat(NODES - 1).map((index) => toNodeId(`n${index}`)),
      afterMs: fc.constantFrom(0, 50, 250, 900, 2_000),
      valueMs: fc.constantFrom(0, 100, 2_950, 3_000, 29_000),
      sweeps: fc.boolean(),
    });
    const act = (membership: Membership, nowMs: number, step: Step): void => {
      const { kind, nodeId, valueMs } = step;
      if (kind === 'join') membership.join(nodeId, nowMs);
      else if (kind === 'renew') membership.renew(nodeId, nowMs, valueMs);
      else if (kind === 'loseConnection') membership.loseConnection(nodeId, nowMs);
      else if (kind === 'depart') membership.depart(nodeId, nowMs, valueMs);
      else if (kind === 'endGrace') membership.endGrace(nodeId);
      else if (kind === 'leave') membership.leave(nodeId);
      else if (kind === 'extendLeases') membership.extendLeases(valueMs);
      else membership.renewAll(nowMs, [nodeId], valueMs, 2 * valueMs);
    };
    type Step = typeof arbStep extends fc.Arbitrary<infer Value> ? Value : never;
    fc.assert(
      fc.property(fc.array(arbStep, { maxLength: 120, size: 'max' }), (steps) => {
        const [membership, looking] = [createMembership(), createMembership()];
        let nowMs = 0;
        for (const step of steps) {
          nowMs += step.afterMs;
          act(membership, nowMs, step);
          act(looking, nowMs, step);
          if (!step.sweeps) continue;
          // The next sweep after a change of the nodes looks at all of them.
          looking.join(toNodeId('stranger'), nowMs);
          looking.leave(toNodeId('stranger'));
          expect(membership.sweep(nowMs)).toEqual(looking.sweep(nowMs));
          expect(membership.counts()).toEqual(looking.counts());
        }
      }),
      { numRuns: 600 },
    );
  });

  it('renews a node through its lease object until the node leaves', () => {
    const membership = createMembership();
    const nodeId = toNodeId('n');
    expect(membership.find(nodeId)).toBeUndefined();
    membership.join(nodeId, 0);
    const lease = membership.find(nodeId);
    expect(lease?.renew(2_000, 0)).toBe('renewed');
    expect([membership.find(nodeId) === lease, membership.nextDeadline()]).toEqual([true, 5_000]);
    membership.sweep(5_000);
    expect([lease?.state, lease?.renew(5_000, 0)]).toEqual(['lost', 'lost']);
    membership.join(nodeId, 5_000);
    expect([lease?.state, lease?.renew(5_000, 0)]).toEqual(['connected', 'renewed']);
    membership.leave(nodeId);
    membership.join(nodeId, 5_000);
    expect([lease?.state, lease?.renew(6_000, 0)]).toEqual(['lost', 'lost']);
    expect(membership.nextDeadline()).toBe(8_000);
  });

  it('sweeps 5 000 nodes 200 times without a false loss', () => {
    const membership = createMembership();
    const nodes = Array.from({ length: 5_000 }, (_, index) => toNodeId(`node-${index}`));
    for (const nodeId of nodes) membership.join(nodeId, 0);
    expect(membership.sweep(0)).toHaveLength(5_000);
    for (let nowMs = 50; nowMs <= 10_000; nowMs += 50) {
      if (nowMs % 900 === 0) for (const nodeId of nodes) membership.renew(nodeId, nowMs);
      expect(membership.sweep(nowMs)).toEqual([]);
    }
  });
});

/** The number of lost nodes that have joined again and whose transition is still pending. */
function countRejoined(
  reported: ReadonlyMap<NodeId, string>,
  renewedAt: ReadonlyMap<NodeId, number>,
): number {
  return [...reported].filter(([nodeId, kind]) => kind === 'lost' && renewedAt.has(nodeId)).length;
}

import fc from 'fast-check';
import { toNodeId, type NodeId } from '@cloudless/base';
import { createMembership } from './index.js';

const NODES = 7;
const arbAction = fc.record({
  what: fc.constantFrom(
    'join',
    'renew',
    'renew',
    'renew',
    'reset',
    'leave',
    'sweep',
    'sweep',
    'freeze',
    'fresh',
  ),
  who: fc.nat(NODES - 1).map((index) => toNodeId(`n${index}`)),
  afterMs: fc.nat(900),
  lagMs: fc.nat(400),
});

describe('Membership with random actions', () => {
  it('loses exactly the nodes without a renewal in time, with one transition for each change', () => {
    fc.assert(
      fc.property(fc.array(arbAction, { maxLength: 120, size: 'max' }), (actions) => {
        const membership = createMembership();
        let nowMs = 0;
        /**
         * Time of the last renewal of each trusted node, plus every extension since.
         */
        const renewedAt = new Map<NodeId, number>();
        const reset = new Set<NodeId>();
        const reported = new Map<NodeId, string>();
        /** A message never shortens a lease that was extended. */
        const renewInModel = (nodeId: NodeId): void => {
          renewedAt.set(nodeId, Math.max(nowMs, renewedAt.get(nodeId) ?? 0));
        };
        for (const { what, who, afterMs, lagMs } of actions) {
          nowMs += afterMs;
          if (what === 'join') {
            // The lease that a new leader grants ends with the first session.
            if (membership.getState(who) === 'expected') renewedAt.delete(who);
            membership.join(who, nowMs);
            renewInModel(who);
            reset.delete(who);
          } else if (what === 'renew') {
            if (membership.renew(who, nowMs) === 'renewed') renewInModel(who);
          } else if (what === 'reset') {
            membership.loseConnection(who, nowMs);
            if (membership.getState(who) === 'reconnecting') reset.add(who);
          } else if (what === 'leave') {
            membership.leave(who);
            renewedAt.delete(who);
            reported.delete(who);
            reset.delete(who);
          } else if (what === 'freeze') {
            membership.extendLeases(lagMs);
            for (const [nodeId, at] of renewedAt) renewedAt.set(nodeId, at + lagMs);
          } else if (what === 'fresh') {
            membership.renewAll(nowMs);
            for (const nodeId of renewedAt.keys()) renewInModel(nodeId);
            reset.clear();
          } else {
            const due = membership.nextDeadline();
            const transitions = membership.sweep(nowMs);
            expect(transitions.some((t) => t.kind === 'lost')).toBe(
              due !== undefined && due <= nowMs,
            );
            for (const transition of transitions) {
              const { nodeId, kind } = transition;
              if (kind === 'lost') {
                expect(reported.get(nodeId)).toBe('alive');
                const silentMs = nowMs - (renewedAt.get(nodeId) ?? NaN);
                if (transition.cause === 'silence') expect(silentMs).toBeGreaterThanOrEqual(3_000);
                else expect(reset).toContain(nodeId);
                renewedAt.delete(nodeId);
              }
              reported.set(nodeId, kind);
            }
            for (const at of renewedAt.values()) expect(nowMs - at).toBeLessThan(3_000);
          }
          const { expected, connected, reconnecting, lost } = membership.counts();
          expect(expected + connected + reconnecting).toBe(renewedAt.size);
          expect(lost).toBe(
            [...reported.values()].filter((kind) => kind === 'lost').length -
              rejoined(reported, renewedAt),
          );
        }
      }),
      { numRuns: 600 },
    );
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
function rejoined(
  reported: ReadonlyMap<NodeId, string>,
  renewedAt: ReadonlyMap<NodeId, number>,
): number {
  return [...reported].filter(([nodeId, kind]) => kind === 'lost' && renewedAt.has(nodeId)).length;
}

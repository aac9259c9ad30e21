import fc from 'fast-check';
import { toNodeId } from '@cloudless/base';
import { createReplacementBrake, type LossCause, type Transition } from './index.js';

const node = (index: number) => toNodeId(`n${index}`);
const lostNodes = (
  count: number,
  atMs: number,
  cause: LossCause = 'silence',
  from = 0,
): Transition[] =>
  Array.from({ length: count }, (_, index) => ({
    kind: 'lost',
    nodeId: node(from + index),
    atMs,
    cause,
  }));
const aliveNodes = (count: number, atMs: number): Transition[] =>
  Array.from({ length: count }, (_, index) => ({ kind: 'alive', nodeId: node(index), atMs }));

function aHoldingBrake() {
  const brake = createReplacementBrake();
  brake.apply(lostNodes(6, 0));
  expect(brake.check(0, 4)).toMatchObject({
    kind: 'holding',
    sinceMs: 0,
    untilMs: 300_000,
    silentCount: 6,
    nodeCount: 10,
  });
  return brake;
}

describe('ReplacementBrake', () => {
  it.each([
    { name: 'holds for more than half and at least 4 nodes', silent: 4, alive: 3, kind: 'holding' },
    { name: 'does not hold for exactly half', silent: 4, alive: 4, kind: 'released' },
    { name: 'does not hold for fewer than 4 nodes', silent: 3, alive: 0, kind: 'released' },
    { name: 'holds when all nodes are silent', silent: 4, alive: 0, kind: 'holding' },
    { name: 'does not hold for a single node of many', silent: 1, alive: 99, kind: 'released' },
  ])('$name: $silent silent, $alive alive', ({ silent, alive: aliveCount, kind }) => {
    const brake = createReplacementBrake();
    brake.apply(lostNodes(silent, 0));
    expect(brake.check(0, aliveCount).kind).toBe(kind);
  });

  it('counts the 30 s of a loss from the loss, not from the start of the coordinator', () => {
    const brake = createReplacementBrake();
    brake.apply(lostNodes(4, 1_000_000));
    expect(brake.check(1_030_000, 3).kind).toBe('holding');
  });

  it('gives the reason of a hold', () => {
    const brake = createReplacementBrake();
    brake.apply(lostNodes(6, 0));
    expect(brake.check(0, 4)).toMatchObject({ reason: '6 of 10 nodes fell silent together' });
  });

  it('does not count losses by reset', () => {
    const brake = createReplacementBrake();
    brake.apply(lostNodes(6, 0, 'reset'));
    expect(brake.check(0, 0).kind).toBe('released');
  });

  it('holds when more than half of the nodes fell silent within 30 s, and not when this took longer', () => {
    const brake = createReplacementBrake();
    brake.apply(lostNodes(3, 0));
    expect(brake.check(0, 4).kind).toBe('released');
    brake.apply(lostNodes(2, 30_000, 'silence', 3));
    expect(brake.check(30_000, 2).kind).toBe('holding');
    const laterBrake = createReplacementBrake();
    laterBrake.apply(lostNodes(3, 0));
    laterBrake.apply(lostNodes(2, 30_001, 'silence', 3));
    expect(laterBrake.check(30_001, 2).kind).toBe('released');
  });

  it('releases when half of the nodes are alive again', () => {
    const brake = aHoldingBrake();
    brake.apply(aliveNodes(1, 200_000));
    expect(brake.check(200_000, 5).kind).toBe('released');
    expect(brake.check(200_001, 5).kind).toBe('released');
  });

  it('releases after 5 minutes and does not hold again for the same losses', () => {
    const brake = aHoldingBrake();
    expect(brake.check(299_999, 4).kind).toBe('holding');
    expect(brake.check(300_000, 4).kind).toBe('released');
    expect(brake.check(300_050, 4).kind).toBe('released');
  });

  it('releases when an operator confirms enough losses, or all of them', () => {
    const brake = aHoldingBrake();
    brake.confirmLost([node(0), node(77)]);
    expect(brake.check(1, 4).kind).toBe('holding');
    brake.confirmLost([node(1)]);
    expect(brake.check(1, 4).kind).toBe('released');
    const confirmedBrake = aHoldingBrake();
    confirmedBrake.confirmLost();
    expect(confirmedBrake.check(1, 4).kind).toBe('released');
  });

  it('adds nodes that fall silent during a hold to the same hold', () => {
    const brake = aHoldingBrake();
    brake.apply(lostNodes(2, 100_000, 'silence', 6));
    expect(brake.check(100_000, 2)).toMatchObject({
      kind: 'holding',
      sinceMs: 0,
      silentCount: 8,
      nodeCount: 10,
    });
  });

  it('never holds longer than 5 minutes at a time in random histories', () => {
    const arbStep = fc.record({ node: fc.nat(9), up: fc.boolean(), afterMs: fc.nat(20_000) });
    fc.assert(
      fc.property(fc.array(arbStep, { maxLength: 80, size: 'max' }), (steps) => {
        const brake = createReplacementBrake();
        const up = new Set(Array.from({ length: 10 }, (_, index) => index));
        let nowMs = 0;
        for (const step of steps) {
          nowMs += step.afterMs;
          if (step.up !== up.has(step.node)) {
            const nodeId = node(step.node);
            brake.apply([
              step.up
                ? { kind: 'alive', nodeId, atMs: nowMs }
                : { kind: 'lost', nodeId, atMs: nowMs, cause: 'silence' },
            ]);
            if (step.up) up.add(step.node);
            else up.delete(step.node);
          }
          const state = brake.check(nowMs, up.size);
          if (state.kind === 'released') continue;
          expect(nowMs - state.sinceMs).toBeLessThan(300_000);
          expect(10 - up.size).toBeGreaterThanOrEqual(state.silentCount);
          expect(state.silentCount * 2).toBeGreaterThan(state.nodeCount);
        }
      }),
    );
  });
});

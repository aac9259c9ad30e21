import fc from 'fast-check';
import { toNodeId } from '@cloudless/base';
import { createReliability } from './index.js';

const a = toNodeId('a');
const MINUTE = 60_000;

describe('Reliability', () => {
  it.each([
    { name: '1 for an unknown node', record: [], at: 5, score: 1 },
    { name: '1 for a node that just joined', record: [[0, true]], at: 0, score: 1 },
    { name: '1 at the moment of a join that is not ready', record: [[0, false]], at: 0, score: 1 },
    { name: '1 for a node that was always ready', record: [[0, true]], at: 500, score: 1 },
    {
      name: '0.5 for a node that was ready half of its time',
      record: [
        [0, true],
        [10, false],
      ],
      at: 20,
      score: 0.5,
    },
    { name: '0 for a node that was never ready', record: [[0, false]], at: 20, score: 0 },
    {
      name: '0.75 after an outage of 15 of the last 60 minutes',
      record: [
        [0, true],
        [100, false],
        [115, true],
      ],
      at: 120,
      score: 0.75,
    },
    {
      name: '0.75 when a part of the outage is older than an hour',
      record: [
        [0, true],
        [10, false],
        [40, true],
      ],
      at: 85,
      score: 0.75,
    },
    {
      name: '1 when the outage is older than an hour',
      record: [
        [0, true],
        [10, false],
        [40, true],
      ],
      at: 100,
      score: 1,
    },
    {
      name: '31/32 after an outage of 1 of 60 minutes',
      record: [
        [0, true],
        [59, false],
      ],
      at: 60,
      score: 31 / 32,
    },
    {
      name: '1 after an outage of less than half a step',
      record: [
        [0, true],
        [59.5, false],
      ],
      at: 60,
      score: 1,
    },
    {
      name: '0.75 when records are repeated',
      record: [
        [0, true],
        [10, false],
        [12, false],
        [15, true],
        [16, true],
      ],
      at: 20,
      score: 0.75,
    },
  ])('scores $name', ({ record, at, score }) => {
    const reliability = createReliability();
    for (const [minute, ready] of record as [number, boolean][])
      reliability.record(a, ready, minute * MINUTE);
    expect(reliability.score(a, at * MINUTE)).toBe(score);
  });

  it('changes the score at most every 10 s', () => {
    const reliability = createReliability();
    reliability.record(a, true, 0);
    reliability.record(a, false, 1_000);
    expect(reliability.score(a, 2_000)).toBe(0.5);
    expect(reliability.score(a, 11_999)).toBe(0.5);
    expect(reliability.score(a, 12_000)).toBeLessThan(0.1);
  });

  it('starts over for a node that was forgotten', () => {
    const reliability = createReliability();
    reliability.record(a, false, 0);
    expect(reliability.score(a, MINUTE)).toBe(0);
    reliability.forget(a);
    reliability.record(a, true, MINUTE);
    expect(reliability.score(a, 2 * MINUTE)).toBe(1);
  });

  it('scores the share of ready milliseconds of the last hour, rounded to 1/32', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ ready: fc.boolean(), forMs: fc.integer({ min: 1, max: 900_000 }) }), {
          minLength: 1,
          maxLength: 40,
        }),
        (periods) => {
          const reliability = createReliability();
          let nowMs = 0;
          for (const { ready, forMs } of periods) {
            reliability.record(a, ready, nowMs);
            nowMs += forMs;
          }
          const from = Math.max(0, nowMs - 3_600_000);
          let readyMs = 0;
          let at = 0;
          for (const { ready, forMs } of periods) {
            if (ready) readyMs += Math.max(0, at + forMs - Math.max(at, from));
            at += forMs;
          }
          expect(reliability.score(a, nowMs)).toBe(
            Math.round((readyMs / (nowMs - from)) * 32) / 32,
          );
        },
      ),
    );
  });

  it('scores a node that flaps every second for an hour at most 0.5', () => {
    const reliability = createReliability();
    reliability.record(a, true, 0);
    for (let second = 1; second < 3_600; second += 2) {
      reliability.record(a, false, second * 1_000);
      reliability.record(a, true, second * 1_000 + 1_000);
    }
    const score = reliability.score(a, 3_600_000);
    expect(score).toBeGreaterThanOrEqual(0);
    expect(score).toBeLessThanOrEqual(0.5);
  });
});

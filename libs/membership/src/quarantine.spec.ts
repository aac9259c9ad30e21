import { toNodeId } from '@cloudless/base';
import { createQuarantine } from './index.js';

const a = toNodeId('a');
const MINUTE = 60_000;

/**
 * Records three losses at `atMinute`.
 * @returns The end of the quarantine in minutes; undefined without a quarantine.
 */
function recordThreeLosses(
  quarantine: ReturnType<typeof createQuarantine>,
  atMinute: number,
): number | undefined {
  for (let count = 0; count < 3; count += 1) quarantine.recordLoss(a, atMinute * MINUTE);
  const until = quarantine.quarantinedUntil(a, atMinute * MINUTE);
  return until === undefined ? undefined : until / MINUTE;
}

describe('Quarantine', () => {
  it.each([
    { name: 'does not quarantine a node after two losses', lossesAt: [0, 1], until: undefined },
    {
      name: 'quarantines a node after three losses within 10 minutes',
      lossesAt: [0, 5, 9],
      until: 19,
    },
    {
      name: 'does not quarantine a node after three losses in more than 10 minutes',
      lossesAt: [0, 5, 10],
      until: undefined,
    },
    {
      name: 'quarantines a node after three losses within 10 minutes that follow an older loss',
      lossesAt: [0, 8, 11, 12],
      until: 22,
    },
  ])('$name', ({ lossesAt, until }) => {
    const quarantine = createQuarantine();
    for (const minute of lossesAt) quarantine.recordLoss(a, minute * MINUTE);
    const last = (lossesAt.at(-1) ?? 0) * MINUTE;
    expect(quarantine.quarantinedUntil(a, last)).toBe(
      until === undefined ? undefined : until * MINUTE,
    );
  });

  it('ends by itself, doubles when repeated, and starts over after a stable time of its last length', () => {
    const quarantine = createQuarantine();
    expect(recordThreeLosses(quarantine, 0)).toBe(10);
    expect(quarantine.quarantinedUntil(a, 10 * MINUTE)).toBeUndefined();
    expect(recordThreeLosses(quarantine, 15)).toBe(35);
    expect(recordThreeLosses(quarantine, 40)).toBe(80);
    expect(recordThreeLosses(quarantine, 120)).toBe(130);
  });

  it('is extended by losses during the quarantine', () => {
    const quarantine = createQuarantine();
    expect(recordThreeLosses(quarantine, 0)).toBe(10);
    expect(recordThreeLosses(quarantine, 2)).toBe(22);
  });

  it('is never longer than a day', () => {
    const quarantine = createQuarantine();
    let until = 0;
    for (let round = 0; round < 20; round += 1) {
      const at = until;
      until = recordThreeLosses(quarantine, at) ?? NaN;
      expect(until - at).toBeLessThanOrEqual(24 * 60);
    }
  });

  it('applies to one node, and ends when the node is forgotten', () => {
    const quarantine = createQuarantine();
    recordThreeLosses(quarantine, 0);
    expect(quarantine.quarantinedUntil(toNodeId('b'), 0)).toBeUndefined();
    quarantine.forget(a);
    expect(quarantine.quarantinedUntil(a, 0)).toBeUndefined();
    expect(recordThreeLosses(quarantine, 1)).toBe(11);
  });
});

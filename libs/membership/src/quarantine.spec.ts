import { toNodeId } from '@cloudless/base';
import { createQuarantine } from './index.js';

const a = toNodeId('a');
const MINUTE = 60_000;

/** Three losses at once, at `atMinute`; gives the end of the quarantine in minutes. */
function flap(
  quarantine: ReturnType<typeof createQuarantine>,
  atMinute: number,
): number | undefined {
  for (let count = 0; count < 3; count += 1) quarantine.recordLoss(a, atMinute * MINUTE);
  const until = quarantine.quarantinedUntil(a, atMinute * MINUTE);
  return until === undefined ? undefined : until / MINUTE;
}

describe('Quarantine', () => {
  it.each([
    { name: 'two losses are none', lossesAt: [0, 1], until: undefined },
    { name: 'three within 10 minutes', lossesAt: [0, 5, 9], until: 19 },
    { name: 'three within more', lossesAt: [0, 5, 10], until: undefined },
    { name: 'the last three count', lossesAt: [0, 8, 11, 12], until: 22 },
  ])('$name', ({ lossesAt, until }) => {
    const quarantine = createQuarantine();
    for (const minute of lossesAt) quarantine.recordLoss(a, minute * MINUTE);
    const last = (lossesAt.at(-1) ?? 0) * MINUTE;
    expect(quarantine.quarantinedUntil(a, last)).toBe(
      until === undefined ? undefined : until * MINUTE,
    );
  });

  it('ends by itself, doubles when it comes again, and begins anew after a calm as long as the last', () => {
    const quarantine = createQuarantine();
    expect(flap(quarantine, 0)).toBe(10);
    expect(quarantine.quarantinedUntil(a, 10 * MINUTE)).toBeUndefined();
    expect(flap(quarantine, 15)).toBe(35);
    expect(flap(quarantine, 40)).toBe(80);
    expect(flap(quarantine, 120)).toBe(130);
  });

  it('is extended by flapping while it lasts', () => {
    const quarantine = createQuarantine();
    expect(flap(quarantine, 0)).toBe(10);
    expect(flap(quarantine, 2)).toBe(22);
  });

  it('is never longer than a day', () => {
    const quarantine = createQuarantine();
    let until = 0;
    for (let round = 0; round < 20; round += 1) {
      const at = until;
      until = flap(quarantine, at) ?? NaN;
      expect(until - at).toBeLessThanOrEqual(24 * 60);
    }
  });

  it('is per node, and can be forgotten', () => {
    const quarantine = createQuarantine();
    flap(quarantine, 0);
    expect(quarantine.quarantinedUntil(toNodeId('b'), 0)).toBeUndefined();
    quarantine.forget(a);
    expect(quarantine.quarantinedUntil(a, 0)).toBeUndefined();
    expect(flap(quarantine, 1)).toBe(11);
  });
});

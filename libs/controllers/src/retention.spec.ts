import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { EventSchema } from '@cloudless/api';
import { planRemovals, toShare, type RemovableRecord } from './retention.js';

const HOUR_MS = 3_600_000;
const NO_LIMITS = { maxMs: 24 * HOUR_MS, maxBytes: 1_000_000 };
const NOW = 100 * HOUR_MS;

/** Records of 10 bytes with the ids `<share><index>`, an hour apart, the last one written now. */
function recordsOf(...shares: readonly string[]): readonly RemovableRecord[] {
  return shares.map((share, index) => ({
    id: `${share}${index}`,
    share,
    bytes: 10,
    atMs: NOW - (shares.length - 1 - index) * HOUR_MS,
  }));
}

const idsOf = (records: readonly RemovableRecord[]): readonly string[] =>
  records.map(({ id }) => id);

describe('planRemovals', () => {
  it.each([
    { name: 'removes nothing within the limits', limits: {}, removed: [] },
    {
      name: 'removes records that are older than maxMs',
      limits: { maxMs: 2 * HOUR_MS },
      removed: ['a0', 'a1'],
    },
    {
      name: 'removes the oldest record of the largest share first',
      limits: { maxBytes: 40 },
      removed: ['a0'],
    },
    {
      name: 'removes from shares of equal size in turn',
      limits: { maxBytes: 20 },
      removed: ['a0', 'a1', 'b2'],
    },
    {
      name: 'removes every record when no byte may be kept',
      limits: { maxBytes: 0 },
      removed: ['a0', 'a1', 'b2', 'a3', 'b4'],
    },
  ])('$name', ({ limits, removed }) => {
    const records = recordsOf('a', 'a', 'b', 'a', 'b');
    expect(idsOf(planRemovals(records, { ...NO_LIMITS, ...limits }, NOW))).toEqual(removed);
  });

  it('removes a record without a time', () => {
    const records = [{ id: 'a', share: 'a', bytes: 10, atMs: undefined }];
    expect(idsOf(planRemovals(records, NO_LIMITS, NOW))).toEqual(['a']);
  });

  it('keeps at most maxBytes, and removes nothing from a share of at most maxBytes / shares', () => {
    const arbRecords = fc.array(
      fc.record({
        share: fc.constantFrom('a', 'b', 'c', 'd'),
        bytes: fc.integer({ min: 1, max: 50 }),
      }),
    );
    fc.assert(
      fc.property(arbRecords, fc.integer({ min: 0, max: 2_000 }), (generated, maxBytes) => {
        const records = generated.map((record, index) => ({
          ...record,
          id: `${index}`,
          atMs: NOW,
        }));
        const removed = new Set(planRemovals(records, { ...NO_LIMITS, maxBytes }, NOW));
        const bytesOf = (counted: readonly RemovableRecord[]): number =>
          counted.reduce((sum, { bytes }) => sum + bytes, 0);
        const kept = records.filter((record) => !removed.has(record));
        expect(bytesOf(kept)).toBeLessThanOrEqual(maxBytes);
        const shares = [...new Set(records.map(({ share }) => share))];
        for (const share of shares) {
          const ofShare = records.filter((record) => record.share === share);
          if (bytesOf(ofShare) > maxBytes / shares.length) continue;
          expect(ofShare.filter((record) => removed.has(record))).toEqual([]);
        }
      }),
    );
  });

  it('removes the oldest records of each share', () => {
    const records = recordsOf(...Array.from({ length: 60 }, (_, index) => 'abc'[index % 3] ?? 'a'));
    const removed = new Set(planRemovals(records, { maxMs: 100 * HOUR_MS, maxBytes: 200 }, NOW));
    for (const share of ['a', 'b', 'c']) {
      const isRemoved = records
        .filter((record) => record.share === share)
        .map((record) => removed.has(record));
      expect(isRemoved).toEqual([...isRemoved].sort((a, b) => Number(b) - Number(a)));
    }
  });
});

describe('toShare', () => {
  const shareOf = (principal: string, address: string): string =>
    toShare(create(EventSchema, { audit: { principal, address, rpc: 'a.B/C' } }));

  it('gives a stranger with many addresses one share, and each address of a user its own', () => {
    expect(shareOf('unauthenticated', '2001:db8::1')).toBe(
      shareOf('unauthenticated', '2001:db8::2'),
    );
    expect(shareOf('user/ada', '10.0.0.1')).not.toBe(shareOf('user/ada', '10.0.0.2'));
    expect(shareOf('user/ada', '10.0.0.1')).not.toBe(shareOf('unauthenticated', '10.0.0.1'));
  });
});

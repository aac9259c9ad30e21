import fc from 'fast-check';
import { ReplicaIdMap } from './replica-id-map.js';

const arbId = fc.oneof(
  fc
    .tuple(fc.constantFrom('', 'a', 'ab', 'a-1'), fc.nat({ max: 3 }))
    .map((parts) => parts.join('-')),
  fc.constantFrom(
    '',
    '-',
    'a',
    'a-',
    'a-01',
    'a-1x',
    'a--1',
    '7',
    'a-9007199254740992',
    'a-9007199254740993',
  ),
);
/** A value to set; undefined deletes the id. */
const arbStep = fc.record({ id: arbId, value: fc.option(fc.nat(), { nil: undefined }) });

describe('ReplicaIdMap', () => {
  it('behaves like a Map with the same ids, and keeps no empty groups', () => {
    fc.assert(
      fc.property(fc.array(arbStep, { maxLength: 30 }), (steps) => {
        const map = new ReplicaIdMap<number>();
        const expected = new Map<string, number>();
        for (const { id, value } of steps) {
          if (value === undefined) {
            map.delete(id);
            expected.delete(id);
          } else {
            map.set(id, value);
            expected.set(id, value);
          }
          const sequences = [...expected.keys()].filter((key) => /-(0|[1-9]\d{0,9})$/u.test(key));
          const uids = new Set(sequences.map((key) => key.slice(0, key.lastIndexOf('-'))));
          expect(map.workloadCount).toBe(uids.size);
          for (const known of steps) expect(map.get(known.id)).toBe(expected.get(known.id));
        }
      }),
    );
  });
});

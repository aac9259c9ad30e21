import fc from 'fast-check';
import {
  createSeededRandom,
  randomHex,
  replicaIdOf,
  toContainerId,
  toNodeId,
  toReplicaId,
  toWorkloadId,
} from './index.js';

/** The sequence for seed 1, computed with the C code of the paper. */
const RECORDED: readonly number[] = [393288148, 2174103013, 3814759091, 2092745082];

const drawNumbers = (seed: number, count: number): number[] => {
  const random = createSeededRandom(seed);
  return Array.from({ length: count }, () => random.next());
};

describe('createSeededRandom', () => {
  // A recorded seed must always replay: these numbers may not change.
  it('returns the recorded sequence for seed 1', () => {
    expect(drawNumbers(1, 4).map((value) => value * 2 ** 32)).toEqual(RECORDED);
    expect([...createSeededRandom(1).bytes(4)]).toEqual(RECORDED.map((value) => value % 256));
  });

  it('returns equal sequences for equal seeds, and different sequences for different seeds', () => {
    fc.assert(
      fc.property(fc.integer(), fc.integer(), (seed, otherSeed) => {
        expect(drawNumbers(seed, 8)).toEqual(drawNumbers(seed, 8));
        if (seed !== otherSeed) expect(drawNumbers(seed, 8)).not.toEqual(drawNumbers(otherSeed, 8));
      }),
    );
  });

  it('returns uniform numbers in [0, 1)', () => {
    const values = drawNumbers(42, 20_000);
    expect(values.every((value) => value >= 0 && value < 1)).toBe(true);
    const tenths = Array.from(
      { length: 10 },
      (_, index) => values.filter((value) => Math.floor(value * 10) === index).length,
    );
    for (const count of tenths) expect(Math.abs(count - 2_000)).toBeLessThan(200);
  });

  it('returns the requested number of bytes, with all byte values', () => {
    const random = createSeededRandom(7);
    expect(random.bytes(0)).toEqual(new Uint8Array());
    expect(new Set(random.bytes(10_000)).size).toBe(256);
  });
});

describe('ids', () => {
  it('are equal to the text that they were made of', () => {
    expect([toNodeId('n'), toWorkloadId('w'), toReplicaId('r'), toContainerId('c')]).toEqual([
      'n',
      'w',
      'r',
      'c',
    ]);
    expect(replicaIdOf(toWorkloadId('00ff00ff00ff00ff'), 12)).toBe('00ff00ff00ff00ff-12');
  });
});

describe('randomHex', () => {
  it('returns two digits for each byte, also for bytes below 16', () => {
    expect(randomHex({ next: () => 0, bytes: () => Uint8Array.of(0, 1, 15, 16, 255) }, 5)).toBe(
      '00010f10ff',
    );
    fc.assert(
      fc.property(fc.nat(64), fc.integer(), (count, seed) =>
        expect(randomHex(createSeededRandom(seed), count)).toMatch(
          new RegExp(`^[0-9a-f]{${count * 2}}$`),
        ),
      ),
    );
  });
});

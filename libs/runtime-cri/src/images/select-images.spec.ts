import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  selectImagesToRemove,
  type SelectionInput,
  type PresentImage,
  type PulledImage,
} from './select-images.js';

const NOW = 10_000_000;
const limits = { highPercent: 85, lowPercent: 80, minIdleMs: 120_000 };
const anImage = (id: string, overrides: Partial<PresentImage> = {}): PresentImage => ({
  ...{ id, names: [`${id}:1`], sizeBytes: 10, isPinned: false },
  ...overrides,
});
const pull = (id: string, idleMs: number, overrides: Partial<PulledImage> = {}): PulledImage => ({
  ...{ id, cluster: 'c1', names: [`${id}:1`], usedAtMs: NOW - idleMs },
  ...overrides,
});
/** A disk with a usage of 86 %. */
const anInput = (overrides: Partial<SelectionInput>): SelectionInput => ({
  ...{ cluster: 'c1', images: [], pulled: [], inUse: new Set<string>(), limits, nowMs: NOW },
  ...{ disk: { capacityBytes: 100, availableBytes: 14 } },
  ...overrides,
});

const OLD = 3_600_000;

describe('selectImagesToRemove', () => {
  const twoImages = {
    images: [anImage('a'), anImage('b')],
    pulled: [pull('a', OLD), pull('b', 2 * OLD)],
  };
  it.each([
    { name: 'returns the least recently used image', change: {}, remove: ['b'], missingBytes: 0 },
    {
      name: 'returns images of equal age in the order of their ids',
      change: { images: [anImage('b'), anImage('a')], pulled: [pull('a', OLD), pull('b', OLD)] },
      remove: ['a'],
      missingBytes: 0,
    },
    {
      name: 'returns no image when the usage is exactly the higher limit',
      change: { disk: { capacityBytes: 100, availableBytes: 15 } },
      remove: [],
      missingBytes: 0,
    },
    {
      name: 'returns as many images as necessary to reach the lower limit',
      change: { disk: { capacityBytes: 100, availableBytes: 0 } },
      remove: ['b', 'a'],
      missingBytes: 0,
    },
    {
      name: 'returns the missing bytes when too little can be removed',
      change: { disk: { capacityBytes: 1_000, availableBytes: 0 } },
      remove: ['b', 'a'],
      missingBytes: 180,
    },
    {
      name: 'keeps an image that a container uses by id',
      change: { inUse: new Set(['b']) },
      remove: ['a'],
      missingBytes: 0,
    },
    {
      name: 'keeps an image that a container uses by name',
      change: { inUse: new Set(['b:1']) },
      remove: ['a'],
      missingBytes: 0,
    },
    {
      name: 'keeps an image that another cluster pulled',
      change: { pulled: [pull('b', OLD, { cluster: 'c2' })] },
      remove: [],
      missingBytes: 6,
    },
    {
      name: 'keeps an image that no cluster pulled',
      change: { pulled: [] },
      remove: [],
      missingBytes: 6,
    },
    {
      name: 'keeps an image that was used recently',
      change: { pulled: [pull('b', 119_999)] },
      remove: [],
      missingBytes: 6,
    },
    {
      name: 'keeps an image with a name from another source',
      change: { images: [anImage('b', { names: ['b:1', 'theirs:1'] })] },
      remove: [],
      missingBytes: 6,
    },
    {
      name: 'keeps an image that the runtime has pinned',
      change: { images: [anImage('b', { isPinned: true })] },
      remove: [],
      missingBytes: 6,
    },
    {
      name: 'returns an image that has lost its names',
      change: { images: [anImage('b', { names: [] })] },
      remove: ['b'],
      missingBytes: 0,
    },
  ])('$name', ({ change, remove, missingBytes }) => {
    expect(selectImagesToRemove(anInput({ ...twoImages, ...change }))).toEqual({
      remove,
      missingBytes,
    });
  });
});

const ids = ['a', 'b', 'c', 'd', 'e'];
const names = ids.flatMap((id) => [`${id}:1`, `${id}:2`]);
const arbInput = fc
  .record({
    images: fc.uniqueArray(
      fc.record({
        id: fc.constantFrom(...ids),
        names: fc.subarray(names, { maxLength: 3 }),
        sizeBytes: fc.integer({ min: 0, max: 60 }),
        isPinned: fc.boolean(),
      }),
      { selector: ({ id }) => id },
    ),
    pulled: fc.uniqueArray(
      fc.record({
        id: fc.constantFrom(...ids),
        cluster: fc.constantFrom('c1', 'c2'),
        names: fc.subarray(names),
        usedAtMs: fc.integer({ min: NOW - 200_000, max: NOW + 200_000 }),
      }),
      { selector: ({ id, cluster }) => `${id} ${cluster}` },
    ),
    inUse: fc.subarray([...ids, ...names], { maxLength: 3 }).map((each) => new Set(each)),
    availableBytes: fc.integer({ min: 0, max: 100 }),
  })
  .map(({ availableBytes, ...rest }) =>
    anInput({ ...rest, disk: { capacityBytes: 100, availableBytes } }),
  );

/** Returns true when an image may be removed, decided independently of the tested function. */
function isRemovable({ images, pulled, inUse, cluster }: SelectionInput, id: string): boolean {
  const present = images.find((each) => each.id === id);
  const own = pulled.find((each) => each.id === id && each.cluster === cluster);
  if (present === undefined || own === undefined || present.isPinned || inUse.has(id)) return false;
  if (own.usedAtMs > NOW - limits.minIdleMs) return false;
  return present.names.every((name) => own.names.includes(name) && !inUse.has(name));
}

describe('selectImagesToRemove with generated input', () => {
  it('returns only removable images, each once, least recently used first, no more than needed', () => {
    fc.assert(
      fc.property(arbInput, (input) => {
        const { remove, missingBytes } = selectImagesToRemove(input);
        const usedAt = (id: string): number =>
          input.pulled.find((each) => each.id === id && each.cluster === input.cluster)?.usedAtMs ??
          0;
        const size = (id: string): number =>
          input.images.find((each) => each.id === id)?.sizeBytes ?? 0;
        const left = input.images
          .map(({ id }) => id)
          .filter((id) => isRemovable(input, id) && !remove.includes(id));
        expect(new Set(remove).size).toBe(remove.length);
        expect(remove.filter((id) => !isRemovable(input, id))).toEqual([]);
        expect(remove.map(usedAt)).toEqual(remove.map(usedAt).sort((a, b) => a - b));
        for (const id of left)
          expect(usedAt(id)).toBeGreaterThanOrEqual(Math.max(0, ...remove.map(usedAt)));
        const used = 100 - input.disk.availableBytes;
        const freed = remove.reduce((sum, id) => sum + size(id), 0);
        if (used <= 85) expect(remove).toEqual([]);
        if (remove.length > 0)
          expect(used - (freed - size(remove.at(-1) ?? ''))).toBeGreaterThan(80);
        if (used > 85) expect(missingBytes).toBe(Math.max(0, used - freed - 80));
        if (missingBytes > 0) expect(left).toEqual([]);
      }),
    );
  });

  it('does not depend on the order of the input', () => {
    fc.assert(
      fc.property(arbInput, (input) => {
        const reversed = {
          ...input,
          images: [...input.images].reverse(),
          pulled: [...input.pulled].reverse(),
        };
        expect(selectImagesToRemove(reversed)).toEqual(selectImagesToRemove(input));
      }),
    );
  });
});

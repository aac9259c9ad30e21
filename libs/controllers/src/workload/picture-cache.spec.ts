import fc from 'fast-check';
import { PictureCache, type Picture } from './picture-cache.js';

const HEAD_BYTES = 10;
const FULL_BYTES = 100;

const createHead = (): Picture => ({ head: new Uint8Array(HEAD_BYTES) });

/** Reads the whole message of a workload; true when the message was kept. */
function readWhole(cache: PictureCache, uid: string): boolean {
  const picture = cache.take(uid);
  const isKept = picture.full !== undefined;
  picture.head ??= new Uint8Array(HEAD_BYTES);
  picture.full ??= new Uint8Array(FULL_BYTES);
  cache.keep(uid, picture, !isKept);
  return isKept;
}

/** Reads the small part of a workload; true when the part was kept. */
function readHead(cache: PictureCache, uid: string): boolean {
  const picture = cache.take(uid);
  const isKept = picture.head !== undefined;
  cache.keep(uid, isKept ? picture : createHead(), false);
  return isKept;
}

const listUids = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `w${index}`);

describe('the cache of pictures', () => {
  it('keeps the small parts of all workloads when their whole messages do not fit', () => {
    const uids = listUids(100);
    const cache = new PictureCache(100 * HEAD_BYTES + 5 * FULL_BYTES);
    for (const uid of uids) readWhole(cache, uid);
    expect(uids.filter((uid) => readHead(cache, uid))).toEqual(uids);
  });

  it('drops whole messages for the small parts of other workloads', () => {
    const cache = new PictureCache(10 * HEAD_BYTES + FULL_BYTES);
    for (const uid of ['a', 'b']) readWhole(cache, uid);
    const uids = listUids(18);
    for (const uid of uids) readHead(cache, uid);
    expect(uids.filter((uid) => readHead(cache, uid))).toEqual(uids);
    expect(readWhole(cache, 'a')).toBe(false);
  });

  it('keeps whole messages that fit while a reader reads more in turns', () => {
    const uids = listUids(200);
    const cache = new PictureCache(200 * HEAD_BYTES + 100 * FULL_BYTES);
    for (const uid of uids) readWhole(cache, uid);
    // The small parts of the last workloads took the place of some whole messages in the first round.
    for (let round = 0; round < 3; round += 1)
      expect(uids.filter((uid) => readWhole(cache, uid)).length).toBeGreaterThanOrEqual(90);
  });

  it('keeps the whole message of a workload that is read again soon, instead of the oldest', () => {
    const cache = new PictureCache(2 * (HEAD_BYTES + FULL_BYTES) + HEAD_BYTES);
    for (const uid of ['a', 'b', 'c', 'c']) readWhole(cache, uid);
    expect(['b', 'c'].map((uid) => readWhole(cache, uid))).toEqual([true, true]);
    expect(readWhole(cache, 'a')).toBe(false);
  });

  it('counts the kept bytes, stays within the limit, and keeps nothing of empty pictures', () => {
    const uids = listUids(6);
    const arbUid = fc.constantFrom(...uids);
    const arbStep = fc.oneof(
      fc.record({ kind: fc.constantFrom('whole' as const, 'head' as const), uid: arbUid }),
      fc.record({
        kind: fc.constant('drop' as const),
        uid: arbUid,
        parts: fc.subarray(['head', 'full'] as const),
      }),
    );
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 500 }), fc.array(arbStep), (maxBytes, steps) => {
        const cache = new PictureCache(maxBytes);
        for (const step of steps) {
          if (step.kind === 'drop') cache.drop(step.uid, step.parts);
          else (step.kind === 'whole' ? readWhole : readHead)(cache, step.uid);
          expect(cache.keptBytes).toBeLessThanOrEqual(maxBytes);
        }
        for (const uid of uids) cache.drop(uid, ['head', 'full']);
        expect(cache).toMatchObject({ size: 0, keptBytes: 0 });
      }),
    );
  });
});

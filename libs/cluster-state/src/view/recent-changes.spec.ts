import fc from 'fast-check';
import { RecentChanges } from './recent-changes.js';
import type { ViewBatch, ViewFollower } from './view-follower.js';

const LIMITS = { revisions: 5, bytes: 1_000, unreadBytes: 200 };

/** The recent changes of a view, and a function that adds the next revision to the view. */
function createRecentChanges() {
  let listener: ((batch: ViewBatch) => void) | undefined;
  let revision = 0n;
  const follower = {
    view: { revision },
    onBatch: (added: typeof listener) => {
      listener = added;
      return () => undefined;
    },
  };
  const recent = new RecentChanges(follower as Pick<ViewFollower, 'onBatch' | 'view'>, LIMITS);
  const add = (bytes: number): void => {
    revision += 1n;
    listener?.({ changes: [], revision, bytes, isSnapshot: false });
  };
  return { recent, add };
}

/** Returns the revision before the oldest kept one. Counts as a call of a reader. */
function findStart(recent: RecentChanges): number {
  let start = 0;
  while (!recent.covers(BigInt(start))) start += 1;
  return start;
}

describe('RecentChanges', () => {
  it('keeps at most unreadBytes before the first call of a reader, and more after it', () => {
    const { recent, add } = createRecentChanges();
    for (let each = 0; each < 4; each += 1) add(100);
    expect(findStart(recent)).toBe(2);
    for (let each = 0; each < 3; each += 1) add(100);
    expect(findStart(recent)).toBe(2);
  });

  it('keeps more for a reader whose position is too old', () => {
    const { recent, add } = createRecentChanges();
    for (let each = 0; each < 3; each += 1) add(100);
    expect(recent.covers(0n)).toBe(false);
    for (let each = 0; each < 2; each += 1) add(100);
    expect(findStart(recent)).toBe(1);
  });

  it('keeps the newest revision at any size', () => {
    const { recent, add } = createRecentChanges();
    for (const bytes of [100, 900]) add(bytes);
    expect(findStart(recent)).toBe(1);
    add(1_001);
    expect(findStart(recent)).toBe(2);
  });

  it('returns to unreadBytes after more than `revisions` revisions without a reader', () => {
    const { recent, add } = createRecentChanges();
    expect(recent.covers(0n)).toBe(true);
    for (let each = 0; each < 6; each += 1) add(100);
    expect(findStart(recent)).toBe(4);
  });

  it('keeps the newest revisions that its limits allow, without gaps', () => {
    const steps = fc.array(fc.oneof(fc.nat(1_200), fc.nat(200), fc.constant('read' as const)), {
      maxLength: 60,
    });
    fc.assert(
      fc.property(steps, (all) => {
        const { recent, add } = createRecentChanges();
        const sizes: number[] = [];
        let unread = Infinity;
        let start = 0;
        for (const step of all) {
          if (step !== 'read') {
            add(step);
            sizes.push(step);
            unread += 1;
            const maxBytes = unread > LIMITS.revisions ? LIMITS.unreadBytes : LIMITS.bytes;
            const isAbove = (): boolean => {
              const kept = sizes.slice(start);
              const bytes = kept.reduce((sum, size) => sum + size, 0);
              return kept.length > LIMITS.revisions || (kept.length > 1 && bytes > maxBytes);
            };
            while (isAbove()) start += 1;
            continue;
          }
          unread = 0;
          expect(findStart(recent)).toBe(start);
          expect(
            recent.listAfter(BigInt(start), sizes.length).map(({ revision }) => Number(revision)),
          ).toEqual(sizes.slice(start).map((_, index) => start + index + 1));
        }
      }),
    );
  });
});

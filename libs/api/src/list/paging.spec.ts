import fc from 'fast-check';
import { iterateAfter, iterateBefore, paginate, paginateIndex } from '../index.js';

const byCode = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const descending = (a: string, b: string): number => byCode(b, a);
const identity = (key: string): string => key;
const all = { filter: ['things'] };
const key = fc.string({ unit: fc.constantFrom('a', 'b', '/', '%', 'é', '💥', ' '), maxLength: 6 });

describe('paginate', () => {
  const items = Array.from({ length: 250 }, (_, index) => `n${String(index).padStart(3, '0')}`);

  it('returns 100 items by default, and no token on the last page', () => {
    const first = paginate(items, identity, { pageSize: 0, pageToken: '' }, all);
    const second = paginate(items, identity, { pageSize: 0, pageToken: first.nextPageToken }, all);
    const third = paginate(items, identity, { pageSize: 0, pageToken: second.nextPageToken }, all);
    expect([first, second, third].map((page) => page.items.length)).toEqual([100, 100, 50]);
    expect([...first.items, ...second.items, ...third.items]).toEqual(items);
    expect(third.nextPageToken).toBe('');
  });

  it('returns no token when the page contains the last item', () => {
    expect(paginate(items, identity, { pageSize: 250, pageToken: '' }, all).nextPageToken).toBe('');
    expect(paginate([], identity, { pageSize: 5, pageToken: '' }, all)).toEqual({
      items: [],
      nextPageToken: '',
    });
  });

  it.each([-1, 1_001, 1.5, Number.NaN])('rejects the page size %p', (pageSize) => {
    expect(() => paginate(items, identity, { pageSize, pageToken: '' }, all)).toThrow(
      expect.objectContaining({
        violations: [{ field: 'page_size', message: 'must be from 0 to 1000' }],
      }),
    );
  });

  it.each([
    'x',
    'n001',
    'p1.n001',
    'p2.n001',
    'p2.0123456789abcdef.%',
    'p2.0123456789abcdef.%FF',
    'p2.0123456789ABCDEF.a',
  ])('rejects the malformed page token %p', (pageToken) => {
    const message =
      'is not a token of this server; pass next_page_token of the previous page unchanged';
    expect(() => paginate(items, identity, { pageSize: 5, pageToken }, all)).toThrow(
      expect.objectContaining({ violations: [{ field: 'page_token', message }] }),
    );
  });

  it('accepts a token for the same filter, and rejects it for another filter', () => {
    const first = { filter: ['things', 'a', 'b'] };
    const { nextPageToken: pageToken } = paginate(
      items,
      identity,
      { pageSize: 5, pageToken: '' },
      first,
    );
    expect(
      paginate(items, identity, { pageSize: 2, pageToken }, { filter: ['things', 'a', 'b'] }).items,
    ).toEqual(['n005', 'n006']);
    const message =
      'belongs to a list with another filter; repeat the filter of the first page, or start without a token';
    for (const filter of [
      ['things', 'a'],
      ['things', 'ab', ''],
      ['things', 'a', 'c'],
      ['things', 'a', 'b', true],
      ['others', 'a', 'b'],
    ]) {
      expect(() => paginate(items, identity, { pageSize: 5, pageToken }, { filter })).toThrow(
        expect.objectContaining({ violations: [{ field: 'page_token', message }] }),
      );
    }
  });

  it('returns pages that together are the whole list, for any page size and order', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(key, { maxLength: 40 }),
        fc.integer({ min: 1, max: 7 }),
        fc.constantFrom(byCode, descending),
        (keys, pageSize, compare) => {
          const sorted = [...keys].sort(compare);
          const read: string[] = [];
          let pageToken = '';
          do {
            const page = paginate(sorted, identity, { pageSize, pageToken }, { ...all, compare });
            expect(page.items.length).toBeLessThanOrEqual(pageSize);
            read.push(...page.items);
            pageToken = page.nextPageToken;
          } while (pageToken !== '');
          expect(read).toEqual(sorted);
        },
      ),
    );
  });

  it('neither skips nor repeats an item that stays when others are added or removed between pages', () => {
    const changes = fc.array(
      fc.record({ add: fc.array(key, { maxLength: 3 }), remove: fc.array(key, { maxLength: 3 }) }),
      {
        maxLength: 30,
      },
    );
    fc.assert(
      fc.property(
        fc.uniqueArray(key, { maxLength: 25 }),
        changes,
        fc.integer({ min: 1, max: 4 }),
        fc.constantFrom(byCode, descending),
        (start, steps, pageSize, compare) => {
          const present = new Set(start);
          const removed = new Set<string>();
          const read: string[] = [];
          let pageToken = '';
          let step = 0;
          do {
            const page = paginate(
              [...present].sort(compare),
              identity,
              { pageSize, pageToken },
              { ...all, compare },
            );
            for (const item of page.items) expect(present.has(item)).toBe(true);
            read.push(...page.items);
            pageToken = page.nextPageToken;
            const { add = [], remove = [] } = steps[step] ?? {};
            step += 1;
            for (const item of remove) if (present.delete(item)) removed.add(item);
            for (const item of add) present.add(item);
          } while (pageToken !== '');
          expect(new Set(read).size).toBe(read.length);
          expect(start.filter((item) => !removed.has(item) && !read.includes(item))).toEqual([]);
        },
      ),
    );
  });
});

describe('paginateIndex', () => {
  it('returns the pages of a filter over everything, in both directions, for any list and page size', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(key, { maxLength: 40 }),
        fc.integer({ min: 1, max: 7 }),
        fc.boolean(),
        fc.func(fc.boolean()),
        (keys, pageSize, newestFirst, matches) => {
          const sorted = [...keys].sort(byCode);
          const compare = newestFirst ? descending : byCode;
          const expected = sorted.filter((item) => matches(item)).sort(compare);
          let pageToken = '';
          do {
            const request = { pageSize, pageToken };
            const page = paginateIndex(
              (after) => (newestFirst ? iterateBefore : iterateAfter)(sorted, identity, after),
              identity,
              request,
              all,
              (item) => matches(item),
            );
            expect(page).toEqual(paginate(expected, identity, request, { ...all, compare }));
            pageToken = page.nextPageToken;
          } while (pageToken !== '');
        },
      ),
    );
  });

  it('ends a page after the largest number of examined items, and misses none of the next ones', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(key, { maxLength: 40 }),
        fc.integer({ min: 1, max: 7 }),
        fc.integer({ min: 1, max: 5 }),
        fc.func(fc.boolean()),
        (keys, pageSize, maxExamined, matches) => {
          const sorted = [...keys].sort(byCode);
          const read: string[] = [];
          let pageToken = '';
          do {
            let examined = 0;
            const page = paginateIndex(
              (after) => iterateAfter(sorted, identity, after),
              identity,
              { pageSize, pageToken },
              { ...all, maxExamined },
              (item) => (examined += 1) > 0 && matches(item),
            );
            expect(examined).toBeLessThanOrEqual(maxExamined);
            read.push(...page.items);
            pageToken = page.nextPageToken;
          } while (pageToken !== '');
          expect(read).toEqual(sorted.filter((item) => matches(item)));
        },
      ),
    );
  });

  it('examines one record more than a page has, wherever the page begins', () => {
    const sorted = Array.from(
      { length: 5_000 },
      (_, index) => `n${String(index).padStart(4, '0')}`,
    );
    let examined = 0;
    let pageToken = '';
    let pages = 0;
    do {
      const page = paginateIndex(
        (after) => iterateAfter(sorted, identity, after),
        identity,
        { pageSize: 100, pageToken },
        all,
        () => (examined += 1) > 0,
      );
      pages += 1;
      pageToken = page.nextPageToken;
    } while (pageToken !== '');
    expect({ pages, examined }).toEqual({ pages: 50, examined: 5_000 + 49 });
  });
});

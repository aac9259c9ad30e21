import { findRelatives, type TreeProcess } from './process-tree.js';

const aProcess = (pid: number, parent: number, session: number): TreeProcess => ({
  pid,
  parent,
  session,
  startToken: `${pid}`,
});

describe('findRelatives', () => {
  it.each([
    { name: 'a child of the leader', others: [aProcess(11, 10, 10)], relatives: [11] },
    {
      name: 'a child of the leader in a session of its own',
      others: [aProcess(11, 10, 11)],
      relatives: [11],
    },
    {
      name: 'descendants of the leader in any order',
      others: [aProcess(13, 12, 12), aProcess(12, 11, 12), aProcess(11, 10, 10)],
      relatives: [11, 12, 13],
    },
    {
      name: 'an orphan in the session of the leader',
      others: [aProcess(12, 1, 10)],
      relatives: [12],
    },
    {
      name: 'descendants of an orphan in the session of the leader',
      others: [aProcess(13, 12, 13), aProcess(12, 1, 10)],
      relatives: [12, 13],
    },
    {
      name: 'no unrelated process',
      others: [aProcess(12, 1, 12), aProcess(13, 12, 9)],
      relatives: [],
    },
  ])('returns $name', ({ others, relatives }) => {
    const everything = [aProcess(1, 0, 1), aProcess(9, 1, 9), aProcess(10, 9, 10), ...others];
    expect(
      findRelatives(10, everything)
        .map(({ pid }) => pid)
        .sort(),
    ).toEqual(relatives);
  });
});

import { CloudlessError, createSeededRandom } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { SimCoordinator } from '../parts/sim-coordinator.js';
import type { SimDisk } from '../parts/sim-disk.js';
import { SimRandom } from '../parts/sim-random.js';
import { StoreWatcher } from './watch-checker.js';

const COMPACTED = 'compacted';

/**
 * Lets a watcher read these revisions.
 * @param compactedRevision - Newest compacted revision of the disk.
 * @returns The reported violations.
 */
async function watch(
  revisions: readonly (bigint | typeof COMPACTED)[],
  compactedRevision = 0n,
): Promise<readonly string[]> {
  const violations: string[] = [];
  const waiting = [...revisions];
  const random = Object.assign(new SimRandom(1), {
    random: createSeededRandom(1),
    chance: () => false,
  });
  const disk = { compactedRevision, revision: 9n } as SimDisk;
  const process = { isDead: false };
  async function* read() {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      if (next === COMPACTED) throw new CloudlessError('compacted', 'gone');
      yield { revision: next, changes: [] };
    }
  }
  const coordinator = { process, engine: { watch: read } } as unknown as SimCoordinator;
  const violation = (text: string): number => violations.push(text);
  await new StoreWatcher({
    time: new ManualClock(),
    random,
    disk,
    reportViolation: violation,
    trace: () => undefined,
  }).follow(coordinator);
  return violations;
}

describe('StoreWatcher', () => {
  it.each([
    { name: 'no violation for consecutive revisions', revisions: [1n, 2n, 3n], says: [] },
    {
      name: 'a violation for a missing revision',
      revisions: [1n, 3n],
      says: ['4: a watch went from revision 1 to 3'],
    },
    {
      name: 'a violation for a repeated revision',
      revisions: [1n, 2n, 2n],
      says: ['4: a watch went from revision 2 to 2'],
    },
    {
      name: 'no violation for a compaction beyond its position',
      revisions: [COMPACTED, 10n],
      compacted: 5n,
      says: [],
    },
    {
      name: 'a violation when changes that are still kept are reported as compacted',
      revisions: [1n, COMPACTED],
      compacted: 1n,
      says: ['4: revision 1 was reported as compacted, but the newest compacted revision is 1'],
    },
  ] as const)('reports $name', async ({ revisions, says, ...row }) => {
    expect(await watch(revisions, 'compacted' in row ? row.compacted : 0n)).toEqual(says);
  });
});

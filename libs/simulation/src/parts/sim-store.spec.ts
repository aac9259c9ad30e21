import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { StateStore } from '@cloudless/state-store';
import {
  checkStoreHistory,
  readStoreLog,
  runConcurrentClients,
  type StoreCall,
} from '@cloudless/state-store/linearizability';
import { SimDisk } from './sim-disk.js';
import { SimLink } from './sim-link.js';
import { SimProcess } from './sim-process.js';
import { SimRandom } from './sim-random.js';
import { SimStore } from './sim-store.js';

interface Outcome {
  readonly problems: readonly string[];
  readonly calls: readonly StoreCall[];
}

/** Lets four processes call one store while their links fail in every way. */
async function run(
  seed: number,
  wrap: (store: StateStore) => StateStore = (store) => store,
): Promise<Outcome> {
  const time = new ManualClock();
  const random = new SimRandom(seed);
  const disk = new SimDisk(time, random.fork(), 100_000, () => undefined);
  const store = new SimStore(time, disk, silentLog);
  const links = Array.from(
    { length: 4 },
    (_, index) => new SimLink(`${index}`, time, random.fork()),
  );
  const clients = links.map((link, index) =>
    wrap(
      store.connect({
        process: new SimProcess(`${index}`, time, { rate: 1, offsetMs: 0 }),
        link,
        nodeFacts: () => ({ alive: new Set(), draining: new Set(), cordoned: new Set() }),
        onCommit: () => undefined,
      }),
    ),
  );
  let calls: readonly StoreCall[] | undefined;
  void runConcurrentClients(store.engine, {
    random: random.toPlainRandom(),
    clients: clients.length,
    callsPerClient: 40,
    storeOf: (index) => clients[index] as StateStore,
  }).then((recorded) => (calls = recorded));
  while (calls === undefined) {
    const link = random.pick(links) as SimLink;
    const durationMs = random.between(10, 3_000);
    if (random.chance(0.1)) link.cut(durationMs);
    if (random.chance(0.03)) link.stall(durationMs, random.pick(['up', 'down'] as const));
    if (random.chance(0.1))
      Object.assign(link.faults, random.chance(0.7) ? QUIET : { requestLoss: 0.2, replyLoss: 0.2 });
    await time.advance(20);
  }
  await time.advance(10_000); // for requests that are still on their way
  const log = await readStoreLog(store.engine, await store.engine.revision());
  return { problems: checkStoreHistory(log, calls), calls };
}

const QUIET = { requestLoss: 0, replyLoss: 0 };
const SEEDS = Array.from({ length: 10 }, (_, index) => index + 1);

describe('SimStore over a faulty network', () => {
  it('gives strictly serializable histories with unknown outcomes, some of which took effect', async () => {
    const outcomes: Outcome[] = [];
    for (const seed of SEEDS) outcomes.push(await run(seed));
    expect(outcomes.flatMap(({ problems }) => problems)).toEqual([]);
    const unknown = outcomes.flatMap(({ calls }) =>
      calls.filter(({ result, input }) => result === undefined && input.kind === 'txn'),
    );
    expect(unknown.length).toBeGreaterThan(8);
  });

  it('gives histories that reveal a client which repeats writes with an unknown outcome', async () => {
    const repeatBlindly = (store: StateStore): StateStore => ({
      ...store,
      txn: (compares, operations) =>
        store.txn(compares, operations).catch((reason: { kind?: string }) => {
          if (reason.kind !== 'deadline') throw reason;
          return store.txn([], operations);
        }),
    });
    const problems: string[] = [];
    for (const seed of SEEDS) problems.push(...(await run(seed, repeatBlindly)).problems);
    expect(problems.join('\n')).toMatch(/which no call of the history explains/);
  });

  it('ends the watches of a client that was cut off, which may watch again from its revision', async () => {
    const time = new ManualClock();
    const random = new SimRandom(1);
    const disk = new SimDisk(time, random.fork(), 100_000, () => undefined);
    const store = new SimStore(time, disk, silentLog);
    const link = new SimLink('a', time, random.fork());
    const client = store.connect({
      process: new SimProcess('a', time, { rate: 1, offsetMs: 0 }),
      link,
      nodeFacts: () => ({ alive: new Set(), draining: new Set(), cordoned: new Set() }),
      onCommit: () => undefined,
    });
    const read = async (after: bigint): Promise<readonly bigint[]> => {
      const revisions: bigint[] = [];
      try {
        for await (const { revision } of client.watch({ prefix: '', after }))
          revisions.push(revision);
      } catch (reason) {
        expect(reason).toMatchObject({ kind: 'unavailable' });
      }
      return revisions;
    };
    const write = (): Promise<unknown> =>
      store.engine.txn([], [{ put: 'x', value: new Uint8Array() }]);
    const first = read(0n);
    await time.advance(10);
    await write();
    await time.advance(10);
    link.cut(500);
    await write();
    await time.advance(2_000);
    expect(await first).toEqual([1n]);
    const second = read(1n);
    await time.advance(10);
    link.cut(1);
    await time.advance(2_000);
    expect(await second).toEqual([2n]);
  });
});

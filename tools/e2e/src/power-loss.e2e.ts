import { setTimeout as delay } from 'node:timers/promises';
import { copyFile, mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { errorKindOf } from '@cloudless/base';
import type { StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { systemClock } from '@cloudless/app-kit';
import { DiskImage, describeOnDiskImages } from './support/disk-image.js';
import { RunningProgram, repository } from './support/processes.js';

const STORE_PROCESS = join(repository, 'libs/state-store-lmdb/src/testing/store-process.ts');
/** Sizes of the file systems; the inner one is a file on the outer one. */
const OUTER_MIB = 80;
const INNER_MIB = 48;
/** Acknowledgements after the power loss at which a test stops to wait; there should be none. */
const MAX_LATE_ACKS = 500;
/**
 * Time for which running writers continue after the power loss, in milliseconds. Their
 * acknowledgements until then must be durable.
 */
const WRITE_ON_MS = 5_000;

/**
 * A machine whose disk is a file on another file system. The page cache of the machine belongs to
 * the mounted inner file system, the volatile cache of its disk to the outer one. A power loss of
 * the outer file system loses both, except for data that was flushed to the outer file system, as
 * on a real machine.
 */
class Machine {
  private constructor(
    private readonly scratch: string,
    private readonly outer: DiskImage,
    private readonly inner: DiskImage,
  ) {}

  static async build(): Promise<Machine> {
    const scratch = await mkdtemp(join(tmpdir(), 'cloudless-e2e-power-'));
    const outer = await DiskImage.create(join(scratch, 'outer'), OUTER_MIB);
    return Machine.mountOn(scratch, outer, (disk) => DiskImage.create(disk, INNER_MIB));
  }

  private static async mountOn(
    scratch: string,
    outer: DiskImage,
    open: (disk: string) => Promise<DiskImage>,
  ): Promise<Machine> {
    try {
      return new Machine(scratch, outer, await open(join(outer.directory, 'inner')));
    } catch (reason) {
      await outer.unmount();
      await rm(scratch, { recursive: true });
      throw reason;
    }
  }

  /** Returns the data directory of the store on the machine. */
  getDataDirectory(): Promise<string> {
    return this.inner.makeDirectory('data');
  }

  cutPower(): Promise<void> {
    return this.outer.cutPower();
  }

  /** Returns a machine with the disk as the power loss left it. Removes this machine. */
  async restart(): Promise<Machine> {
    const scratch = await mkdtemp(join(tmpdir(), 'cloudless-e2e-power-'));
    await copyFile(join(this.scratch, 'outer'), join(scratch, 'outer'));
    await this.remove();
    return Machine.mountOn(scratch, await DiskImage.mount(join(scratch, 'outer')), (disk) =>
      DiskImage.mount(disk),
    );
  }

  async remove(): Promise<void> {
    await this.inner.unmount();
    await this.outer.unmount();
    await rm(this.scratch, { recursive: true, force: true });
  }
}

/** Newest acknowledged write of a key. */
interface Acknowledged {
  readonly value: string;
  readonly revision: bigint;
}

/**
 * Returns the newest acknowledged write of each key, from the output of the writers, which is
 * stored outside of the machine.
 */
function readAcknowledged({ lines }: RunningProgram): ReadonlyMap<string, Acknowledged> {
  const newest = new Map<string, Acknowledged>();
  for (const line of lines) {
    const [word, key = '', value = '', revision = ''] = line.split(' ');
    if (word === 'ack') newest.set(key, { value, revision: BigInt(revision) });
  }
  return newest;
}

/** Stops all threads of a process, also a thread that waits for the disk. */
async function freeze(child: RunningProgram): Promise<void> {
  process.kill(child.pid, 'SIGSTOP');
  for (let stopped = false; !stopped;) {
    const threads = await readdir(`/proc/${child.pid}/task`);
    const states = await Promise.all(
      threads.map((id) => readFile(`/proc/${child.pid}/task/${id}/stat`, 'utf8')),
    );
    stopped = states.every((stat) => stat.slice(stat.lastIndexOf(')') + 2).startsWith('T'));
  }
}

/**
 * Runs writers on a machine, cuts its power after a number of acknowledgements, and restarts it.
 * @param task - Task of the store process.
 * @param moment - `frozen`: all writers are stopped before the power is cut.
 */
async function cutWhileWriting(task: string, moment: 'frozen' | 'running', afterAcks: number) {
  const machine = await Machine.build();
  try {
    const acknowledged = await writeUntilCut(machine, task, moment, afterAcks);
    return { acknowledged, machine: await machine.restart() };
  } catch (reason) {
    await machine.remove();
    throw reason;
  }
}

async function writeUntilCut(
  machine: Machine,
  task: string,
  moment: 'frozen' | 'running',
  afterAcks: number,
): Promise<ReadonlyMap<string, Acknowledged>> {
  const data = await machine.getDataDirectory();
  const child = RunningProgram.start(process.execPath, [
    '--conditions=@cloudless/source',
    '--import',
    'tsx',
    STORE_PROCESS,
    task,
    data,
  ]);
  try {
    let acks = 0;
    await child.waitForLine((line) => line.startsWith('ack') && ++acks >= afterAcks);
    if (moment === 'frozen') await freeze(child);
    await machine.cutPower();
    // what a writer acknowledges after the power loss is checked as well
    const maxAcks = acks + MAX_LATE_ACKS;
    if (moment === 'running')
      await Promise.race([
        child.exited,
        child.waitForLine((line) => line.startsWith('ack') && ++acks >= maxAcks),
        // a flush may never return
        delay(WRITE_ON_MS, undefined, { ref: false }),
      ]);
  } finally {
    await child.kill('SIGKILL');
  }
  const acknowledged = readAcknowledged(child);
  expect(acknowledged.size).toBeGreaterThan(0);
  return acknowledged;
}

/** Opens the store on a machine and removes the machine afterwards. */
async function withStoreOf(
  machine: Machine,
  test: (store: StateStore) => Promise<void>,
): Promise<void> {
  try {
    const store = await openLmdbStateStore({
      directory: await machine.getDataDirectory(),
      clock: systemClock,
    });
    try {
      await test(store);
    } finally {
      await store.close();
    }
  } finally {
    await machine.remove();
  }
}

/** Returns the acknowledged writes that are missing in the store, each as a violation. */
async function listLost(
  store: StateStore,
  acknowledged: ReadonlyMap<string, Acknowledged>,
): Promise<readonly string[]> {
  const lost: string[] = [];
  for (const [key, { value, revision }] of acknowledged) {
    const entry = await store.get(key);
    if (entry === undefined || entry.modRevision < revision) lost.push(`VIOLATION: ${key}`);
    else if (entry.modRevision === revision)
      expect(Buffer.from(entry.value).toString()).toBe(value);
  }
  return lost;
}

/** Expects that the history has each revision once, and that the store accepts a write. */
async function expectConsistent(store: StateStore): Promise<void> {
  const newest = await store.revision();
  let expected = 1n;
  for await (const { revision } of store.watch({ prefix: '', after: 0n })) {
    expect(revision).toBe(expected);
    expected += 1n;
    if (revision === newest) break;
  }
  await store.txn([], [{ put: 'after', value: new Uint8Array() }]);
  expect(await store.revision()).toBe(newest + 1n);
}

describeOnDiskImages('state store after a power loss', () => {
  it.each([
    { round: 1, moment: 'frozen' as const },
    { round: 2, moment: 'frozen' as const },
    { round: 3, moment: 'running' as const },
    { round: 4, moment: 'running' as const },
    { round: 5, moment: 'running' as const },
  ])(
    'has every acknowledged write and is consistent (round $round, $moment writers)',
    async ({ moment }) => {
      const { acknowledged, machine } = await cutWhileWriting(
        'write',
        moment,
        50 + Math.floor(Math.random() * 3_000),
      );
      await withStoreOf(machine, async (store) => {
        expect(await listLost(store, acknowledged)).toEqual([]);
        await expectConsistent(store);
      });
    },
  );

  it.each([1, 2])(
    'lacks acknowledged writes when they were acknowledged before the flush (round %d)',
    async () => {
      const { acknowledged, machine } = await cutWhileWriting('write-unsynced', 'frozen', 1_000);
      let lost: readonly string[] = [];
      await withStoreOf(machine, async (store) => {
        lost = await listLost(store, acknowledged);
      }).catch((reason: unknown) => {
        if (errorKindOf(reason) !== 'precondition') throw reason;
        lost = [...acknowledged.keys()]; // the store is refused as damaged
      });
      expect(lost).not.toEqual([]);
    },
  );
});

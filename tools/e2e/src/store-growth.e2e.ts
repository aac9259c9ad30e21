import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Event_Category as Category, type Event } from '@cloudless/api';
import { RealCluster } from './support/cluster.js';

/** Limit of each kind of record in the second part of the test. */
const LIMIT_BYTES = 64 * 1024;
const LIMIT_FLAGS = ['--event-bytes', '--audit-bytes', '--request-bytes', '--history-bytes'];
/** Bound of docs/operating/limits.md: four times the configured limits, and the records in use. */
const BOUND_BYTES = 4 * LIMIT_FLAGS.length * LIMIT_BYTES + 512 * 1024;
const CLIENTS = 8;
/** Most audit records within the limit; each has at least 200 bytes. */
const MAX_AUDIT_RECORDS = LIMIT_BYTES / 200;

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start([]);
});
afterAll(() => cluster.stop());

const readDataFileBytes = async (): Promise<number> =>
  (await stat(join(cluster.directory, 'coordinator', 'store.mdb'))).size;

async function listEvents(...categories: Category[]): Promise<readonly Event[]> {
  return (await cluster.client.listEvents({ categories, pageSize: 1_000 })).events;
}

async function restartCoordinator(): Promise<void> {
  await cluster.coordinatorProcess.kill('SIGTERM');
  await cluster.startCoordinator();
}

/** Lets each client create and delete its own workloads, with a request id for each call. */
async function createAndDelete(phase: string, cyclesPerClient: number): Promise<void> {
  const run = async (client: number): Promise<void> => {
    const name = `web-${client}`;
    for (let cycle = 0; cycle < cyclesPerClient; cycle += 1) {
      const id = `${phase}-${client}-${cycle}`;
      const spec = { command: ['serve'], replicas: 2, env: { PAD: 'x'.repeat(3_000) } };
      await cluster.client.createWorkload({ name, spec, requestId: `create-${id}` });
      await cluster.client.deleteWorkload({ name, requestId: `delete-${id}` });
      await cluster.waitUntilDeleted(name);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, (_, client) => run(client)));
}

describe('data file of a coordinator', () => {
  it('shrinks when its limits are lowered, and stays below the bound over 160 workloads', async () => {
    await createAndDelete('grow', 10);
    expect(await readDataFileBytes()).toBeGreaterThan(BOUND_BYTES);

    cluster.coordinatorFlags = LIMIT_FLAGS.flatMap((flag) => [flag, `${LIMIT_BYTES}`]);
    await restartCoordinator();
    // the first start has dropped the history, so most of the file is free and the next start
    // compacts it
    await restartCoordinator();
    await cluster.coordinatorProcess.waitForLog('data file compacted');
    expect(await readDataFileBytes()).toBeLessThan(BOUND_BYTES);

    await cluster.client.drainNode({ nodeId: 'none' }).catch(() => undefined);
    await createAndDelete('bounded', 20);
    expect(await readDataFileBytes()).toBeLessThan(BOUND_BYTES);

    const kept = await listEvents(Category.AUDIT);
    expect(kept.length).toBeLessThanOrEqual(MAX_AUDIT_RECORDS * 1.25);
    expect(kept.filter(({ reason }) => reason === 'DrainNode')).toHaveLength(1);
  });
});

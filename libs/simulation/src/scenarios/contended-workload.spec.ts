import { jest } from '@jest/globals';
import { fromConnectError } from '@cloudless/api';
import { createSeededRandom, errorMessageOf } from '@cloudless/base';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../test-cluster/test-cluster.js';

/** Number of concurrent clients. */
const CLIENTS = 16;
/** Each test runs a whole cluster, which takes long on a busy machine. */
jest.setTimeout(60_000);

/**
 * Starts a cluster with three ready replicas of `web`, whose commits take time.
 * @param commits - `overtake`: up to 20 ms, so that a later commit may come first; `equal`: 5 ms
 *   each.
 */
async function startContendedCluster(
  seed: number,
  commits: 'overtake' | 'equal' = 'overtake',
): Promise<TestCluster> {
  const random = createSeededRandom(seed);
  let started = false;
  const delayMs = (): number => (commits === 'equal' ? 5 : Math.floor(random.next() * 20));
  const commitDelayMs = (): number => (started ? delayMs() : 0);
  const cluster = await startCluster(3, { seed, commitDelayMs });
  await createWeb(cluster);
  await cluster.advance(1_000);
  started = true;
  return cluster;
}

/**
 * Runs `call` once for each client at the same time.
 * @returns The error messages of the calls that failed.
 */
async function failuresOf(
  cluster: TestCluster,
  call: (client: number) => Promise<unknown>,
): Promise<readonly string[]> {
  const calls = (): Promise<readonly string[]> =>
    Promise.all(
      Array.from({ length: CLIENTS }, (_, client) =>
        call(client).then(
          () => '',
          (reason: unknown) => `${fromConnectError(reason).kind}: ${errorMessageOf(reason)}`,
        ),
      ),
    );
  return (await cluster.complete(calls)).filter((failure) => failure !== '');
}

describe(`${CLIENTS} concurrent clients of one workload`, () => {
  it.each([
    { commits: 'overtake', seed: 1 },
    { commits: 'overtake', seed: 2 },
    { commits: 'equal', seed: 3 },
  ] as const)(
    'all succeed without an expected generation, commits $commits, seed $seed',
    async ({ commits, seed }) => {
      const cluster = await startContendedCluster(seed, commits);
      const rounds = 3;
      for (let round = 0; round < rounds; round += 1) {
        const failures = await failuresOf(cluster, (client) =>
          client % 2 === 0
            ? cluster.client.updateWorkload({ name: 'web', spec: { args: [`${round}-${client}`] } })
            : cluster.client.scaleWorkload({ name: 'web', replicas: 100 * round + client }),
        );
        expect(failures).toEqual([]);
      }
      expect((await readWeb(cluster)).generation).toBe(BigInt(1 + rounds * CLIENTS));
      await cluster.complete(() => cluster.stopCoordinator());
    },
  );

  it('all succeed while controllers write the same records', async () => {
    const cluster = await startContendedCluster(4);
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { args: ['rolling'] } }),
    );
    const failures = await failuresOf(cluster, (client) =>
      client % 2 === 0
        ? cluster.client.pauseRollout({ name: 'web' })
        : cluster.client.updateWorkload({ name: 'web', spec: { args: [`${client}`] } }),
    );
    expect(failures).toEqual([]);
    await cluster.complete(() => cluster.stopCoordinator());
  });

  it('receive ABORTED with the workload and both generations only when they sent an expected generation', async () => {
    const cluster = await startContendedCluster(5);
    const { generation } = await readWeb(cluster);
    const failures = await failuresOf(cluster, (client) =>
      cluster.client.updateWorkload({
        name: 'web',
        spec: { args: [`${client}`] },
        expectedGeneration: generation,
      }),
    );
    expect(failures).toHaveLength(CLIENTS - 1);
    const expected = `workload "default/web" is at generation ${generation + 1n}, not ${generation}; read the workload again and repeat the change`;
    expect(new Set(failures)).toEqual(new Set([`conflict: [aborted] ${expected}`]));
    await cluster.complete(() => cluster.stopCoordinator());
  });
});

it(`${CLIENTS} concurrent clients of one node all succeed`, async () => {
  const cluster = await startContendedCluster(6);
  const failures = await failuresOf(cluster, (client) =>
    cluster.client.updateNode({ nodeId: 'node-1', setLabels: { [`client-${client}`]: 'yes' } }),
  );
  expect(failures).toEqual([]);
  const { labels } = await cluster.complete(() => cluster.client.getNode({ nodeId: 'node-1' }));
  expect(Object.keys(labels).filter((key) => key.startsWith('client-'))).toHaveLength(CLIENTS);
  await cluster.complete(() => cluster.stopCoordinator());
});

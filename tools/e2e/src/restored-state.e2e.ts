import { cp, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { RealCluster } from './support/cluster.js';
import { listProcessesMentioning } from './support/processes.js';

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
});
afterEach(() => cluster.stop());

/** A sleep duration that no other process on this machine uses. */
const NAP = String(1_000_000 + (process.pid % 1_000_000));
const aSleeper = (replicas: number) => ({
  command: ['sleep', NAP],
  replicas,
  preStopDelay: { seconds: 0n },
});
/** Returns the process ids of all replicas on all nodes, read from the system. */
const listRunningPids = (): readonly string[] =>
  listProcessesMentioning(`sleep ${NAP}`)
    .map((line) => line.trim().split(' ')[0] ?? '')
    .sort();

async function waitUntilReconnected(): Promise<void> {
  for (const agent of ['agent-1', 'agent-2']) await cluster.waitUntilNodeReady(agent);
}

async function waitUntilReady(): Promise<{ readonly status: number; readonly body: string }> {
  const response = await fetch(`${cluster.opsUrl}/ready`);
  return { status: response.status, body: await response.text() };
}

it('a coordinator with an old copy of its data directory stops and starts nothing until the state is accepted, and then applies that state', async () => {
  const { client } = cluster;
  await client.createWorkload({ name: 'web', spec: aSleeper(3) });
  const web = await cluster.waitUntilSettled('web');
  const data = join(cluster.directory, 'coordinator');
  await cluster.coordinatorProcess.kill('SIGTERM');
  // The lock is a socket, which cannot be copied.
  const isCopied = (source: string): boolean => !basename(source).startsWith('lock-');
  await cp(data, `${data}-copy`, { recursive: true, filter: isCopied });
  await cluster.startCoordinator();
  await waitUntilReconnected();
  await client.scaleWorkload({ name: 'web', replicas: 5 });
  await client.createWorkload({ name: 'later', spec: aSleeper(2) });
  await cluster.waitUntilSettled('web');
  await cluster.waitUntilSettled('later');
  const before = listRunningPids();
  expect(before).toHaveLength(7);

  await cluster.coordinatorProcess.kill('SIGTERM');
  await rm(data, { recursive: true });
  await rename(`${data}-copy`, data);
  await cluster.startCoordinator();
  await waitUntilReconnected();
  const told = await cluster.runCtl('events', '-o', 'json');
  expect(told.stdout).toContain('StoreWentBackInTime');
  expect(listRunningPids()).toEqual(before);
  expect(await waitUntilReady()).toMatchObject({
    status: 503,
    body: expect.stringContaining('the store went back in time') as string,
  });
  const refused = await cluster.runCtl('scale', 'web', '1');
  expect(refused).toMatchObject({
    code: 4,
    stderr: expect.stringContaining('cloudlessctl admin accept-restored-state') as string,
  });

  expect(await cluster.runCtl('admin', 'accept-restored-state')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^restored state: accepted in epoch \d+;/) as string,
  });
  const after = await cluster.waitUntilSettled('web');
  const listContainers = (workload: typeof web) =>
    workload.status!.replicas.map(({ id, containerId }) => [id, containerId]).sort();
  expect(listContainers(after)).toEqual(listContainers(web));
  expect(await waitUntilReady()).toMatchObject({ status: 200 });
  // Replicas that the state does not know are stopped; the loop waits for the cluster by calls.
  while (listRunningPids().length > 3) await cluster.runCtl('get', 'nodes');
  expect(before).toEqual(expect.arrayContaining([...listRunningPids()]));
  await client.scaleWorkload({ name: 'web', replicas: 4 });
  expect((await cluster.waitUntilSettled('web')).status?.readyReplicas).toBe(4);
});

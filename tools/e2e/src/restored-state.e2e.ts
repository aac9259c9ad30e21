import { cp, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { RealCluster } from './cluster.js';
import { processesMentioning } from './processes.js';

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
});
afterEach(() => cluster.stop());

/** A sleep duration that no other process on this machine uses. */
const NAP = String(1_000_000 + (process.pid % 1_000_000));
const sleeper = (replicas: number) => ({
  command: ['sleep', NAP],
  replicas,
  preStopDelay: { seconds: 0n },
});
/** Returns the process ids of all replicas on all nodes, read from the system. */
const running = (): readonly string[] =>
  processesMentioning(`sleep ${NAP}`)
    .map((line) => line.trim().split(' ')[0] ?? '')
    .sort();

async function reconnected(): Promise<void> {
  for (const agent of ['agent-1', 'agent-2']) await cluster.nodeReady(agent);
}

async function ready(): Promise<{ readonly status: number; readonly body: string }> {
  const response = await fetch(`${cluster.opsUrl}/ready`);
  return { status: response.status, body: await response.text() };
}

it('a coordinator with an old copy of its data directory stops and starts nothing until the state is accepted, and then applies that state', async () => {
  const { client } = cluster;
  await client.createWorkload({ name: 'web', spec: sleeper(3) });
  const web = await cluster.settled('web');
  const data = join(cluster.directory, 'coordinator');
  await cluster.coordinatorProcess.kill('SIGTERM');
  // The lock is a socket, which cannot be copied.
  const filter = (source: string): boolean => !basename(source).startsWith('lock-');
  await cp(data, `${data}-copy`, { recursive: true, filter });
  await cluster.startCoordinator();
  await reconnected();
  await client.scaleWorkload({ name: 'web', replicas: 5 });
  await client.createWorkload({ name: 'later', spec: sleeper(2) });
  await cluster.settled('web');
  await cluster.settled('later');
  const before = running();
  expect(before).toHaveLength(7);

  await cluster.coordinatorProcess.kill('SIGTERM');
  await rm(data, { recursive: true });
  await rename(`${data}-copy`, data);
  await cluster.startCoordinator();
  await reconnected();
  const told = await cluster.ctl('events', '-o', 'json');
  expect(told.stdout).toContain('StoreWentBackInTime');
  expect(running()).toEqual(before);
  expect(await ready()).toMatchObject({
    status: 503,
    body: expect.stringContaining('the store went back in time') as string,
  });
  const refused = await cluster.ctl('scale', 'web', '1');
  expect(refused).toMatchObject({
    code: 4,
    stderr: expect.stringContaining('cloudlessctl admin accept-restored-state') as string,
  });

  expect(await cluster.ctl('admin', 'accept-restored-state')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^restored state: accepted in epoch \d+;/) as string,
  });
  const after = await cluster.settled('web');
  const containers = (workload: typeof web) =>
    workload.status!.replicas.map(({ id, containerId }) => [id, containerId]).sort();
  expect(containers(after)).toEqual(containers(web));
  expect(await ready()).toMatchObject({ status: 200 });
  // Replicas that the state does not know are stopped; the loop waits for the cluster by calls.
  while (running().length > 3) await cluster.ctl('get', 'nodes');
  expect(before).toEqual(expect.arrayContaining([...running()]));
  await client.scaleWorkload({ name: 'web', replicas: 4 });
  expect((await cluster.settled('web')).status?.readyReplicas).toBe(4);
});

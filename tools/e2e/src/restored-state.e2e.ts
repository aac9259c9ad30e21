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
const SLEEP_SECONDS = String(1_000_000 + (process.pid % 1_000_000));
const aSleeper = (replicas: number) => ({
  command: ['sleep', SLEEP_SECONDS],
  replicas,
  preStopDelay: { seconds: 0n },
});
/** Returns the process ids of all replicas on all nodes, from the process list of the machine. */
const listRunningPids = (): readonly string[] =>
  listProcessesMentioning(`sleep ${SLEEP_SECONDS}`)
    .map((line) => line.trim().split(' ')[0] ?? '')
    .sort();

async function waitUntilReconnected(): Promise<void> {
  for (const agent of ['agent-1', 'agent-2']) await cluster.waitUntilNodeReady(agent);
}

/** Returns the response of /ready. */
async function readReadiness(): Promise<{ readonly status: number; readonly body: string }> {
  const response = await fetch(`${cluster.opsUrl}/ready`);
  return { status: response.status, body: await response.text() };
}

it('a coordinator on an old copy of its data directory changes nothing until the state is accepted', async () => {
  const { client } = cluster;
  await client.createWorkload({ name: 'web', spec: aSleeper(3) });
  const web = await cluster.waitUntilSettled('web');
  const data = join(cluster.directory, 'coordinator');
  await cluster.coordinatorProcess.kill('SIGTERM');
  // the lock is a socket, which cannot be copied
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
  const events = await cluster.runCtl('events', '-o', 'json');
  expect(events.stdout).toContain('StoreWentBackInTime');
  expect(listRunningPids()).toEqual(before);
  expect(await readReadiness()).toMatchObject({
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
  expect(await readReadiness()).toMatchObject({ status: 200 });
  // replicas that are not part of the accepted state are stopped; the calls only pass the time
  while (listRunningPids().length > 3) await cluster.runCtl('get', 'nodes');
  expect(before).toEqual(expect.arrayContaining([...listRunningPids()]));
  await client.scaleWorkload({ name: 'web', replicas: 4 });
  expect((await cluster.waitUntilSettled('web')).status?.readyReplicas).toBe(4);
});

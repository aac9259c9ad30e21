import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Rollout_Strategy } from '@cloudless/api';
import { listContainers, describeContainers, startContainerCluster } from './support/containers.js';
import type { RealCluster } from './support/cluster.js';
import { OwnContainers } from './support/own-containers.js';
import { REQUEST_IMAGE, pushRequestImage } from './support/request-image.js';
import {
  expectOneSwitch,
  expectServed,
  listLiveIds,
  listLiveReplicas,
  waitUntilRolledOut,
  runUnderLoad,
  createWebSpec,
  type Rollout,
} from './support/rollout-tools.js';

const REPLICAS = 4;
/** Time for which the previous version is kept: longer than any of these tests runs. */
const KEEP_DURATION = durationFromMs(3_600_000);
const PORT = 80;

/** Creates a spec of four containers of version 1 that must all stay available. */
const createServers = (rollout: Rollout): ReturnType<typeof createWebSpec> =>
  createWebSpec(
    { minAvailable: REPLICAS, ...rollout },
    {
      command: [],
      image: REQUEST_IMAGE,
      env: createEnvironment('1'),
      ports: [{ name: 'http', containerPort: PORT }],
    },
  );
/**
 * Returns the environment of a server that takes 100 ms for a request, so that stops hit requests.
 */
const createEnvironment = (version: string) => ({
  VERSION: version,
  PORT: String(PORT),
  HOST: '0.0.0.0',
  ANSWER_MS: '100',
});

describeContainers('container workload', () => {
  let own: OwnContainers;
  let cluster: RealCluster;
  beforeAll(async () => {
    own = await OwnContainers.install();
    await pushRequestImage(own.registry);
    cluster = await startContainerCluster(['zone-a', 'zone-b', 'zone-c'], own.socket);
  });
  afterAll(async () => {
    try {
      await cluster?.stop();
    } finally {
      await own?.remove();
    }
  });

  const update = (name: string, version: string) =>
    cluster.client.updateWorkload({ name, spec: { env: createEnvironment(version) } });
  const waitForActiveVersion = (name: string, version: number) =>
    cluster.waitForWorkload(name, ({ status }) => status!.activeVersion === version);

  describe('under load', () => {
    const name = 'web';
    beforeAll(async () => {
      await cluster.client.createWorkload({ name, spec: createServers({ maxSurge: 2 }) });
      await waitUntilRolledOut(cluster, name);
    });
    afterAll(async () => {
      await cluster.client.deleteWorkload({ name });
      await cluster.waitUntilDeleted(name);
    });

    it('runs its server as the main process of each container, which receives SIGTERM', async () => {
      const containers = await listContainers(cluster, await waitUntilRolledOut(cluster, name));
      expect(containers.map(({ runtime, ip }) => ({ runtime, ip }))).toEqual(
        Array(REPLICAS).fill({ runtime: 'cri', ip: expect.stringMatching(/^10\./) as string }),
      );
      // the main process of a container has no parent inside its PID namespace
      const script = `const { readFileSync, readdirSync } = require('node:fs');
          const read = (pid, name) => { try { return readFileSync('/proc/' + pid + '/' + name, 'utf8'); } catch { return ''; } };
          const own = readdirSync('/proc').filter((pid) => read(pid, 'status').includes('PPid:\\t0\\n'));
          process.stdout.write(own.map((pid) => read(pid, 'cmdline')).join(' '));`;
      const { stdout } = await cluster.agentClient.execCommand({
        name,
        command: ['/usr/bin/node', '-e', script],
      });
      expect(stdout).toContain('request-app.mjs');
    });

    it('loses no request during a rolling update', async () => {
      const before = listLiveIds(await waitUntilRolledOut(cluster, name));
      const clients = await runUnderLoad(cluster, name, async () => {
        await update(name, '2');
        await waitUntilRolledOut(cluster, name);
      });
      expectServed(clients, REPLICAS);
      expect(
        listLiveIds(await waitUntilRolledOut(cluster, name)).filter((id) => before.includes(id)),
      ).toEqual([]);
      // without answers of both versions, the absence of failures would prove nothing
      for (const { versions } of clients) expect(versions).toEqual(['1', '2']);
    });

    it('loses no request during a drain', async () => {
      const before = listLiveReplicas(await waitUntilRolledOut(cluster, name));
      const node = before[0]!.nodeId;
      const clients = await runUnderLoad(cluster, name, async () => {
        expect(await cluster.runCtl('node', 'drain', node, '--wait')).toMatchObject({ code: 0 });
      });
      expectServed(clients, REPLICAS);
      const after = listLiveReplicas(await waitUntilRolledOut(cluster, name));
      expect(after.map(({ nodeId }) => nodeId)).not.toContain(node);
      const stayed = before.filter(({ nodeId }) => nodeId !== node).map(({ id }) => id);
      expect(after.map(({ id }) => id)).toEqual(expect.arrayContaining(stayed));
      await cluster.client.uncordonNode({ nodeId: node });
    });

    it('loses no request while a rolling update and a drain run together', async () => {
      const [first] = listLiveReplicas(await waitUntilRolledOut(cluster, name));
      const node = first?.nodeId ?? '';
      const clients = await runUnderLoad(cluster, name, async () => {
        await Promise.all([update(name, '3'), cluster.runCtl('node', 'drain', node, '--wait')]);
        await waitUntilRolledOut(cluster, name);
      });
      expectServed(clients, REPLICAS);
      expect(
        listLiveReplicas(await waitUntilRolledOut(cluster, name)).map(({ nodeId }) => nodeId),
      ).not.toContain(node);
      for (const { versions } of clients) expect(versions).toEqual(['2', '3']);
      await cluster.client.uncordonNode({ nodeId: node });
    });
  });

  it('under load loses no request during a blue/green switch and the switch back', async () => {
    const name = 'shop';
    const spec = createServers({
      strategy: Rollout_Strategy.BLUE_GREEN,
      pauseDuration: KEEP_DURATION,
    });
    await cluster.client.createWorkload({ name, spec });
    const blue = listLiveIds(await waitUntilRolledOut(cluster, name), 1);
    const switching = await runUnderLoad(cluster, name, async () => {
      await update(name, '2');
      await waitForActiveVersion(name, 2);
    });
    expectServed(switching, REPLICAS);
    const both = await cluster.client.getWorkload({ name });
    const green = listLiveIds(both, 2);
    expectOneSwitch(switching, blue, green);
    expect(listLiveIds(both, 1)).toEqual(blue);

    const back = await runUnderLoad(cluster, name, async () => {
      await cluster.client.undoRollout({ name });
      await waitForActiveVersion(name, 3);
    });
    expectServed(back, REPLICAS);
    expectOneSwitch(back, green, blue);
    await cluster.client.deleteWorkload({ name });
    await cluster.waitUntilDeleted(name);
  });
});

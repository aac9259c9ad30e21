import { mkdtemp, open, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { errorKindOf } from '@cloudless/base';
import { createAgentClient, fromConnectError, type Workload } from '@cloudless/api';
import { QUICK, RealCluster } from './support/cluster.js';
import { DiskImage, describeOnDiskImages } from './support/disk-image.js';

const IMAGE_MIB = 64;
/** Bytes of one write that fills the disk. */
const CHUNK = Buffer.alloc(64 * 1024, 'x');

describeOnDiskImages('coordinator on a full disk', () => {
  let scratch = '';
  let image: DiskImage;
  let cluster: RealCluster;
  const cleanups: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    scratch = await mkdtemp(join(tmpdir(), 'cloudless-e2e-disk-'));
    cleanups.push(() => rm(scratch, { recursive: true }));
    image = await DiskImage.create(join(scratch, 'image'), IMAGE_MIB);
    cleanups.push(() => image.unmount());
    const data = await image.makeDirectory('coordinator');
    cluster = await RealCluster.start(['zone-a'], (directory) =>
      symlink(data, join(directory, 'coordinator')),
    );
    cleanups.push(() => cluster.stop());
  });
  afterAll(async () => {
    for (const cleanup of cleanups.reverse()) await cleanup();
  });

  /** Fills the file system with a file. */
  async function fillDisk(): Promise<void> {
    const file = await open(join(image.directory, 'filler'), 'a');
    try {
      for (;;) await file.write(CHUNK);
    } catch (reason) {
      expect(reason).toMatchObject({ code: 'ENOSPC' });
    } finally {
      await file.sync();
      await file.close();
    }
  }

  /**
   * Creates workloads until a creation is refused.
   * @returns The acknowledged names and the error.
   */
  async function createUntilRefused(
    prefix: string,
  ): Promise<{ readonly created: string[]; readonly refusal: unknown }> {
    const created: string[] = [];
    for (;;) {
      const name = `${prefix}-${created.length}`;
      try {
        await cluster.client.createWorkload({
          name,
          spec: { command: ['true'], replicas: 0, env: { PAYLOAD: 'x'.repeat(20_000) } },
        });
        created.push(name);
      } catch (reason) {
        return { created, refusal: fromConnectError(reason) };
      }
    }
  }

  async function fetchPage(path: string): Promise<string> {
    const response = await fetch(`${cluster.opsUrl}${path}`);
    return `${response.status} ${await response.text()}`;
  }

  /** Returns the log lines of the coordinator that contain a text. */
  const findLogLines = (text: string): readonly string[] =>
    cluster.coordinatorProcess.lines.filter((line) => line.includes(text));
  const countRestarts = ({ status }: Workload): number =>
    (status?.replicas ?? []).reduce((sum, { restarts }) => sum + restarts, 0);

  it('refuses only writes, and accepts writes again without a restart when space is free', async () => {
    const { client } = cluster;
    await client.createWorkload({
      name: 'web',
      spec: { ...QUICK, command: ['sleep', '1000'], replicas: 2 },
    });
    const web = await cluster.waitUntilSettled('web');
    const watching = new AbortController();
    const watch = client
      .watchWorkloads({ name: 'web' }, { signal: watching.signal })
      [Symbol.asyncIterator]();
    await watch.next();

    await fillDisk();
    const { created, refusal } = await createUntilRefused('full');
    expect({ kind: errorKindOf(refusal), message: (refusal as Error).message }).toEqual({
      kind: 'exhausted',
      message: expect.stringMatching(
        /^disk full: no space left for .*store\.mdb, nothing was written; free some space on its file system, and writes continue automatically$/,
      ) as string,
    });
    expect(await fetchPage('/health')).toMatch(
      /^200 {"status":"degraded","reasons":\["store: read-only, disk full: /,
    );
    expect(await fetchPage('/ready')).toMatch(
      /^200 {"status":"degraded","reasons":\["store: read-only, disk full: /,
    );
    expect(await fetchPage('/metrics')).toContain('\ncloudless_store_writable 0\n');
    // also a small write is refused: writes resume only when there is space for writes of every
    // size
    const { code, stderr } = await cluster.runCtl('workload', 'scale', 'web', '3');
    expect(code).toBe(7);
    expect(stderr).toMatch(/^cloudlessctl: disk full: .* \(RESOURCE_EXHAUSTED\)\n$/);

    // a backup, which is wanted before somebody makes space, is recorded in the log
    const backup = join(scratch, 'full.backup');
    expect(await cluster.runCtl('admin', 'backup', backup)).toMatchObject({ code: 0 });
    expect(await cluster.runCtl('admin', 'verify', backup)).toMatchObject({ code: 0 });
    expect(findLogLines('audit record not written: the state store is full')).toHaveLength(1);
    expect(await cluster.runCtl('exec', 'web', '--', 'true')).toMatchObject({
      code: 7,
      stderr: expect.stringMatching(
        /^cloudlessctl: ExecCommand is refused: nobody may make this call without an audit record, .*: disk full: /,
      ) as string,
    });

    // the agent restarts an ended replica; the coordinator records the restart later
    const [victim] = web.status?.replicas ?? [];
    const { pid } = await cluster.agentClient.getContainerStatus({
      containerId: victim?.containerId ?? '',
    });
    process.kill(pid, 'SIGKILL');
    const { address } = await cluster
      .requireAgent('agent-1')
      .waitForLog('agent started, connecting to coordinators');
    const agent = createAgentClient(createGrpcTransport({ baseUrl: `http://${String(address)}` }));
    for (let running = false; !running;) {
      const { containers } = await agent.listContainers({});
      running =
        containers.filter(
          ({ replicaId, containerId }) =>
            replicaId === victim?.id && containerId !== victim.containerId,
        ).length > 0;
    }
    expect((await client.listWorkloads({ pageSize: 1_000 })).workloads).toHaveLength(
      created.length + 1,
    );
    expect((await client.listNodes({})).nodes.map(({ status }) => status?.phase)).toEqual([1]);
    for (let round = 0; round < 20; round += 1)
      expect((await createUntilRefused('none')).created).toEqual([]);
    expect(countRestarts(await client.getWorkload({ name: 'web' }))).toBe(0);
    expect(findLogLines('disk full: writes are refused')).toHaveLength(1);
    expect(findLogLines('"level":"error"')).toEqual([]);
    // LMDB itself prints an error only for the first writes, not for each refused write
    expect(findLogLines('Write error').length).toBeLessThan(5);

    await rm(join(image.directory, 'filler'));
    await client.createWorkload({ name: 'after', spec: { command: ['true'], replicas: 0 } });
    const after = await cluster.waitForWorkload(
      'web',
      (workload) => countRestarts(workload) === 1 && workload.status?.readyReplicas === 2,
    );
    expect(after.status?.replicas.map(({ id }) => id).sort()).toEqual(
      web.status?.replicas.map(({ id }) => id).sort(),
    );
    for (let restarts = 0; restarts !== 1;) {
      const next = await watch.next();
      expect(next.done).toBe(false);
      const { workload } = next.value as { readonly workload?: Workload };
      restarts = workload === undefined ? 0 : countRestarts(workload);
    }
    watching.abort();
    await cluster.coordinatorProcess.waitForLine((line) =>
      line.includes('disk has free space again'),
    );
    expect(await fetchPage('/health')).toMatch(/^200 \{"status":"ok",/);
    expect(await fetchPage('/metrics')).toContain('\ncloudless_store_writable 1\n');
    expect(
      findLogLines('disk has free space again').concat(
        findLogLines('disk full: writes are refused'),
      ),
    ).toHaveLength(2);
    const { events } = await client.listEvents({ pageSize: 1_000 });
    expect(events.filter(({ reason }) => reason === 'NodeLost')).toEqual([]);

    // after a crash, acknowledged workloads exist and refused workloads do not
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    const { workloads } = await cluster.client.listWorkloads({ pageSize: 1_000 });
    expect(workloads.map(({ name }) => name).sort()).toEqual(['after', ...created, 'web'].sort());
  });
});

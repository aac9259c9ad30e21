import { RealCluster, SERVER_COMMAND } from './support/cluster.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
});
afterAll(() => cluster.stop());

/** Returns a JSON manifest of a workload; `note` is a value of its environment. */
const createManifest = (name: string, replicas: number, note = ''): string =>
  JSON.stringify({
    name,
    spec: {
      command: SERVER_COMMAND,
      env: { NOTE: note },
      ports: [{ name: 'http', containerPort: 80 }],
      replicas,
      preStopDelay: '0s',
      rollout: { minReadyDuration: '0s' },
    },
  });

/** Part of the output of `--plan -o json`. */
interface StoredPlan {
  readonly id: string;
  readonly workloads: readonly {
    readonly name: string;
    readonly placements: readonly { readonly nodeId: string }[];
  }[];
}

/**
 * Runs cloudlessctl with `--plan`, and returns the stored plan.
 * @param input - Text for stdin.
 */
async function createPlan(input: string, ...args: readonly string[]): Promise<StoredPlan> {
  const { code, stdout, stderr } = await cluster.runCtlWithInput(
    input,
    ...args,
    '--plan',
    '-o',
    'json',
  );
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as StoredPlan;
}

const listNodes = (workload: {
  readonly status?: { readonly replicas: readonly { readonly nodeId: string }[] } | undefined;
}) => (workload.status?.replicas ?? []).map(({ nodeId }) => nodeId).sort();

describe('stored plan', () => {
  it('is executed with exactly the placements that were shown, and only once', async () => {
    const shown = await cluster.runCtlWithInput(
      createManifest('web', 3),
      'apply',
      '-f',
      '-',
      '--plan',
    );
    expect(shown.stdout).toMatch(/^workload default\/web: create\n/);
    const [, id = ''] = /cloudlessctl plan execute ([0-9a-f]{16})\n$/.exec(shown.stdout) ?? [];
    expect((await cluster.client.listWorkloads({})).workloads).toEqual([]);
    const { workloads } = await cluster.client.getPlan({ id });
    expect(await cluster.runCtl('plan', 'execute', id, '--wait')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^workload default\/web: created\n/),
    });
    const web = await cluster.client.getWorkload({ name: 'web' });
    expect(listNodes(web)).toEqual(
      (workloads[0]?.placements ?? []).map(({ nodeId }) => nodeId).sort(),
    );
    expect(await cluster.runCtl('apply', '--plan-id', id)).toMatchObject({
      code: 4,
      stderr: expect.stringContaining('already executed'),
    });
  });

  it('is refused without any change when a workload has changed since', async () => {
    const documents = `${createManifest('web', 4)}\n---\n${createManifest('other', 1)}`;
    const { id } = await createPlan(documents, 'apply', '-f', '-');
    expect(await cluster.runCtl('scale', 'web', '2', '--wait')).toMatchObject({ code: 0 });
    expect(await cluster.runCtl('apply', '--plan-id', id)).toMatchObject({
      code: 4,
      stderr: expect.stringContaining(
        'default/web: generation 1 was planned, it is 2 now; create a new plan',
      ),
    });
    expect(
      (await cluster.client.listWorkloads({})).workloads.map(
        ({ name, spec }) => `${name} ${spec?.replicas}`,
      ),
    ).toEqual(['web 2']);
  });

  it('can contain a rollout undo or a drain, with exactly the planned placements', async () => {
    expect(
      await cluster.runCtlWithInput(createManifest('web', 2, 'new'), 'apply', '-f', '-', '--wait'),
    ).toMatchObject({ code: 0 });
    const undoPlan = await createPlan('', 'rollout', 'undo', 'web');
    expect(
      await cluster.runCtl('rollout', 'undo', '--plan-id', undoPlan.id, '--wait'),
    ).toMatchObject({
      code: 0,
    });
    const web = await cluster.client.getWorkload({ name: 'web' });
    expect(web.spec?.env['NOTE']).toBe('');
    const [from = ''] = listNodes(web);
    const drainPlan = await createPlan('', 'node', 'drain', from);
    expect(
      await cluster.runCtl('node', 'drain', '--plan-id', drainPlan.id, '--wait'),
    ).toMatchObject({
      code: 0,
    });
    const moved = await cluster.waitUntilSettled('web');
    const plannedNodes = drainPlan.workloads.flatMap(({ placements }) =>
      placements.map(({ nodeId }) => nodeId),
    );
    expect(listNodes(moved)).toEqual(
      [...listNodes(web).filter((nodeId) => nodeId !== from), ...plannedNodes].sort(),
    );
    await cluster.client.uncordonNode({ nodeId: from });
  });

  it('is reported as not found when its id is unknown', async () => {
    expect(await cluster.runCtl('apply', '--plan-id', '0123456789abcdef')).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('plan "0123456789abcdef" not found'),
    });
  });
});

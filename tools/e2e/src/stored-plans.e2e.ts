import { RealCluster, SERVER_COMMAND } from './support/cluster.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
});
afterAll(() => cluster.stop());

/** Creates a manifest of a workload with a number of replicas. */
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

interface MadePlan {
  readonly id: string;
  readonly workloads: readonly {
    readonly name: string;
    readonly placements: readonly { readonly nodeId: string }[];
  }[];
}

/** Creates a plan with a command line and `--plan`. */
async function createPlan(input: string, ...args: readonly string[]): Promise<MadePlan> {
  const { code, stdout, stderr } = await cluster.runCtlWithInput(
    input,
    ...args,
    '--plan',
    '-o',
    'json',
  );
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as MadePlan;
}

const listNodes = (workload: {
  readonly status?: { readonly replicas: readonly { readonly nodeId: string }[] } | undefined;
}) => (workload.status?.replicas ?? []).map(({ nodeId }) => nodeId).sort();

describe('stored plan', () => {
  it('is executed exactly as it was shown', async () => {
    const shown = await cluster.runCtlWithInput(
      createManifest('web', 3),
      'apply',
      '-f',
      '-',
      '--plan',
    );
    expect(shown.stdout).toMatch(/^workload default\/web: create\n/);
    const [, id = ''] = /cloudlessctl apply --plan-id ([0-9a-f]{16})\n$/.exec(shown.stdout) ?? [];
    expect((await cluster.client.listWorkloads({})).workloads).toEqual([]);
    const { workloads } = await cluster.client.getPlan({ id });
    expect(await cluster.runCtl('apply', '--plan-id', id, '--wait')).toMatchObject({
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

  it('executes a drain and a rollout undo', async () => {
    expect(
      await cluster.runCtlWithInput(createManifest('web', 2, 'new'), 'apply', '-f', '-', '--wait'),
    ).toMatchObject({ code: 0 });
    const back = await createPlan('', 'rollout', 'undo', 'web');
    expect(await cluster.runCtl('rollout', 'undo', '--plan-id', back.id, '--wait')).toMatchObject({
      code: 0,
    });
    const web = await cluster.client.getWorkload({ name: 'web' });
    expect(web.spec?.env['NOTE']).toBe('');
    const [from = ''] = listNodes(web);
    const move = await createPlan('', 'node', 'drain', from);
    expect(await cluster.runCtl('node', 'drain', '--plan-id', move.id, '--wait')).toMatchObject({
      code: 0,
    });
    const moved = await cluster.waitUntilSettled('web');
    const where = move.workloads.flatMap(({ placements }) =>
      placements.map(({ nodeId }) => nodeId),
    );
    expect(listNodes(moved)).toEqual(
      [...listNodes(web).filter((nodeId) => nodeId !== from), ...where].sort(),
    );
    await cluster.client.uncordonNode({ nodeId: from });
  });

  it('is not found for an unknown id', async () => {
    expect(await cluster.runCtl('apply', '--plan-id', '0123456789abcdef')).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('plan "0123456789abcdef" not found'),
    });
  });
});

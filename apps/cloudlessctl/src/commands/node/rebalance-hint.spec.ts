import {
  Rollout_Strategy as Strategy,
  WorkloadSpec_Mode as Mode,
  WorkloadStatus_Phase as Phase,
} from '@cloudless/api';
import { aNode, aWorkload, runCli } from '../../testing/run-cli.js';

const HINT =
  'web1 runs 0 replicas; new replicas may go there. To move existing replicas now: cloudlessctl rebalance\n';

interface Case {
  /** Nodes of the replicas of the workload. */
  readonly on: readonly string[];
  readonly spec?: object;
  readonly phase?: Phase;
  readonly omittedReplicas?: number;
  readonly namespace?: string;
  readonly fits?: boolean;
}

const uncordon = (
  {
    on,
    spec = {},
    phase = Phase.RUNNING,
    omittedReplicas = 0,
    namespace = 'default',
    fits = true,
  }: Case,
  ...flags: readonly string[]
) => {
  const replicas = on.map((nodeId, index) => ({ id: `shop-${index}`, nodeId }));
  const workload = aWorkload({
    namespace,
    name: 'shop',
    spec: { mode: Mode.REPLICATED, ...spec },
    status: { phase, replicas, omittedReplicas },
  });
  return runCli(['node', 'uncordon', 'web1', ...flags], {
    coordinator: {
      uncordonNode: () => aNode({ status: { replicaCount: 0 } }),
      listWorkloads: ({ includeReplicas }: { includeReplicas: boolean }) => ({
        workloads: includeReplicas ? [workload] : [],
      }),
      explainWorkload: () => ({ nodes: [{ nodeId: 'web1', fits }] }),
    },
  });
};

describe('node uncordon', () => {
  it('names the command that moves replicas to the node', async () => {
    expect(await uncordon({ on: ['web2', 'web2', 'web3'] })).toMatchObject({
      exitCode: 0,
      stdout: 'node web1: uncordoned\n',
      stderr: HINT,
    });
  });

  it.each<Case & { readonly name: string }>([
    { name: 'the workload is spread evenly', on: ['web2', 'web3'] },
    { name: 'the workload does not fit on the node', on: ['web2', 'web2'], fits: false },
    { name: 'the workload is global', on: ['web2', 'web2'], spec: { mode: Mode.GLOBAL } },
    {
      name: 'an update stops all replicas first',
      on: ['web2', 'web2'],
      spec: { rollout: { strategy: Strategy.RECREATE } },
    },
    { name: 'the list omits replicas', on: ['web2', 'web2'], omittedReplicas: 9 },
    { name: 'a rollout is in progress', on: ['web2', 'web2'], phase: Phase.UPDATING },
  ])('prints no hint when $name', async (given) => {
    expect(await uncordon(given)).toMatchObject({ exitCode: 0, stderr: '' });
  });

  it('prints no hint in JSON', async () => {
    expect((await uncordon({ on: ['web2', 'web2'] }, '-o', 'json')).stderr).toBe(
      'node web1: uncordoned\n',
    );
  });

  it('succeeds without a hint when the workloads cannot be listed', async () => {
    const coordinator = { uncordonNode: () => aNode() };
    expect(await runCli(['node', 'uncordon', 'web1'], { coordinator })).toMatchObject({
      exitCode: 0,
      stderr: '',
    });
  });
});

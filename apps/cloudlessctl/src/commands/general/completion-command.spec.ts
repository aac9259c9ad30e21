import { aNode, aWorkload, runCli } from '../../testing/run-cli.js';

const coordinator = {
  listWorkloads: () => ({ workloads: [aWorkload(), aWorkload({ name: 'worker' })] }),
  listNodes: () => ({ nodes: [aNode()] }),
  getWorkload: () =>
    aWorkload({ spec: { ports: [{ name: 'http', containerPort: 80 }, { containerPort: 9090 }] } }),
};
const complete = async (...words: string[]): Promise<string[]> =>
  (await runCli(['__complete', '--', ...words], { coordinator })).stdout
    .split('\n')
    .filter((word) => word !== '');

describe('shell completion', () => {
  it.each([
    { words: ['work'], found: ['workload'] },
    { words: ['node', 'un'], found: ['uncordon'] },
    { words: ['scale', ''], found: ['web', 'worker'] },
    { words: ['logs', 'wo'], found: ['worker'] },
    { words: ['port-forward', 'wo'], found: ['worker'] },
    { words: ['port-forward', 'worker', ''], found: ['http', 'port-9090'] },
    { words: ['node', 'drain', ''], found: ['web1'] },
    { words: ['get', 'node', ''], found: ['web1'] },
    { words: ['get', 'w'], found: ['workloads'] },
    { words: ['rollout', 're'], found: ['resume', 'restart'] },
    { words: ['rollout', 'undo', 'wo'], found: ['worker'] },
    { words: ['rollout', 'undo', '--to'], found: ['--to-version'] },
    { words: ['completion', ''], found: ['bash', 'zsh', 'fish'] },
    { words: ['workload', 'create', '--mem'], found: ['--memory', '--memory-limit'] },
    { words: ['workload', 'create', ''], found: [] },
  ])('completes the last of the words $words to $found', async ({ words, found }) => {
    expect(await complete(...words)).toEqual(found);
  });

  it('prints nothing when no coordinator answers', async () => {
    expect(await runCli(['__complete', '--', 'scale', ''])).toMatchObject({
      exitCode: 0,
      stdout: '',
      stderr: '',
    });
  });

  it.each(['bash', 'zsh', 'fish'])('prints the completion script for %s', async (shell) => {
    expect((await runCli(['completion', shell])).stdout).toContain('cloudlessctl __complete --');
  });

  it('rejects an unknown shell', async () => {
    expect(await runCli(['completion', 'ksh'])).toMatchObject({ exitCode: 2 });
  });
});

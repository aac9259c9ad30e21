import { create, toJson } from '@bufbuild/protobuf';
import { SimulateClusterRequestSchema, type SimulateClusterRequest } from '@cloudless/api';
import { runCli, type CliOptions } from '../../testing/run-cli.js';

const NODE_FILE = `zone: c
labels: { disk: ssd }
capacity: { cpu_millis: 4000, memory_bytes: 8Gi }
maxReplicas: 50
`;
const MANIFEST = `name: api
spec: { command: [serve], replicas: 2 }
`;

async function simulate(words: readonly string[], files: Record<string, string> = {}) {
  const requests: SimulateClusterRequest[] = [];
  const options: CliOptions = {
    files,
    coordinator: {
      simulateCluster: (request) => {
        requests.push(request);
        return { revision: 9n, totalMoves: 1, moves: [{ name: 'web', toNodeId: 'n1' }] };
      },
    },
  };
  const result = await runCli(['simulate', ...words], options);
  const [request = create(SimulateClusterRequestSchema)] = requests;
  return { ...result, request: toJson(SimulateClusterRequestSchema, request) };
}

describe('cloudlessctl simulate', () => {
  it('sends the changes of all options, and describes them', async () => {
    const { request, stdout } = await simulate(
      [
        ...['--lose-zone', 'a', '--lose-node', 'n1', '--drain-node', 'n2', '--delete', 'shop/old'],
        ...['--add-nodes', '3=node.yaml', '--add-nodes', '1=like:n3', '--scale', 'web=50'],
        ...['--apply', 'api.yaml', '--revision', '7'],
      ],
      { 'node.yaml': NODE_FILE, 'api.yaml': MANIFEST },
    );
    const capacity = { cpuMillis: 4_000, memoryBytes: String(8n << 30n) };
    expect(request).toEqual({
      changes: [
        { loseZone: 'a' },
        { loseNode: 'n1' },
        { drainNode: 'n2' },
        { addNodes: { count: 3, zone: 'c', labels: { disk: 'ssd' }, capacity, maxReplicas: 50 } },
        { addNodes: { count: 1, like: 'n3' } },
        {
          apply: {
            ...{ namespace: 'default', name: 'api', updateMask: '*' },
            spec: { command: ['serve'], replicas: 2 },
          },
        },
        { scale: { namespace: 'default', name: 'web', replicas: 50 } },
        { delete: { namespace: 'shop', name: 'old' } },
      ],
      revision: '7',
    });
    expect(stdout).toContain(
      'simulated from revision 9: lose zone a, lose node n1, drain node n2, add 3 nodes of node.yaml, add\n',
    );
  });

  it('prints the whole response as JSON', async () => {
    const { stdout } = await simulate(['-o', 'json']);
    expect(JSON.parse(stdout)).toMatchObject({ revision: '9', moves: [{ toNodeId: 'n1' }] });
  });

  it.each([
    {
      words: ['--scale', 'web'],
      problem: '--scale "web": expected WORKLOAD=REPLICAS, such as web=50',
    },
    {
      words: ['--add-nodes', 'node.yaml'],
      problem:
        '--add-nodes "node.yaml": expected COUNT=FILE or COUNT=like:NODE, such as 3=node.yaml',
    },
    { words: ['--add-nodes', '0=like:n1'], problem: '--add-nodes "0=like:n1": adds no node' },
    {
      words: ['--revision', 'x'],
      problem: '--revision "x" is not a revision: expected a whole number above 0',
    },
    {
      words: ['--add-nodes', '1=bad.yaml'],
      problem: 'nothing was simulated:\nbad.yaml:1:1: node.zoone: unknown key; did you mean zone?',
    },
    {
      words: ['--add-nodes', '1=count.yaml'],
      problem:
        'nothing was simulated:\ncount.yaml:1:1: node.count: is given by --add-nodes; remove the key',
    },
    {
      words: Array.from({ length: 65 }, (_, index) => ['--lose-node', `n${index}`]).flat(),
      problem: '65 changes are given, and one simulation has at most 64',
    },
  ])('ends with exit code 2: $problem', async ({ words, problem }) => {
    const files = { 'bad.yaml': 'zoone: a\n', 'count.yaml': 'count: 3\n' };
    const { exitCode, stderr } = await simulate(words, files);
    expect(stderr).toContain(problem);
    expect(exitCode).toBe(2);
  });
});

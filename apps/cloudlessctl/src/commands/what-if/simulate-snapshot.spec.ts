import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { createRecordSource, encodeSnapshot } from '@cloudless/controllers/what-if';
import { runCli } from '../../testing/run-cli.js';

const spec = create(WorkloadSpecSchema, {
  ...{ command: ['serve'], env: { KEY: 'SECRET' }, replicas: 1 },
  resources: { requests: { cpuMillis: 100, memoryBytes: 1n } },
});
const source = createRecordSource(
  {
    revision: 42n,
    nodes: ['n1', 'n2'].map((id) =>
      create(NodeRecordSchema, {
        id,
        hello: {
          capacity: { cpuMillis: 4_000, memoryBytes: 1n << 33n },
          capabilities: ['runtime.process'],
        },
      }),
    ),
    workloads: [
      create(WorkloadRecordSchema, {
        ...{ uid: 'u1', namespace: 'default', name: 'web', spec, version: 1, generation: 1n },
      }),
    ],
    versions: [['u1', create(VersionRecordSchema, { version: 1, template: spec })]],
    controls: [create(ControlRecordSchema, { uid: 'u1', nextSequence: 2n })],
    replicas: [
      create(ReplicaRecordSchema, {
        ...{ id: 'u1-1', uid: 'u1', sequence: 1n, version: 1, nodeId: 'n1' },
        ...{ desiredRunning: true, phase: 3, ready: true },
      }),
    ],
  },
  { clock: { wallTime: () => 0 } },
);
const admin = {
  snapshot: async function* () {
    await Promise.resolve();
    for (const data of encodeSnapshot(source, 'c1')) yield { data };
  },
};

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cloudless-snapshot-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

describe('cloudlessctl admin snapshot', () => {
  it('saves a snapshot, from which simulate predicts without a coordinator', async () => {
    const file = join(directory, 'today.snapshot');
    const saved = await runCli(['admin', 'snapshot', file], { admin });
    expect(saved.stdout).toBe(
      `${file}: saved revision 42 of cluster c1: 2 nodes, 1 workload, 1 replica\nsimulate with: cloudlessctl simulate --snapshot ${file}\n`,
    );
    expect(await readdir(directory)).toEqual(['today.snapshot']);
    const words = ['simulate', '--snapshot', file, '--lose-node', 'n1', '-o', 'json'];
    const { stdout, stderr, servers } = await runCli(words);
    expect(stderr).toBe('');
    expect(servers).toEqual([]);
    expect(JSON.parse(stdout)).toMatchObject({
      revision: '42',
      moves: [{ name: 'web', fromNodeId: 'n1', toNodeId: 'n2' }],
    });
  });

  it('does not overwrite a file without --force', async () => {
    const file = join(directory, 'kept');
    await writeFile(file, 'mine');
    const { exitCode, stderr } = await runCli(['admin', 'snapshot', file], { admin });
    expect(stderr).toContain(`${file} already exists; choose another file`);
    expect(exitCode).toBe(4);
  });
});

describe('cloudlessctl simulate --snapshot', () => {
  it('refuses a file that is no snapshot, naming the file', async () => {
    const file = join(directory, 'other');
    await writeFile(file, 'kind: Workload');
    const { exitCode, stderr } = await runCli(['simulate', '--snapshot', file]);
    expect(stderr).toContain(`${file}: the file is no complete snapshot`);
    expect(exitCode).toBe(4);
  });

  it('refuses --revision beside --snapshot', async () => {
    const words = ['simulate', '--snapshot', 'x', '--revision', '3'];
    const { exitCode, stderr } = await runCli(words);
    expect(stderr).toContain('--snapshot and --revision exclude each other');
    expect(exitCode).toBe(2);
  });
});

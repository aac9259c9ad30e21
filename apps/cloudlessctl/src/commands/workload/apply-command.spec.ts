import { Code, ConnectError } from '@connectrpc/connect';
import { WorkloadPlan_Action } from '@cloudless/api';
import type {
  CreateWorkloadRequest,
  PlanWorkloadRequest,
  UpdateWorkloadRequest,
} from '@cloudless/api';
import { aWorkload, runCli } from '../../testing/run-cli.js';

const WEB = 'name: web\nspec: {image: nginx, replicas: 3}\n';
const JOB = '{"name": "job", "namespace": "batch", "spec": {"image": "job"}}';

/**
 * Creates a coordinator that plans to create `batch/job`, to update `default/web` and to leave
 * `default/same` unchanged.
 * @returns The recorded calls in order, and the options for {@link runCli}.
 */
function aCoordinator(): { calls: string[]; options: Parameters<typeof runCli>[1] } {
  const calls: string[] = [];
  const recordCall = (
    verb: string,
    { namespace, name }: { namespace: string; name: string },
  ): void => void calls.push(`${verb} ${namespace}/${name}`);
  return {
    calls,
    options: {
      coordinator: {
        planWorkload: (request: PlanWorkloadRequest) => {
          recordCall(`plan ${request.updateMask?.paths.join() ?? ''}`, request);
          if (request.name === 'same') return { action: WorkloadPlan_Action.NOTHING };
          if (request.name === 'job')
            return {
              action: WorkloadPlan_Action.CREATE,
              newVersion: true,
              unplaced: 1,
              unplacedReason: 'no node has a container runtime',
              warnings: ['1 replica would find no node: no node has a container runtime'],
            };
          return {
            action: WorkloadPlan_Action.UPDATE,
            changes: [
              { path: 'replicas', before: '2', after: '3' },
              { path: 'image', before: '', after: '"nginx"' },
              { path: 'args', before: '', after: JSON.stringify(['x'.repeat(200)]) },
            ],
            newVersion: true,
            generation: 7n,
            placements: [{ nodeId: 'n1' }, { nodeId: 'n2' }, { nodeId: 'n1' }],
            steps: [{ description: 'create 1 of version 2', ready: 2, live: 3 }],
            lowestReady: 2,
            minAvailable: 1,
            highestLive: 4,
            warnings: ['the port 80 is taken on n3'],
          };
        },
        createWorkload: (request: CreateWorkloadRequest) => {
          recordCall(`create ${request.requestId}`, request);
          return aWorkload({ namespace: request.namespace, name: request.name });
        },
        updateWorkload: (request: UpdateWorkloadRequest) => {
          recordCall(
            `update ${request.updateMask?.paths.join() ?? ''} ${request.requestId} at ${request.expectedGeneration}`,
            request,
          );
          return aWorkload();
        },
        getWorkload: (request) => aWorkload({ namespace: request.namespace, name: request.name }),
      },
    },
  };
}

describe('cloudlessctl apply', () => {
  it('plans all documents, then applies them and prints the differences and the plans', async () => {
    const { calls, options } = aCoordinator();
    const files = {
      'm/a.yaml': `${WEB}---\nname: same\nspec: {image: x}\n`,
      'm/b.json': JOB,
      'm/notes.txt': 'x',
    };
    const result = await runCli(['apply', '-f', 'm', '--request-id', 'r'], {
      ...options,
      files,
    });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(calls).toEqual([
      'plan * default/web',
      'plan * default/same',
      'plan * batch/job',
      'update * r/default/web at 7 default/web',
      'create r/batch/job batch/job',
    ]);
    expect(result.stdout).toBe(
      `workload default/web: update
  replicas: 2 -> 3
  image: (absent) -> "nginx"
  args:
  + - ${'x'.repeat(200)}
  new version: every replica is replaced
  new replicas on: n1 (2), n2 (1)
  STEP                    READY   MIN   LIVE
  create 1 of version 2   2       1     3
  lowest ready 2 (minimum 1), highest live 4
  warning: the port 80 is taken on n3
workload default/web: updated
workload default/same: unchanged
workload batch/job: create
  warning: 1 replica would find no node: no node has a container runtime
workload batch/job: created
`,
    );
  });

  it('lists all workloads whose plan the coordinator refuses, and applies nothing', async () => {
    const files = {
      'a.yaml':
        'name: a\nspec: {replicas: -1}\n---\nname: b\nspec: {image: x}\n---\nname: c\nspec: {replicas: -2}\n',
    };
    const created: string[] = [];
    const result = await runCli(['apply', '-f', 'a.yaml'], {
      files,
      coordinator: {
        planWorkload: ({ name }) => {
          if (name !== 'b')
            throw new ConnectError(
              'spec.replicas: must be from 0 to 1000000',
              Code.InvalidArgument,
            );
          return { action: WorkloadPlan_Action.CREATE };
        },
        createWorkload: ({ name }) => {
          created.push(name);
          return aWorkload();
        },
      },
    });
    expect(result).toMatchObject({ exitCode: 2, stdout: '' });
    expect(result.stderr).toContain(
      'nothing was applied:\nworkload default/a: spec.replicas: must be from 0 to 1000000\nworkload default/c: spec.replicas: must be',
    );
    expect(created).toEqual([]);
  });

  it('prints only the plan with --dry-run', async () => {
    const { calls, options } = aCoordinator();
    const result = await runCli(['apply', '-f', '-', '--dry-run', '-o', 'json'], {
      ...options,
      stdin: { kind: 'pipe', text: WEB },
    });
    expect(calls).toEqual(['plan * default/web']);
    expect(JSON.parse(result.stdout)).toMatchObject({
      plans: [{ namespace: 'default', name: 'web', plan: { action: 'UPDATE', lowestReady: 2 } }],
    });
  });

  it('lists all problems and applies nothing when a document is invalid', async () => {
    const { calls, options } = aCoordinator();
    const files = { 'a.yaml': WEB, 'b.yaml': 'name: b\nspec: {imag: x}\n', 'c.yaml': WEB };
    const result = await runCli(['apply', '-f', 'a.yaml', '-f', 'b.yaml', '-f', 'c.yaml'], {
      ...options,
      files,
    });
    expect(result).toMatchObject({
      exitCode: 2,
      stdout: '',
      stderr:
        'cloudlessctl: nothing was applied:\nb.yaml:2:8: spec.imag: unknown key; did you mean image?\n' +
        'c.yaml: the workload default/web is already declared in a.yaml\n',
    });
    expect(calls).toEqual([]);
  });
});

import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { NodePlan_Action, WorkloadPlan_Action, type CreatePlanRequest } from '@cloudless/api';
import { NOW_MS, aNode, aWorkload, runCli, type FakeCoordinator } from '../../testing/run-cli.js';

const ID = '00112233aabbccdd';
const WEB = 'name: web\nspec: {image: nginx, replicas: 3}\n';
const JOB = 'name: job\nnamespace: batch\nspec: {image: job}\n';

/** Creates a coordinator that stores a plan with one update and records the requests. */
function createPlanningCoordinator(requests: CreatePlanRequest[] = []): FakeCoordinator {
  return {
    createPlan: (request) => {
      requests.push(request);
      const { changes } = request;
      const steps = ['create 1 of version 2', 'stop 1 of version 1'].map((description) => ({
        description,
        ready: 2,
        live: 4,
      }));
      const web = {
        namespace: 'default',
        name: 'web',
        action: WorkloadPlan_Action.UPDATE,
        steps,
        totalSteps: 2,
      };
      const figures = { lowestReady: 2, minAvailable: 2, highestLive: 4 };
      return {
        id: ID,
        changes,
        expiresAt: timestampFromMs(NOW_MS + 3_600_000),
        workloads: [{ ...web, ...figures }],
      };
    },
  };
}

describe('option --plan', () => {
  it('stores one plan for all manifests, and prints the command that executes the plan', async () => {
    const requests: CreatePlanRequest[] = [];
    const files = { 'a.yaml': `${WEB}---\n${JOB}` };
    const result = await runCli(['apply', '-f', 'a.yaml', '--plan'], {
      coordinator: createPlanningCoordinator(requests),
      files,
    });
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: [
        'workload default/web: update',
        '  STEP                    READY   MIN   LIVE',
        '  create 1 of version 2   2       2     4',
        '  stop 1 of version 1     2       2     4',
        '  lowest ready 2 (minimum 2), highest live 4',
        `plan ${ID}, kept until 2026-01-01T01:00:00Z: cloudlessctl plan execute ${ID}`,
        '',
      ].join('\n'),
    });
    expect(requests[0]?.changes).toMatchObject([
      {
        change: {
          case: 'apply',
          value: { name: 'web', spec: { replicas: 3 }, updateMask: { paths: ['*'] } },
        },
      },
      { change: { case: 'apply', value: { namespace: 'batch', name: 'job' } } },
    ]);
  });

  it.each([
    {
      argv: ['scale', 'web', '4'],
      change: { case: 'scale', value: { namespace: 'default', name: 'web', replicas: 4 } },
    },
    {
      argv: ['rollout', 'undo', 'web', '--to-version', '2'],
      change: { case: 'undo', value: { name: 'web', toVersion: 2 } },
    },
    {
      argv: ['rollout', 'restart', 'far/web'],
      change: { case: 'restart', value: { namespace: 'far', name: 'web' } },
    },
    {
      argv: ['node', 'drain', 'n1', '--force', '--deadline', '5m'],
      change: { case: 'drain', value: { nodeId: 'n1', force: true, deadline: { seconds: 300n } } },
    },
  ])('creates a plan and changes nothing with $argv', async ({ argv, change }) => {
    const requests: CreatePlanRequest[] = [];
    const result = await runCli([...argv, '--plan', '-o', 'json'], {
      coordinator: createPlanningCoordinator(requests),
    });
    expect(JSON.parse(result.stdout)).toMatchObject({
      id: ID,
      workloads: [{ name: 'web', action: 'UPDATE', lowestReady: 2 }],
    });
    expect(requests[0]?.changes).toMatchObject([{ change }]);
  });

  it('names the workload of a refused change instead of the index of the change', async () => {
    const coordinator: FakeCoordinator = {
      createPlan: () => {
        throw new ConnectError(
          'changes[1].apply.spec.replicas: must be from 0 to 1000000',
          Code.InvalidArgument,
        );
      },
    };
    const result = await runCli(['apply', '-f', '-', '--plan'], {
      coordinator,
      stdin: { kind: 'pipe', text: `${WEB}---\n${JOB}` },
    });
    expect(result.exitCode).toBe(2);
    expect(result.stderr).toContain('workload batch/job: spec.replicas: must be from 0 to 1000000');
  });

  it('names each node that a drain finds without replicas to move', async () => {
    const coordinator: FakeCoordinator = {
      createPlan: ({ changes }) => ({
        id: ID,
        changes,
        nodes: ['n1', 'n2'].map((nodeId) => ({ nodeId, action: NodePlan_Action.DRAIN })),
      }),
    };
    const result = await runCli(['node', 'drain', 'n1', 'n2', '--plan'], { coordinator });
    expect(result.stdout).toContain(
      'node n1: drain: no replicas to move\nnode n2: drain: no replicas to move\n',
    );
  });

  it.each([
    {
      argv: ['scale', 'web', '4', '--plan', '--wait'],
      says: '--plan changes nothing to wait for',
    },
    {
      argv: ['scale', 'web', '4', '--plan', '--request-id', 'r'],
      says: '--plan changes nothing; use --request-id with --plan-id',
    },
    {
      argv: ['apply', '-f', '-', '--plan', '--dry-run'],
      says: '--dry-run and --plan exclude each other',
    },
    { argv: ['scale', '--plan'], says: "missing required argument 'workload'" },
    { argv: ['apply', '--plan'], says: "required option '-f, --filename <path>' not specified" },
    { argv: ['node', 'drain', '--plan'], says: "missing required argument 'nodes'" },
  ])('rejects $argv with: $says', async ({ argv, says }) => {
    const result = await runCli(argv, {
      coordinator: createPlanningCoordinator(),
      stdin: { kind: 'pipe', text: WEB },
    });
    expect(result).toMatchObject({
      exitCode: 2,
      stdout: '',
      stderr: expect.stringContaining(says),
    });
  });
});

describe('option --plan-id', () => {
  it.each(['apply', 'scale', 'rollout undo', 'rollout restart', 'node drain'])(
    'executes the plan with the command %s and prints the changes',
    async (command) => {
      const requests: object[] = [];
      const coordinator: FakeCoordinator = {
        executePlan: ({ id, requestId }) => {
          requests.push({ id, requestId });
          return {
            workloads: [aWorkload(), aWorkload({ name: 'new', generation: 1n })],
            nodes: [aNode({ draining: true })],
          };
        },
      };
      const result = await runCli([...command.split(' '), '--plan-id', ID, '--request-id', 'r'], {
        coordinator,
      });
      expect(result).toMatchObject({
        exitCode: 0,
        stdout:
          'workload default/web: updated\nworkload default/new: created\nnode web1: draining\n',
      });
      expect(requests).toEqual([{ id: ID, requestId: 'r' }]);
    },
  );

  it.each([
    { name: 'ABORTED', code: Code.Aborted, exitCode: 4 },
    { name: 'FAILED_PRECONDITION', code: Code.FailedPrecondition, exitCode: 4 },
    { name: 'NOT_FOUND', code: Code.NotFound, exitCode: 3 },
  ])(
    'exits with $exitCode when the coordinator answers with the error code $name',
    async ({ code, exitCode }) => {
      const coordinator: FakeCoordinator = {
        executePlan: () => {
          throw new ConnectError(
            'default/web: generation 4 was planned, it is 5 now; create a new plan',
            code,
          );
        },
      };
      const result = await runCli(['apply', '--plan-id', ID], { coordinator });
      expect(result).toMatchObject({
        exitCode,
        stdout: '',
        stderr: expect.stringContaining('generation 4 was planned'),
      });
    },
  );

  it.each([
    { argv: ['scale', 'web', '4', '--plan-id', ID], says: '--plan-id executes the stored plan' },
    {
      argv: ['apply', '-f', 'a.yaml', '--plan-id', ID],
      says: '--plan-id executes the stored plan',
    },
    {
      argv: ['node', 'drain', '--force', '--plan-id', ID],
      says: '--plan-id executes the stored plan',
    },
    { argv: ['apply', '--plan', '--plan-id', ID], says: '--plan-id executes the stored plan' },
    {
      argv: ['apply', '--plan-id', 'x'],
      says: '"x" is not a plan id: expected 16 hex digits',
    },
  ])('rejects $argv with: $says', async ({ argv, says }) => {
    expect(await runCli(argv)).toMatchObject({
      exitCode: 2,
      stdout: '',
      stderr: expect.stringContaining(says),
    });
  });
});

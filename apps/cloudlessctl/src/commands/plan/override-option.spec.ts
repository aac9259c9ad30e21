import { PlanWarning_Kind as WarningKind } from '@cloudless/api';
import { aWorkload, runCli, type FakeCoordinator } from '../../testing/run-cli.js';

const ID = '00112233aabbccdd';
const REASON = 'incident 4711';

type Override = { readonly reason: string } | undefined;

/** Records the reasons with which each call overrides policies. */
function aCoordinator() {
  const reasons: (readonly [string, string | undefined])[] = [];
  const record = (call: string, request: { readonly policyOverride?: Override }) =>
    reasons.push([call, request.policyOverride?.reason]);
  const warning = {
    kind: WarningKind.POLICY_OVERRIDDEN,
    message: 'overridden policy "privileged", rule "a": spec.security.privileged is true',
  };
  const change =
    (call: string) => (request: { readonly name: string; readonly policyOverride?: Override }) => {
      record(call, request);
      return aWorkload({ name: request.name });
    };
  const coordinator: FakeCoordinator = {
    createPlan: ({ changes, validateOnly }) => {
      for (const { change } of changes)
        record(`${validateOnly ? 'predict' : 'plan'} ${change.case}`, change.value as object);
      return {
        ...(validateOnly ? {} : { id: ID }),
        changes,
        workloads: [
          {
            namespace: 'default',
            name: 'web',
            action: 2,
            warningDetails: [warning],
            warnings: [warning.message],
          },
        ],
      };
    },
    executePlan: (request) => {
      record('execute', request);
      return { workloads: [aWorkload({ name: 'web' })] };
    },
    createWorkload: change('create'),
    updateWorkload: change('update'),
    scaleWorkload: change('scale'),
    undoRollout: change('undo'),
    restartRollout: change('restart'),
  };
  return { coordinator, reasons };
}

describe('--override-policies', () => {
  it.each([
    { argv: ['workload', 'create', 'web', '--image', 'a'], call: 'create' },
    { argv: ['workload', 'update', 'web', '--image', 'a'], call: 'update' },
    { argv: ['scale', 'web', '3'], call: 'scale' },
    { argv: ['rollout', 'undo', 'web'], call: 'undo' },
    { argv: ['rollout', 'restart', 'web'], call: 'restart' },
  ])('is part of the prediction and of the call of $argv', async ({ argv, call }) => {
    const { coordinator, reasons } = aCoordinator();
    const run = await runCli([...argv, '--override-policies', REASON], { coordinator });
    expect(run.exitCode).toBe(0);
    expect(run.stderr).toContain('warning: workload default/web: overridden policy "privileged"');
    expect(reasons).toEqual([
      [`predict ${call}`, REASON],
      [call, REASON],
    ]);
    reasons.length = 0;
    await runCli(argv, { coordinator });
    expect(reasons.map(([, reason]) => reason)).toEqual([undefined, undefined]);
  });

  it('is part of a preview, which shows the warnings of the policies', async () => {
    const { coordinator, reasons } = aCoordinator();
    const argv = ['scale', 'web', '3', '--dry-run', '--override-policies', REASON];
    const { stdout } = await runCli(argv, { coordinator });
    expect(stdout.replace(/\s+/g, ' ')).toContain('warning: overridden policy "privileged"');
    expect(reasons).toEqual([['predict scale', REASON]]);
  });

  it.each([
    [['plan', 'execute', ID]],
    [['scale', '--plan-id', ID]],
    [['rollout', 'undo', '--plan-id', ID]],
  ])('is part of the execution of a stored plan by %j', async (argv) => {
    const { coordinator, reasons } = aCoordinator();
    await runCli([...argv, '--override-policies', REASON], { coordinator });
    expect(reasons).toEqual([['execute', REASON]]);
  });

  it('is part of the plan of an apply and of its execution', async () => {
    const { coordinator, reasons } = aCoordinator();
    const stdin = { kind: 'pipe' as const, text: 'name: web\nspec: {image: nginx}\n' };
    const argv = ['apply', '-f', '-', '--override-policies', REASON];
    expect(await runCli(argv, { coordinator, stdin })).toMatchObject({ exitCode: 0 });
    expect(reasons).toEqual([
      ['predict apply', REASON],
      ['plan apply', REASON],
      ['execute', REASON],
    ]);
  });

  it.each(['short', ' spaces first', 'two lines\nof text', 'x'.repeat(513)])(
    'refuses the reason %j before a call',
    async (reason) => {
      const { coordinator, reasons } = aCoordinator();
      expect(
        await runCli(['scale', 'web', '3', '--override-policies', reason], { coordinator }),
      ).toMatchObject({
        exitCode: 2,
        stderr: expect.stringContaining('one line of 8 to 512 characters') as string,
      });
      expect(reasons).toEqual([]);
    },
  );
});

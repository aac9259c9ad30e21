import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { PlanSchema, PlanWarning_Kind, WorkloadPlan_Action } from '@cloudless/api';
import type { Plan, PlannedChange, Workload } from '@cloudless/api';
import { NOW_MS, aWorkload, runCli } from '../../testing/run-cli.js';
import type { FakeCoordinator } from '../../testing/run-cli.js';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';

const WEB = 'name: web\nspec: {image: nginx, replicas: 3}\n';
const JOB = '{"name": "job", "namespace": "batch", "spec": {"image": "job"}}';
const SAME = 'name: same\nspec: {image: x}\n';
const noNode = { kind: PlanWarning_Kind.NO_NODE_FITS, message: '1 replica would find no node' };

/** Plans a change: `same` stays, `job` is created, `crowded` has a warning, others are updated. */
function planChange({ change }: PlannedChange) {
  if (change.case !== 'apply' && change.case !== 'delete') throw new Error(`${change.case ?? ''}`);
  const { namespace, name } = change.value;
  const action =
    change.case === 'delete'
      ? WorkloadPlan_Action.DELETE
      : name === 'same'
        ? WorkloadPlan_Action.NOTHING
        : name === 'job'
          ? WorkloadPlan_Action.CREATE
          : WorkloadPlan_Action.UPDATE;
  const warningDetails = name === 'crowded' ? [noNode] : [];
  return {
    namespace,
    name,
    action,
    warningDetails,
    warnings: warningDetails.map(({ message }) => message),
  };
}

/**
 * Creates a coordinator that stores and executes plans.
 * @param members - Existing workloads with the label of a set.
 * @param onExecute - Called before a plan is executed; may throw.
 * @returns The recorded calls in order, and the options for {@link runCli}.
 */
function aCoordinator(members: readonly Workload[] = [], onExecute = (): void => undefined) {
  const calls: string[] = [];
  const plans: Plan[] = [];
  const coordinator: FakeCoordinator = {
    createPlan: ({ changes, validateOnly }) => {
      calls.push(validateOnly ? 'predict' : 'plan');
      const plan = create(PlanSchema, {
        changes,
        workloads: changes.map(planChange),
        ...(validateOnly ? {} : { id: `plan-${plans.length + 1}` }),
      });
      if (!validateOnly) plans.push(plan);
      return plan;
    },
    executePlan: ({ id, requestId }) => {
      calls.push(`execute ${id}${requestId === '' ? '' : ` as ${requestId}`}`);
      onExecute();
      const plan = plans.find((candidate) => candidate.id === id);
      const changed = (plan?.workloads ?? []).filter(
        ({ action }) => action !== WorkloadPlan_Action.NOTHING,
      );
      return {
        workloads: changed.map(({ namespace, name, action }) =>
          aWorkload({
            namespace,
            name,
            generation: action === WorkloadPlan_Action.CREATE ? 1n : 2n,
            ...(action === WorkloadPlan_Action.DELETE
              ? { deletionRequestedAt: timestampFromMs(NOW_MS) }
              : {}),
          }),
        ),
      };
    },
    getWorkload: ({ namespace, name }) => aWorkload({ namespace, name }),
    listWorkloads: () => ({ workloads: [...members] }),
  };
  return { calls, plans, coordinator };
}

describe('cloudlessctl apply', () => {
  it('shows the plan of all documents, then executes it in one call', async () => {
    const { calls, plans, coordinator } = aCoordinator();
    const files = { 'm/a.yaml': `${WEB}---\n${SAME}`, 'm/b.json': JOB, 'm/notes.txt': 'x' };
    const argv = ['apply', '-f', 'm', '--request-id', 'r'];
    expect(await runCli(argv, { coordinator, files })).toMatchObject({
      exitCode: 0,
      stderr: '',
      stdout: `workload default/web: update
workload default/same: unchanged
workload batch/job: create
workload default/web: updated
workload batch/job: created
`,
    });
    expect(calls).toEqual(['predict', 'plan', 'execute plan-1 as r']);
    expect(plans[0]?.changes[0]?.change).toMatchObject({
      case: 'apply',
      value: { name: 'web', spec: { replicas: 3 }, updateMask: { paths: ['*'] } },
    });
  });

  it('stores no plan when nothing changes, and prints the present workloads with -o json', async () => {
    const { calls, coordinator } = aCoordinator();
    const options = { coordinator, files: { 'a.yaml': SAME } };
    expect(await runCli(['apply', '-f', 'a.yaml'], options)).toMatchObject({
      stdout: 'workload default/same: unchanged\n',
    });
    expect(calls).toEqual(['predict']);
    const { stdout } = await runCli(['apply', '-f', 'a.yaml', '-o', 'json'], options);
    expect(JSON.parse(stdout)).toMatchObject({ workloads: [{ name: 'same' }] });
  });

  it('prints all workloads in the order of the manifests with -o json', async () => {
    const { coordinator } = aCoordinator();
    const files = { 'a.yaml': `${WEB}---\n${SAME}---\n${JOB}` };
    const { stdout, stderr } = await runCli(['apply', '-f', 'a.yaml', '-o', 'json'], {
      coordinator,
      files,
    });
    const { workloads } = JSON.parse(stdout) as { workloads: { name: string }[] };
    expect(workloads.map(({ name }) => name)).toEqual(['web', 'same', 'job']);
    expect(stderr).toBe('workload default/web: updated\nworkload batch/job: created\n');
  });

  it('makes several plans of more than 16 documents, and executes them in order', async () => {
    const { calls, coordinator } = aCoordinator();
    const documents = Array.from(
      { length: 20 },
      (_, index) => `name: w${index}\nspec: {image: x}\n`,
    );
    const files = { 'a.yaml': documents.join('---\n') };
    const { exitCode, stdout } = await runCli(['apply', '-f', 'a.yaml', '--request-id', 'r'], {
      coordinator,
      files,
    });
    expect({ exitCode, lines: stdout.trimEnd().split('\n').length }).toEqual({
      exitCode: 0,
      lines: 40,
    });
    expect(calls).toEqual([
      ...['predict', 'predict', 'plan', 'plan'],
      ...['execute plan-1 as r/1', 'execute plan-2 as r/2'],
    ]);
  });

  it('lists all workloads that the coordinator refuses, and applies nothing', async () => {
    const files = {
      'a.yaml':
        'name: a\nspec: {replicas: -1}\n---\nname: b\nspec: {image: x}\n---\nname: c\nspec: {replicas: -2}\n',
    };
    const coordinator: FakeCoordinator = {
      createPlan: ({ changes }) => {
        const index = changes.findIndex(
          ({ change }) => (change.value as { name: string }).name !== 'b',
        );
        if (index < 0) return {};
        const message = `changes[${index}].apply.spec.replicas: must be from 0 to 1000000`;
        throw new ConnectError(message, Code.InvalidArgument);
      },
    };
    const result = await runCli(['apply', '-f', 'a.yaml'], { files, coordinator });
    expect(result).toMatchObject({ exitCode: 2, stdout: '' });
    expect(result.stderr).toContain(
      'nothing was applied:\nworkload default/a: spec.replicas: must be from 0 to 1000000\nworkload default/c: spec.replicas: must be',
    );
  });

  it('creates a new plan in place of an outdated plan without questions', async () => {
    let attempts = 0;
    const { calls, coordinator } = aCoordinator([], () => {
      attempts += 1;
      if (attempts === 1) throw new ConnectError('plan "plan-1" is outdated', Code.Aborted);
    });
    const result = await runCli(['apply', '-f', 'a.yaml'], {
      coordinator,
      files: { 'a.yaml': WEB },
    });
    expect(result.exitCode).toBe(0);
    expect(calls).toEqual(['predict', 'plan', 'execute plan-1', 'plan', 'execute plan-2']);
  });

  it('prints only the plan with --dry-run', async () => {
    const { calls, coordinator } = aCoordinator();
    const result = await runCli(['apply', '-f', '-', '--dry-run', '-o', 'json'], {
      coordinator,
      stdin: { kind: 'pipe', text: WEB },
    });
    expect(calls).toEqual(['predict']);
    expect(JSON.parse(result.stdout)).toMatchObject({
      id: '',
      workloads: [{ namespace: 'default', name: 'web', action: 'UPDATE' }],
    });
  });

  it('lists all problems and applies nothing when a document is invalid', async () => {
    const { calls, coordinator } = aCoordinator();
    const files = { 'a.yaml': WEB, 'b.yaml': 'name: b\nspec: {imag: x}\n', 'c.yaml': WEB };
    const result = await runCli(['apply', '-f', 'a.yaml', '-f', 'b.yaml', '-f', 'c.yaml'], {
      coordinator,
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

describe('cloudlessctl apply with warnings', () => {
  const files = { 'a.yaml': 'name: crowded\nspec: {image: x}\n' };
  const warning = 'workload default/crowded: 1 replica would find no node';

  it('changes nothing without a terminal, unless --accept-warnings', async () => {
    const { calls, coordinator } = aCoordinator();
    for (const flags of [[], ['--yes']]) {
      expect(
        await runCli(['apply', '-f', 'a.yaml', ...flags], { coordinator, files }),
      ).toMatchObject({
        exitCode: 7,
        stderr: `cloudlessctl: nothing was changed: the change has 1 warning; to make it anyway, use --accept-warnings\n  ${warning}\n`,
      });
    }
    expect(calls.filter((call) => call.startsWith('execute'))).toEqual([]);
    const accepted = await runCli(['apply', '-f', 'a.yaml', '--accept-warnings'], {
      coordinator,
      files,
    });
    expect(accepted).toMatchObject({ exitCode: 0, stderr: '' });
    expect(accepted.stdout).toContain('1 replica would find no node');
  });

  it.each([
    { answer: 'y\n', exitCode: 0 },
    { answer: 'Yes\n', exitCode: 0 },
    { answer: 'n\n', exitCode: 9 },
    { answer: '\n', exitCode: 9 },
    { answer: '', exitCode: 9 },
  ])('asks on a terminal, and ends with $exitCode after $answer', async ({ answer, exitCode }) => {
    const { calls, coordinator } = aCoordinator();
    const result = await runCli(['apply', '-f', 'a.yaml', '--no-color'], {
      coordinator,
      files,
      ...anInteractiveTerminal(answer),
    });
    expect(result.exitCode).toBe(exitCode);
    expect(result.stderr).toMatch(/^Continue\? \[y\/N\] /);
    expect(result.stdout).toContain('1 replica would find no node');
    expect(calls.includes('execute plan-1')).toBe(exitCode === 0);
  });

  it('prints the new plan in place of an outdated plan before the execution', async () => {
    let isOutdated = true;
    const { calls, coordinator } = aCoordinator([], () => {
      if (!isOutdated) return;
      isOutdated = false;
      throw new ConnectError('plan "plan-1" is outdated', Code.Aborted);
    });
    const result = await runCli(['apply', '-f', 'a.yaml', '--accept-warnings'], {
      coordinator,
      files,
    });
    expect(result).toMatchObject({
      exitCode: 0,
      stderr: 'the cluster has changed, the new plan is:\n',
    });
    expect(result.stdout.match(/^workload default\/crowded: /gm)?.length).toBeGreaterThan(2);
    expect(calls).toEqual(['predict', 'plan', 'execute plan-1', 'plan', 'execute plan-2']);
  });

  it('refuses an outdated plan that the user has confirmed', async () => {
    const { calls, coordinator } = aCoordinator([], () => {
      throw new ConnectError('plan "plan-1" is outdated: no node fits 2 now', Code.Aborted);
    });
    const result = await runCli(['apply', '-f', 'a.yaml'], {
      coordinator,
      files,
      ...anInteractiveTerminal('y\n'),
    });
    expect(result.exitCode).toBe(4);
    expect(result.stderr).toContain(
      'cloudlessctl: nothing was applied: the cluster has changed since the plan was shown; run the command again. plan "plan-1" is outdated: no node fits 2 now\n',
    );
    expect(calls).toEqual(['predict', 'plan', 'execute plan-1']);
  });
});

describe('cloudlessctl apply --set', () => {
  const aMember = (name: string, set: string): Workload =>
    aWorkload({ name, spec: { image: 'x', labels: { 'apply-set': set } } });
  const members = [aMember('web', 'shop'), aMember('old', 'shop'), aMember('other', 'bank')];
  const files = { 'a.yaml': WEB };
  const network = { listServices: () => ({ services: [], nextPageToken: '', revision: 1n }) };

  it('records the set as a label, and deletes nothing without --prune', async () => {
    const { plans, coordinator } = aCoordinator(members);
    await runCli(['apply', '-f', 'a.yaml', '--set', 'shop'], { coordinator, network, files });
    expect(plans.map(({ changes }) => changes.map(({ change }) => change))).toMatchObject([
      [{ case: 'apply', value: { name: 'web', spec: { labels: { 'apply-set': 'shop' } } } }],
    ]);
  });

  it('deletes what the manifests no longer contain with --prune, and shows it before', async () => {
    const { plans, coordinator } = aCoordinator(members);
    const argv = ['apply', '-f', 'a.yaml', '--set', 'shop', '--prune'];
    const preview = await runCli([...argv, '--dry-run'], { coordinator, network, files });
    expect(preview.stdout).toContain('workload default/old: delete');
    expect(plans).toEqual([]);
    const result = await runCli(argv, { coordinator, network, files });
    expect(result).toMatchObject({ exitCode: 0 });
    expect(result.stdout).toContain('workload default/old: is being deleted\n');
    expect(plans[0]?.changes.map(({ change }) => change.case)).toEqual(['apply', 'delete']);
  });

  it('deletes only in the namespaces of the manifests and of the command line, at the listed generation', async () => {
    const { plans, coordinator } = aCoordinator([
      aMember('web', 'shop'),
      aMember('old', 'shop'),
      { ...aMember('far', 'shop'), namespace: 'staging' },
    ]);
    const argv = ['apply', '-f', 'a.yaml', '--set', 'shop', '--prune'];
    await runCli(argv, { coordinator, network, files });
    expect(plans[0]?.changes.slice(1).map(({ change }) => change)).toMatchObject([
      { case: 'delete', value: { namespace: 'default', name: 'old', expectedGeneration: 3n } },
    ]);
  });

  it('asks on a terminal before it deletes, unless --yes', async () => {
    const argv = ['apply', '-f', 'a.yaml', '--set', 'shop', '--prune'];
    const refused = aCoordinator(members);
    const options = { files, network, ...anInteractiveTerminal('n\n') };
    const result = await runCli(argv, { coordinator: refused.coordinator, ...options });
    expect(result.exitCode).toBe(9);
    expect(result.stderr).toBe(
      'Apply, and delete 1 workload? [y/N] cloudlessctl: nothing was changed\n',
    );
    expect(refused.calls).toEqual(['predict', 'plan']);
    const accepted = aCoordinator(members);
    await runCli([...argv, '-y'], { coordinator: accepted.coordinator, ...options });
    expect(accepted.calls).toEqual(['predict', 'plan', 'execute plan-1']);
  });

  it.each([
    {
      name: '--prune without a set',
      argv: ['--prune'],
      exitCode: 2,
      says: '--prune deletes only workloads, services, routes and configs of one set: give the name with --set',
    },
    {
      name: 'an invalid name',
      argv: ['--set', 'A b'],
      exitCode: 2,
      says: '--set: expected up to 63',
    },
    {
      name: 'a workload of another set',
      argv: ['--set', 'bank'],
      exitCode: 4,
      says: 'workload default/web belongs to the set shop, not to bank',
    },
  ])('refuses $name', async ({ argv, exitCode, says }) => {
    const { calls, coordinator } = aCoordinator(members);
    const result = await runCli(['apply', '-f', 'a.yaml', ...argv], {
      coordinator,
      network,
      files,
    });
    expect(result.exitCode).toBe(exitCode);
    expect(result.stderr).toContain(says);
    expect(calls).toEqual([]);
  });
});

import { Code, ConnectError } from '@connectrpc/connect';
import { PlanWarning_Kind as Kind, WorkloadPlan_Action } from '@cloudless/api';
import type { CreatePlanRequest } from '@cloudless/api';
import { aNode, aWorkload, runCli } from '../../testing/run-cli.js';
import type { FakeCoordinator } from '../../testing/run-cli.js';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';

/** A warning that a prediction returns. */
interface Warning {
  readonly kind: Kind;
  readonly message: string;
  readonly suggestion?: string;
}

const noNode: Warning = {
  kind: Kind.NO_NODE_FITS,
  message: '2 replicas would find no node: memory',
  suggestion: 'would fit on n1 with at most 1Gi memory',
};
const forced: Warning = { kind: Kind.NODE_HAS_REPLICAS, message: '3 replicas count as lost' };
const superseded: Warning = { kind: Kind.SUPERSEDES_ROLLOUT, message: 'version 2 is not done' };
const stopped: Warning = { kind: Kind.STOPS_REPLICAS, message: '3 replicas stop for good' };

/**
 * Creates a coordinator whose predictions have warnings.
 * @param warnings - The warnings of each prediction in order; the last is repeated.
 */
function createCoordinator(...warnings: readonly (readonly Warning[] | ConnectError)[]) {
  const changed: string[] = [];
  const requests: CreatePlanRequest[] = [];
  const change = ({ name }: { name: string }) => {
    changed.push(name);
    return aWorkload({ name });
  };
  const changeNode = ({ nodeId }: { nodeId: string }) => {
    changed.push(nodeId);
    return aNode({ id: nodeId });
  };
  const coordinator: FakeCoordinator = {
    createPlan: (request) => {
      const found = warnings[Math.min(requests.length, warnings.length - 1)] ?? [];
      requests.push(request);
      if (found instanceof ConnectError) throw found;
      const [first] = request.changes;
      const value = first?.change.value;
      const details = found.map((warning) => ({ ...warning }));
      if (value !== undefined && 'nodeId' in value)
        return { changes: request.changes, nodes: [{ nodeId: value.nodeId, warnings: details }] };
      return {
        changes: request.changes,
        workloads: request.changes.map(() => ({
          namespace: 'default',
          name: 'web',
          action: WorkloadPlan_Action.UPDATE,
          warningDetails: details,
          warnings: found.map(({ message }) => message),
        })),
      };
    },
    listWorkloads: () => ({ workloads: [aWorkload(), aWorkload({ name: 'api' })] }),
    createWorkload: change,
    updateWorkload: change,
    scaleWorkload: change,
    deleteWorkload: change,
    pauseRollout: change,
    resumeRollout: change,
    promoteRollout: change,
    restartRollout: change,
    undoRollout: change,
    cordonNode: changeNode,
    uncordonNode: changeNode,
    drainNode: changeNode,
    updateNode: changeNode,
    confirmNodeLost: changeNode,
    removeNode: ({ nodeId }) => {
      changed.push(nodeId);
      return {};
    },
  };
  return { coordinator, changed, requests };
}

/** Every verb that makes changes, with the kind of its change in a plan. */
const VERBS = [
  { line: 'workload create web --image x', kind: 'create' },
  { line: 'workload update web --image x', kind: 'update' },
  { line: 'scale web 5', kind: 'scale' },
  { line: 'delete web', kind: 'delete' },
  { line: 'rollout pause web', kind: 'pause' },
  { line: 'rollout resume web', kind: 'resume' },
  { line: 'rollout promote web', kind: 'promote' },
  { line: 'rollout restart web', kind: 'restart' },
  { line: 'rollout undo web', kind: 'undo' },
  { line: 'node cordon n1', kind: 'cordon' },
  { line: 'node uncordon n1', kind: 'uncordon' },
  { line: 'node drain n1', kind: 'drain' },
  { line: 'node label n1 disk=ssd', kind: 'updateNode' },
  { line: 'node taint n1 gpu:NO_SCHEDULE', kind: 'updateNode' },
  { line: 'node remove n1', kind: 'removeNode' },
  { line: 'node confirm-lost n1', kind: 'confirmNodeLost' },
] as const;

describe('the prediction of a change', () => {
  it.each(VERBS)(
    '$line refuses warnings, and shows them with --dry-run',
    async ({ line, kind }) => {
      const { coordinator, changed, requests } = createCoordinator([noNode]);
      const argv = line.split(' ');
      const refused = await runCli(argv, { coordinator });
      expect(refused.exitCode).toBe(7);
      expect(refused.stderr).toMatch(
        /^cloudlessctl: nothing was changed: the change has 1 warning; to make it anyway, use --accept-warnings\n {2}(workload default\/web|node n1): 2 replicas would find no node: memory; smallest change: would fit on n1 with at most 1Gi memory\n$/,
      );
      expect((await runCli([...argv, '--dry-run'], { coordinator })).stdout).toContain(
        '2 replicas would find no node',
      );
      expect(requests).toMatchObject([
        { validateOnly: true, changes: [{ change: { case: kind } }] },
        { validateOnly: true, changes: [{ change: { case: kind } }] },
      ]);
      await runCli([...argv, '--plan'], { coordinator });
      expect(requests.at(-1)).toMatchObject({ validateOnly: false });
      expect(changed).toEqual([]);
      expect(await runCli([...argv, '--accept-warnings'], { coordinator })).toMatchObject({
        exitCode: 0,
      });
      expect(changed).toHaveLength(1);
    },
  );

  it.each([
    { name: 'no node fits', warnings: [noNode], flags: [], exitCode: 7 },
    { name: 'a replica would be lost', warnings: [forced], flags: [], exitCode: 9 },
    { name: 'the warning is accepted', warnings: [noNode], flags: ['--accept-warnings'] },
    { name: 'the drain is forced', warnings: [forced], flags: ['--force'] },
    { name: 'there is no warning', warnings: [], flags: [] },
  ])('node drain --dry-run ends as the drain itself when $name', async (row) => {
    const { warnings, flags, exitCode = 0 } = row;
    const { coordinator } = createCoordinator(warnings);
    const drain = ['node', 'drain', 'n1', ...flags];
    for (const format of [[], ['-o', 'json']]) {
      const dryRun = await runCli([...drain, '--dry-run', ...format], { coordinator });
      expect(dryRun).toMatchObject({
        exitCode,
        stdout: expect.stringContaining('n1'),
        stderr:
          exitCode === 0
            ? ''
            : 'cloudlessctl: the change has 1 warning: without a terminal it needs --accept-warnings\n',
      });
    }
    expect((await runCli(drain, { coordinator })).exitCode).toBe(exitCode);
  });

  it.each(VERBS)('$line asks nothing without warnings', async ({ line }) => {
    const { coordinator, changed } = createCoordinator([]);
    const terminal = anInteractiveTerminal('n\n');
    expect(await runCli(line.split(' '), { coordinator, ...terminal })).toMatchObject({
      exitCode: 0,
      stderr: '',
    });
    expect(changed).toHaveLength(1);
  });

  it('asks about warnings on a terminal, and changes nothing after no', async () => {
    const { coordinator, changed } = createCoordinator([noNode]);
    const argv = ['scale', 'web', '5', '--no-color'];
    expect(await runCli(argv, { coordinator, ...anInteractiveTerminal('n\n') })).toMatchObject({
      exitCode: 9,
      stderr:
        'warning: workload default/web: 2 replicas would find no node: memory; smallest change: would fit on n1 with at most 1Gi memory\nContinue? [y/N] cloudlessctl: nothing was changed\n',
    });
    expect(changed).toEqual([]);
    await runCli(argv, { coordinator, ...anInteractiveTerminal('y\n') });
    await runCli([...argv, '--yes'], { coordinator, ...anInteractiveTerminal('n\n') });
    expect(changed).toEqual(['web', 'web']);
  });

  it('changes nothing when there are new warnings after the answer', async () => {
    const more = { ...noNode, message: '5 replicas would find no node' };
    const { coordinator, changed } = createCoordinator([noNode], [more]);
    const result = await runCli(['scale', 'web', '5'], {
      coordinator,
      ...anInteractiveTerminal('y\n'),
    });
    expect(result.exitCode).toBe(4);
    expect(result.stderr).toContain(
      'run the command again. New warnings:\n  workload default/web: 5 replicas would find no node; smallest change: would fit on n1 with at most 1Gi memory\n',
    );
    expect(changed).toEqual([]);
  });

  it.each([
    {
      name: 'shows that a rollout is superseded',
      line: 'scale web 5',
      warning: superseded,
      isShown: true,
    },
    {
      name: 'shows that min_available is lowered to the number of replicas',
      line: 'scale web 2',
      warning: { kind: Kind.MIN_AVAILABLE_LOWERED, message: 'min_available 4 counts as 2' },
      isShown: true,
    },
    {
      name: 'ignores that a deletion stops replicas',
      line: 'delete web',
      warning: stopped,
      isShown: false,
    },
    {
      name: 'ignores that an undo takes the place of a rollout',
      line: 'rollout undo web',
      warning: superseded,
      isShown: false,
    },
    {
      name: 'shows what --force does',
      line: 'node remove n1 --force',
      warning: forced,
      isShown: true,
    },
  ])('$name, without a question', async ({ line, warning, isShown }) => {
    const { coordinator, changed } = createCoordinator([warning]);
    const { exitCode, stderr } = await runCli(line.split(' '), { coordinator });
    expect({ exitCode, changes: changed.length }).toEqual({ exitCode: 0, changes: 1 });
    expect(stderr.includes(warning.message)).toBe(isShown);
  });

  it('makes the change when the prediction fails, so that the change reports the error', async () => {
    const { coordinator, changed } = createCoordinator(new ConnectError('full', Code.Internal));
    expect(await runCli(['scale', 'web', '5'], { coordinator })).toMatchObject({
      exitCode: 0,
      stderr: 'the effect was not predicted: full\n',
    });
    const missing = createCoordinator(new ConnectError('not found', Code.NotFound));
    await runCli(['scale', 'web', '5'], missing);
    expect([...changed, ...missing.changed]).toEqual(['web', 'web']);
  });

  it('predicts each change for itself when one of several is refused', async () => {
    const { coordinator, changed } = createCoordinator(
      new ConnectError('api not found', Code.NotFound),
      [noNode],
    );
    const argv = ['scale', 'web', 'api', '--replicas', '5'];
    expect((await runCli(argv, { coordinator })).exitCode).toBe(7);
    expect(changed).toEqual([]);
  });

  it('asks before it deletes what a selector or a file names, with the workloads', async () => {
    const files = { 'a.yaml': 'name: web\nspec: {image: x}' };
    for (const argv of [
      ['delete', '-l', 'app=shop'],
      ['delete', '-f', 'a.yaml'],
    ]) {
      const { coordinator, changed } = createCoordinator([stopped]);
      const asked = await runCli(argv, { coordinator, files, ...anInteractiveTerminal('n\n') });
      expect(asked.exitCode).toBe(9);
      expect(asked.stderr).toMatch(/workload default\/web: [^]*Delete [12] workloads?\? \[y\/N\] /);
      expect(changed).toEqual([]);
      await runCli([...argv, '-y'], { coordinator, files, ...anInteractiveTerminal('n\n') });
      await runCli(argv, { coordinator, files });
      expect(changed.length).toBeGreaterThanOrEqual(2);
    }
  });

  it('ends with the exit code of Ctrl-C while it waits for an answer', async () => {
    const { coordinator, changed } = createCoordinator([noNode]);
    const stopping = new AbortController();
    const terminal = anInteractiveTerminal('');
    const run = runCli(['scale', 'web', '5'], {
      coordinator,
      ...terminal,
      stdin: { kind: 'terminal', text: '', isOpen: true },
      signal: stopping.signal,
    });
    setImmediate(() => stopping.abort());
    expect((await run).exitCode).toBe(130);
    expect(changed).toEqual([]);
  });
});

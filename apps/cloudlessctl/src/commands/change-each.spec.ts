import { Code, ConnectError } from '@connectrpc/connect';
import { aNode, aWorkload, runCli } from '../testing/run-cli.js';
import type { FakeCoordinator } from '../testing/run-cli.js';

/** A coordinator that fails for some names and records the others with their request ids. */
function createCoordinator(failing: Readonly<Record<string, Code>> = {}) {
  const changed: string[] = [];
  const check = (name: string, requestId: string): void => {
    const code = failing[name];
    if (code !== undefined) throw new ConnectError(`${name} failed`, code);
    changed.push(requestId === '' ? name : `${name} as ${requestId}`);
  };
  const change = ({ name, requestId }: { name: string; requestId: string }) => {
    check(name, requestId);
    return aWorkload({ name });
  };
  const changeNode = ({ nodeId, requestId }: { nodeId: string; requestId: string }) => {
    check(nodeId, requestId);
    return aNode({ id: nodeId });
  };
  const coordinator: FakeCoordinator = {
    listWorkloads: () => ({ workloads: ['a', 'b'].map((name) => aWorkload({ name })) }),
    scaleWorkload: change,
    deleteWorkload: change,
    pauseRollout: change,
    resumeRollout: change,
    restartRollout: change,
    undoRollout: change,
    getNode: ({ nodeId }) => aNode({ id: nodeId }),
    cordonNode: changeNode,
    uncordonNode: changeNode,
    drainNode: changeNode,
    updateNode: changeNode,
    removeNode: ({ nodeId, requestId }) => {
      check(nodeId, requestId);
      return {};
    },
  };
  return { coordinator, changed };
}

describe('a change of several subjects', () => {
  it.each([
    'scale a b --replicas 3',
    'scale -l app=shop --replicas 3',
    'delete a b a',
    'delete -l app=shop',
    'delete workload -l app=shop',
    'rollout pause a b',
    'rollout resume -l app=shop',
    'rollout restart a b',
    'rollout undo -l app=shop',
    'node cordon a b',
    'node uncordon a b',
    'node drain a b',
    'node remove a b',
    'node label a b disk=ssd old-',
    'node taint a b gpu:NO_SCHEDULE',
  ])('%s changes each subject once, with a line for each', async (line) => {
    const { coordinator, changed } = createCoordinator();
    const { exitCode, stdout, stderr } = await runCli(line.split(' '), { coordinator });
    expect({ exitCode, stderr, changed }).toEqual({ exitCode: 0, stderr: '', changed: ['a', 'b'] });
    const lines = stdout.trimEnd().split('\n');
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(/^(workload default\/|node )a: /);
  });

  it('deletes the workloads of manifests with -f', async () => {
    const { coordinator, changed } = createCoordinator();
    const files = {
      'app/a.yaml': 'name: a\nspec: { command: [a] }',
      'app/b.yaml': 'name: b\nspec: { command: [b] }',
    };
    expect(await runCli(['delete', '-f', 'app'], { coordinator, files })).toMatchObject({
      exitCode: 0,
    });
    expect(changed).toEqual(['a', 'b']);
    expect(
      (await runCli(['delete', '-f', 'bad.yaml'], { coordinator, files: { 'bad.yaml': 'x: 1' } }))
        .stderr,
    ).toContain('cloudlessctl: nothing was deleted:\n');
  });

  it('goes on after a failure, names each, and ends with the exit code of the first', async () => {
    const { coordinator, changed } = createCoordinator({
      b: Code.NotFound,
      d: Code.FailedPrecondition,
    });
    const argv = ['scale', 'a', 'b', 'c', 'd', '--replicas', '2', '-o', 'json'];
    const { exitCode, stdout, stderr } = await runCli(argv, { coordinator });
    expect({ exitCode, changed }).toEqual({ exitCode: 3, changed: ['a', 'c'] });
    expect(stderr.split('\n')).toEqual([
      'workload default/a: scaled to 2',
      'cloudlessctl: workload default/b: b failed (NOT_FOUND)',
      'workload default/c: scaled to 2',
      'cloudlessctl: workload default/d: d failed (FAILED_PRECONDITION)',
      'cloudlessctl: 2 of 4 changes failed',
      '',
    ]);
    const { workloads } = JSON.parse(stdout) as { workloads: { name: string }[] };
    expect(workloads.map(({ name }) => name)).toEqual(['a', 'c']);
  });

  it('names a subject once when the message of the failure names it', async () => {
    const { coordinator } = createCoordinator();
    const pauseRollout = ({ name }: { name: string }) => {
      if (name === 'b') throw new ConnectError('workload "default/b" not found', Code.NotFound);
      return aWorkload({ name });
    };
    const argv = ['rollout', 'pause', 'a', 'b'];
    const { stderr } = await runCli(argv, { coordinator: { ...coordinator, pauseRollout } });
    expect(stderr).toBe(
      'cloudlessctl: workload "default/b" not found (NOT_FOUND)\ncloudlessctl: 1 of 2 changes failed\n',
    );
  });

  it('names the subjects that were not tried when the coordinator cannot be reached', async () => {
    const { coordinator, changed } = createCoordinator({ b: Code.Unavailable });
    const { exitCode, stderr } = await runCli(['node', 'cordon', 'a', 'b', 'c', 'd'], {
      coordinator,
    });
    expect({ exitCode, changed }).toEqual({ exitCode: 5, changed: ['a'] });
    expect(stderr).toBe(
      'cloudlessctl: node b: b failed (UNAVAILABLE)\n' +
        'cloudlessctl: not tried: node c, node d\n' +
        'cloudlessctl: 3 of 4 changes failed\n',
    );
  });

  it('prints the error of a single subject unchanged', async () => {
    const { coordinator } = createCoordinator({ a: Code.NotFound });
    expect(await runCli(['rollout', 'pause', 'a'], { coordinator })).toMatchObject({
      exitCode: 3,
      stderr: 'cloudlessctl: a failed (NOT_FOUND)\n',
    });
  });

  it('gives each change a request id of its own', async () => {
    const { coordinator, changed } = createCoordinator();
    await runCli(['delete', 'a', 'b', '--request-id', 'r'], { coordinator });
    await runCli(['node', 'cordon', 'a', 'b', '--request-id', 'r'], { coordinator });
    await runCli(['delete', 'a', '--request-id', 'r'], { coordinator });
    expect(changed).toEqual([
      'a as r/default/a',
      'b as r/default/b',
      'a as r/a',
      'b as r/b',
      'a as r',
    ]);
  });

  it.each([
    { line: 'scale a --replicas 3', changed: ['a'] },
    { line: 'scale a 3', changed: ['a'] },
    { line: 'scale a 3 --replicas 3', says: 'the number of replicas is given twice: remove 3' },
    { line: 'scale a b 3', changed: ['a', 'b'] },
    {
      line: 'scale a b c',
      says: 'give the number of replicas: cloudlessctl scale a b c --replicas',
    },
    { line: 'scale a', says: "missing required argument 'replicas'" },
    { line: 'scale -l app=shop 3', says: '-l needs the number of replicas as --replicas NUMBER' },
    { line: 'scale a -l app=shop --replicas 3', says: 'give names or -l, not both' },
    { line: 'delete', says: 'give the name of a workload, or select workloads with -l' },
    {
      line: 'delete a -f a.yaml',
      says: '-f names the objects to delete: remove a or -f',
    },
    {
      line: 'node label a b',
      says: 'the labels are missing: cloudlessctl node label a b disk=ssd',
    },
    { line: 'node taint a', says: 'the taints are missing: cloudlessctl node taint a gpu=true' },
  ])('$line', async ({ line, changed, says }) => {
    const fake = createCoordinator();
    const { exitCode, stderr } = await runCli(line.split(' '), fake);
    expect({ exitCode, changed: fake.changed }).toEqual({
      exitCode: says === undefined ? 0 : 2,
      changed: changed ?? [],
    });
    if (says !== undefined) expect(stderr).toContain(says);
  });
});

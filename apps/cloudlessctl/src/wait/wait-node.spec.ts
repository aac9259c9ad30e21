import { create } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { ManualClock } from '@cloudless/base/testing';
import {
  DrainStatusSchema,
  DrainStatus_Phase as Phase,
  WatchNodesResponse_Kind as Kind,
} from '@cloudless/api';
import type { DrainNodeRequest, Node } from '@cloudless/api';
import { NOW_MS, aNode, runCli } from '../testing/run-cli.js';
import type { CliOptions, CliResult, FakeCoordinator } from '../testing/run-cli.js';

const WAITS = 'default/web: 2 replicas: 3 of 3 replicas are ready, 1 extra not yet';

/** Creates a node with `remaining` of 3 replicas left. */
function aDrainingNode(remaining: number, phase = Phase.DRAINING, id = 'web1'): Node {
  const waiting = remaining === 0 ? [] : [WAITS];
  const drain = create(DrainStatusSchema, {
    phase,
    remaining,
    total: 3,
    waiting,
    startedAt: timestampFromMs(NOW_MS),
  });
  return aNode({ id, cordoned: true, draining: phase !== Phase.FAILED, status: { drain } });
}

/** Creates a coordinator that sends these states of each node, then nothing more. */
function createCoordinator(states: Readonly<Record<string, readonly (Node | 'gone')[]>>) {
  const requests: DrainNodeRequest[] = [];
  const coordinator: FakeCoordinator = {
    getNode: ({ nodeId }) => aNode({ id: nodeId }),
    drainNode: (request) => {
      requests.push(request);
      return aDrainingNode(3, Phase.DRAINING, request.nodeId);
    },
    watchNodes: async function* ({ nodeId }, { signal }) {
      for (const state of states[nodeId] ?? []) {
        if (state === 'gone') yield { kind: Kind.DELETED, node: aNode() };
        else yield { kind: Kind.PUT, node: state };
      }
      yield { kind: Kind.SYNCED };
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    },
  };
  return { requests, coordinator };
}

/** Runs `node drain web1 --wait` while the node passes through the states. */
const drain = (
  states: readonly (Node | 'gone')[],
  options: CliOptions = {},
  ...more: string[]
): Promise<CliResult> =>
  runCli(['node', 'drain', 'web1', '--wait', ...more], {
    coordinator: createCoordinator({ web1: states }).coordinator,
    ...options,
  });

describe('cloudlessctl node drain', () => {
  it('sends deadline and force, and one request per node', async () => {
    const { requests, coordinator } = createCoordinator({});
    const words = [
      'node',
      'drain',
      'web1',
      'web2',
      'web1',
      '--deadline',
      '5m',
      '--force',
      '--request-id',
      'r',
    ];
    expect(await runCli(words, { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: 'node web1: draining\nnode web2: draining\n',
    });
    const drainOptions = { deadline: durationFromMs(300_000), force: true };
    expect(requests).toMatchObject([
      { nodeId: 'web1', requestId: 'r/web1', ...drainOptions },
      { nodeId: 'web2', requestId: 'r/web2', ...drainOptions },
    ]);
    await runCli(['node', 'drain', 'web1', '--request-id', 'r'], { coordinator });
    expect(requests[2]).toMatchObject({ nodeId: 'web1', requestId: 'r', force: false });
    expect(requests[2]?.deadline).toBeUndefined();
  });

  it('rejects an invalid --deadline with exit code 2', async () => {
    expect(await runCli(['node', 'drain', 'web1', '--deadline', 'soon'])).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('--deadline: ') as unknown,
    });
  });

  it('drains no node when the name of one of several is mistyped', async () => {
    const { requests, coordinator } = createCoordinator({});
    coordinator.getNode = ({ nodeId }) => {
      if (nodeId === 'web1') return aNode();
      throw new ConnectError(`node "${nodeId}" not found`, Code.NotFound);
    };
    coordinator.listNodes = () => ({ nodes: [aNode()] });
    expect(await runCli(['node', 'drain', 'web1', 'wbe1'], { coordinator })).toMatchObject({
      exitCode: 3,
      stdout: '',
      stderr: 'cloudlessctl: node "wbe1" not found; did you mean web1?\n',
    });
    expect(requests).toEqual([]);
  });

  it('waits with --wait until the node is drained, and prints progress and reasons', async () => {
    const more = aDrainingNode(2);
    more.status!.drain!.waiting = [WAITS.replace('3 of 3', '2 of 3')];
    expect(
      await drain([
        aDrainingNode(3),
        aDrainingNode(2),
        more,
        aDrainingNode(0),
        aDrainingNode(0, Phase.DRAINED),
      ]),
    ).toMatchObject({
      exitCode: 0,
      stdout: [
        'node web1: draining',
        `node web1: 3 of 3 replicas left: ${WAITS}`,
        `node web1: 2 of 3 replicas left: ${WAITS}`,
        'node web1: 0 of 3 replicas left',
        'node web1: drained\n',
      ].join('\n'),
    });
  });

  it('shows the progress of all nodes with --wait on a terminal', async () => {
    const { coordinator } = createCoordinator({
      web1: [aDrainingNode(2), aDrainingNode(0, Phase.DRAINED)],
      web2: [aDrainingNode(1, Phase.DRAINING, 'web2'), aDrainingNode(0, Phase.DRAINED, 'web2')],
    });
    const { exitCode, stdout } = await runCli(['node', 'drain', 'web1', 'web2', '--wait'], {
      coordinator,
      isTTY: true,
      env: { NO_COLOR: '1' },
    });
    expect(exitCode).toBe(0);
    for (const text of [
      '0 of 2 nodes drained',
      '0s\nmoved  [#############...........................] 2 of 3 replicas left',
      `  ${WAITS}`,
      '2 of 2 nodes drained',
    ]) {
      expect(stdout).toContain(text);
    }
  });

  it('prints the drained node with --wait -o json', async () => {
    const { stdout } = await drain([aDrainingNode(0, Phase.DRAINED)], {}, '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      id: 'web1',
      status: { drain: { phase: 'DRAINED' } },
    });
  });

  it.each([
    {
      name: '1 when the drain fails',
      states: [aDrainingNode(2), aDrainingNode(2, Phase.FAILED)],
      exitCode: 1,
      stderr: `cloudlessctl: the drain of node web1 failed because its deadline has passed: 2 of 3 replicas left\n  ${WAITS}\n`,
    },
    {
      name: '4 when the drain is cancelled',
      states: [aDrainingNode(2), aNode()],
      exitCode: 4,
      stderr: `cloudlessctl: the drain of node web1 was ended while waiting: 2 of 3 replicas left\n  ${WAITS}\n`,
    },
    {
      name: '4 when the node is removed',
      states: [aDrainingNode(2), 'gone' as const],
      exitCode: 4,
      stderr: 'cloudlessctl: node web1 was removed while waiting\n',
    },
  ])('exits with $name', async ({ states, exitCode, stderr }) => {
    expect(await drain(states)).toMatchObject({ exitCode, stderr });
  });

  it('reconnects when the coordinator becomes unavailable right after the request', async () => {
    const clock = new ManualClock(NOW_MS);
    const { coordinator } = createCoordinator({ web1: [aDrainingNode(0, Phase.DRAINED)] });
    let calls = 0;
    const watchNodes: FakeCoordinator['watchNodes'] = (request, context) => {
      calls += 1;
      if (calls === 1) throw new ConnectError('no leader', Code.Unavailable);
      return coordinator.watchNodes!(request, context);
    };
    const running = runCli(['node', 'drain', 'web1', '--wait'], {
      coordinator: { ...coordinator, watchNodes },
      clock,
    });
    while (clock.pendingTimers < 2) await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(1_000);
    expect(await running).toMatchObject({
      exitCode: 0,
      stdout: 'node web1: draining\nnode web1: drained\n',
    });
  });

  it('waits for the other nodes and exits with 1 when the drain of one node fails', async () => {
    const { coordinator } = createCoordinator({
      web1: [aDrainingNode(1, Phase.FAILED)],
      web2: [aDrainingNode(1, Phase.DRAINING, 'web2'), aDrainingNode(0, Phase.DRAINED, 'web2')],
    });
    const { exitCode, stdout, stderr } = await runCli(['node', 'drain', 'web1', 'web2', '--wait'], {
      coordinator,
    });
    expect(exitCode).toBe(1);
    expect(stdout).toContain('node web2: drained\n');
    expect(stderr).toContain('the drain of node web1 failed');
  });

  it.each([
    { name: 'the time of --timeout', words: ['--timeout', '2s'], afterMs: 2_000, duration: '2s' },
    {
      name: 'ten minutes without --timeout and --deadline',
      words: [],
      afterMs: 600_000,
      duration: '10m',
    },
    {
      name: 'the time of --deadline and a minute',
      words: ['--deadline', '20m'],
      afterMs: 1_260_000,
      duration: '21m',
    },
  ])('exits with 6 after $name', async ({ words, afterMs, duration }) => {
    const clock = new ManualClock(NOW_MS);
    const running = drain([aDrainingNode(2)], { clock }, ...words);
    let ended = false;
    void running.then(() => (ended = true));
    while (clock.pendingTimers === 0) await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(afterMs - 1);
    expect(ended).toBe(false);
    await clock.advance(1);
    expect(await running).toMatchObject({
      exitCode: 6,
      stderr: `cloudlessctl: node web1 was not drained within ${duration}: 2 of 3 replicas left\n  ${WAITS}\n`,
    });
  });
});

describe('output for a node with a drain', () => {
  it.each([
    { word: 'Ready,Draining(2/3)', node: aDrainingNode(2) },
    { word: 'Ready,Drained', node: aDrainingNode(0, Phase.DRAINED) },
    { word: 'Ready,Cordoned,DrainFailed', node: aDrainingNode(2, Phase.FAILED) },
  ])('shows the status $word in get nodes', async ({ word, node }) => {
    const { stdout } = await runCli(['get', 'nodes'], {
      coordinator: { listNodes: () => ({ nodes: [node] }) },
    });
    expect(stdout).toContain(` ${word} `);
  });

  it('shows the deadline and the waiting reasons in describe', async () => {
    const node = aDrainingNode(2);
    node.status!.drain!.deadline = timestampFromMs(NOW_MS + 300_000);
    const coordinator = {
      getNode: () => node,
      listEvents: () => ({}),
      listWorkloads: () => ({}),
    };
    const { stdout } = await runCli(['describe', 'node', 'web1'], { coordinator });
    expect(stdout).toContain(
      [
        'Drain:',
        '  Phase:     draining',
        '  Started:   2026-01-01T00:00:00Z',
        '  Deadline:  2026-01-01T00:05:00Z (in 5m; then the drain fails)',
        '  Replicas:  2 left of 3',
        `  - ${WAITS}`,
      ].join('\n'),
    );
  });
});

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  EventSchema,
  WatchNodesResponse_Kind as NodeKind,
  WatchWorkloadsResponse_Kind as Kind,
  type WatchEventsRequest,
  type WatchEventsResponseSchema,
  type WatchWorkloadsRequest,
  type WatchWorkloadsResponseSchema,
} from '@cloudless/api';
import { ManualClock, settle } from '@cloudless/base/testing';
import {
  NOW_MS,
  aNode,
  aWorkload,
  runCli,
  type CliOptions,
  type CliResult,
} from '../testing/run-cli.js';

type Script<Item> = readonly (readonly (Item | ConnectError)[])[];

/**
 * Creates a watch whose n-th call sends the n-th list and then breaks; the last call stays open.
 * Records the requests.
 */
function createScriptedWatch<Item, Request>(calls: Script<Item>) {
  const requests: Request[] = [];
  const watch = async function* (
    request: Request,
    { signal }: { readonly signal: AbortSignal },
  ): AsyncGenerator<Item> {
    requests.push(request);
    for (const item of calls[requests.length - 1] ?? []) {
      if (item instanceof ConnectError) throw item;
      yield item;
    }
    if (requests.length < calls.length) throw new ConnectError('no leader', Code.Unavailable);
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  };
  return { requests, watch };
}

/** Runs a command until it prints the text, advancing the clock, then presses Ctrl-C. */
async function runUntil(
  argv: readonly string[],
  text: string,
  options: CliOptions,
): Promise<CliResult> {
  const clock = new ManualClock(NOW_MS);
  const stop = new AbortController();
  let shown = '';
  const onStdout = (part: string): void => {
    shown += part;
    if (shown.includes(text)) stop.abort();
  };
  const running = runCli(argv, { ...options, clock, signal: stop.signal, onStdout });
  for (let turn = 0; turn < 200 && !stop.signal.aborted; turn += 1) {
    await settle();
    await clock.advance(100);
  }
  stop.abort();
  return running;
}

type WorkloadItem = MessageInitShape<typeof WatchWorkloadsResponseSchema>;
type EventItem = MessageInitShape<typeof WatchEventsResponseSchema>;

const splitRows = (stdout: string): readonly string[] =>
  stdout.split('\n').map((line) => line.replaceAll(/ {2,}/g, ' | '));

describe('cloudlessctl get workloads --watch', () => {
  it('lists the workloads, prints each change, and resumes after a broken connection', async () => {
    const { requests, watch } = createScriptedWatch<WorkloadItem, WatchWorkloadsRequest>([
      [
        { kind: Kind.PUT, workload: aWorkload({ status: { readyReplicas: 1 } }), revision: 7n },
        { kind: Kind.SYNCED, revision: 9n },
      ],
      [{ kind: Kind.PUT, workload: aWorkload(), revision: 11n }],
      [
        { kind: Kind.DELETED, workload: aWorkload(), revision: 15n },
        { kind: Kind.PUT, workload: aWorkload({ name: 'last' }), revision: 16n },
      ],
    ]);
    const { stdout, stderr, exitCode } = await runUntil(['get', 'workloads', '-w'], 'last', {
      coordinator: { watchWorkloads: watch },
    });
    expect(exitCode).toBe(130);
    expect(requests.map(({ afterRevision }) => afterRevision)).toEqual([0n, 9n, 11n]);
    expect(splitRows(stdout).map((row) => row.split(' | ').slice(0, 4).join(' '))).toEqual([
      'NAMESPACE NAME STATUS READY',
      'default web Running 1/2',
      'default web Running 2/2',
      'default web Deleted -',
      'default last Running 2/2',
      '',
    ]);
    expect(stderr.split('\n')).toContain(
      'connection to the coordinator lost ([unavailable] no leader), reconnecting',
    );
  });

  it('prints a row that changes nothing in the table only once, also after a reconnect', async () => {
    const put = (fields: Parameters<typeof aWorkload>[0], revision: bigint): WorkloadItem => ({
      ...{ kind: Kind.PUT, workload: aWorkload(fields), revision },
    });
    const half = { status: { readyReplicas: 1 } };
    const { watch } = createScriptedWatch<WorkloadItem, WatchWorkloadsRequest>([
      [put({}, 7n), { kind: Kind.SYNCED, revision: 9n }],
      [put({ generation: 4n }, 11n), put({ generation: 5n }, 12n)],
      [put({}, 13n), put(half, 14n), put({}, 15n), put({ name: 'last' }, 16n)],
    ]);
    const { stdout } = await runUntil(['get', 'workloads', '-w'], 'last', {
      coordinator: { watchWorkloads: watch },
    });
    expect(splitRows(stdout).map((row) => row.split(' | ').slice(1, 4).join(' '))).toEqual([
      ...['NAME STATUS READY', 'web Running 2/2', 'web Running 1/2', 'web Running 2/2'],
      ...['last Running 2/2', ''],
    ]);
  });

  it('restarts from the current state when the history is compacted', async () => {
    const { requests, watch } = createScriptedWatch<WorkloadItem, WatchWorkloadsRequest>([
      [{ kind: Kind.SYNCED, revision: 9n }],
      [new ConnectError('what changed after revision 9 is no longer kept', Code.OutOfRange)],
      [{ kind: Kind.PUT, workload: aWorkload(), revision: 100n }],
    ]);
    const { stderr } = await runUntil(['get', 'workloads', '-w'], 'web', {
      coordinator: { watchWorkloads: watch },
    });
    expect(requests.map(({ afterRevision }) => afterRevision)).toEqual([0n, 9n, 0n]);
    expect(stderr).toContain(
      'the watch cannot be resumed and restarts from the current state: what changed after revision 9 is no longer kept\n',
    );
  });

  it('resumes after the coordinator ended it for slow reading, and fails when the first call is refused', async () => {
    const slow = new ConnectError('nothing was read', Code.ResourceExhausted);
    const { requests, watch } = createScriptedWatch<WorkloadItem, WatchWorkloadsRequest>([
      [{ kind: Kind.SYNCED, revision: 9n }, slow],
      [{ kind: Kind.PUT, workload: aWorkload(), revision: 10n }],
    ]);
    await runUntil(['get', 'workloads', '-w'], 'web', { coordinator: { watchWorkloads: watch } });
    expect(requests.map(({ afterRevision }) => afterRevision)).toEqual([0n, 9n]);
    const refused = createScriptedWatch<WorkloadItem, WatchWorkloadsRequest>([[slow], []]);
    const result = await runCli(['get', 'workloads', '-w'], {
      coordinator: { watchWorkloads: refused.watch },
    });
    expect(result).toMatchObject({
      exitCode: 7,
      stderr: 'cloudlessctl: nothing was read (RESOURCE_EXHAUSTED)\n',
    });
  });

  it('prints each item as a line of JSON with -o json', async () => {
    const { watch } = createScriptedWatch<WorkloadItem, WatchWorkloadsRequest>([
      [
        { kind: Kind.PUT, workload: aWorkload(), revision: 7n },
        { kind: Kind.BOOKMARK, revision: 8n },
        { kind: Kind.DELETED, workload: aWorkload({ spec: {} }), revision: 9n },
      ],
    ]);
    const { stdout } = await runUntil(['get', 'workloads', 'web', '-w', '-o', 'json'], 'DELETED', {
      coordinator: { watchWorkloads: watch },
    });
    const items = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { kind: string; revision: string });
    expect(items.map(({ kind, revision }) => `${kind} ${revision}`)).toEqual([
      'PUT 7',
      'DELETED 9',
    ]);
  });
});

describe('cloudlessctl get nodes --watch', () => {
  it('lists the nodes and prints each change', async () => {
    const watchNodes = async function* () {
      yield { kind: NodeKind.PUT, node: aNode(), revision: 1n };
      yield { kind: NodeKind.SYNCED, revision: 2n };
      yield { kind: NodeKind.PUT, node: aNode({ status: { phase: 3 } }), revision: 3n };
      yield { kind: NodeKind.DELETED, node: { id: 'web1' }, revision: 4n };
    };
    const { stdout } = await runUntil(['get', 'nodes', '-w'], 'Deleted', {
      coordinator: { watchNodes },
    });
    expect(splitRows(stdout).map((row) => row.split(' | ').slice(0, 2).join(' '))).toEqual([
      'NAME STATUS',
      'web1 Ready',
      'web1 Lost',
      'web1 Deleted',
      '',
    ]);
  });
});

describe('cloudlessctl events --watch', () => {
  const event = (id: string) => create(EventSchema, { id, reason: `Reason${id}` });

  it('watches from the revision of the list, resumes when the connection breaks, and repeats no event', async () => {
    const { requests, watch } = createScriptedWatch<EventItem, WatchEventsRequest>([
      [
        { event: event('2'), revision: 5n },
        { event: event('3'), revision: 5n },
      ],
      [
        { event: event('3'), revision: 6n },
        { event: event('4'), revision: 6n },
      ],
      [new ConnectError('no longer kept', Code.OutOfRange)],
      [{ event: event('5'), revision: 20n }],
    ]);
    const listEvents = () => ({ events: [event('1')], revision: 4n });
    const { stdout } = await runUntil(['events', '-w'], 'Reason5', {
      coordinator: { listEvents, watchEvents: watch },
    });
    expect(stdout.match(/Reason\d/g)).toEqual([
      'Reason1',
      'Reason2',
      'Reason3',
      'Reason4',
      'Reason5',
    ]);
    expect(requests.map(({ afterRevision, afterId }) => [afterRevision, afterId])).toEqual([
      [4n, ''],
      [5n, ''],
      [6n, ''],
      [0n, '4'],
    ]);
  });

  it('reports missed events when they are no longer stored, and continues with new events', async () => {
    const event = (id: string) => create(EventSchema, { id, reason: `Reason${id}` });
    const { requests, watch } = createScriptedWatch<EventItem, WatchEventsRequest>([
      [new ConnectError('no longer kept', Code.OutOfRange)],
      [new ConnectError('events after 1 are no longer kept', Code.OutOfRange)],
      [{ event: event('7'), revision: 20n }],
    ]);
    const listEvents = () => ({ events: [event('1')], revision: 4n });
    const { stderr } = await runUntil(['events', '-w'], 'Reason7', {
      coordinator: { listEvents, watchEvents: watch },
    });
    expect(stderr).toContain('events were missed: events after 1 are no longer kept\n');
    expect(requests.map(({ afterRevision, afterId }) => [afterRevision, afterId])).toEqual([
      [4n, ''],
      [0n, '1'],
      [0n, ''],
    ]);
  });
});

describe('cloudlessctl delete --wait', () => {
  it('resumes the watch, and reports the deletion when a restarted watch no longer lists the workload', async () => {
    const deleting = aWorkload({ status: { totalReplicas: 1 } });
    const { requests, watch } = createScriptedWatch<WorkloadItem, WatchWorkloadsRequest>([
      [
        { kind: Kind.PUT, workload: deleting, revision: 7n },
        { kind: Kind.SYNCED, revision: 9n },
      ],
      [{ kind: Kind.BOOKMARK, revision: 12n }],
      [new ConnectError('no longer kept', Code.OutOfRange)],
      [{ kind: Kind.SYNCED, revision: 90n }],
    ]);
    const coordinator = { deleteWorkload: () => deleting, watchWorkloads: watch };
    const { stdout, exitCode } = await runUntil(['delete', 'web', '--wait'], 'nothing', {
      coordinator,
    });
    expect(exitCode).toBe(0);
    expect(requests.map(({ name, afterRevision }) => [name, afterRevision])).toEqual([
      ['web', 0n],
      ['web', 9n],
      ['web', 12n],
      ['web', 0n],
    ]);
    expect(stdout).toBe('workload default/web: 1 replica left\nworkload default/web: deleted\n');
  });
});

import { create, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { ManualClock } from '@cloudless/base/testing';
import { LogBatchSchema, LogEntrySchema, OutputStream } from '@cloudless/api';
import type { LogEntry, StreamLogsRequest } from '@cloudless/api';
import { NOW_MS, aWorkload, runCli } from '../../testing/run-cli.js';

const anEntry = (
  replica: number,
  sequence: number,
  line: string,
  fields: Partial<LogEntry> = {},
): LogEntry =>
  create(LogEntrySchema, {
    containerId: `c${replica}`,
    replicaId: `00000000000000aa-${replica}`,
    sequence: BigInt(sequence),
    line,
    raw: fields.raw ?? new Uint8Array(),
    partial: fields.partial ?? false,
    stream: fields.stream ?? OutputStream.STDOUT,
    time: timestampFromMs(NOW_MS + sequence * 1000),
  });
/** A workload with one replica, whose lines have no prefix. */
const singleReplica = aWorkload({ status: { desiredReplicas: 1, totalReplicas: 1 } });
/** Creates a coordinator with a workload of two replicas and these log entries. */
const createCoordinator = (...entries: LogEntry[]) => ({
  getWorkload: () => aWorkload(),
  streamLogs: async function* () {
    yield* entries;
  },
});

describe('cloudlessctl logs', () => {
  it('prints the lines of a single replica without a prefix', async () => {
    const coordinator = {
      ...createCoordinator(anEntry(1, 1, 'a'), create(LogEntrySchema, {}), anEntry(1, 2, 'b')),
      getWorkload: () => singleReplica,
    };
    expect(await runCli(['logs', 'web'], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: 'a\nb\n',
    });
  });

  it('prefixes lines with their replica when several replicas write', async () => {
    expect(
      (
        await runCli(['logs', 'web'], {
          coordinator: createCoordinator(
            anEntry(1, 1, 'a'),
            anEntry(12, 1, 'b'),
            anEntry(1, 2, 'c'),
          ),
        })
      ).stdout,
    ).toBe('web-1 | a\nweb-12 | b\nweb-1  | c\n');
    const coordinator = {
      ...createCoordinator(anEntry(1, 1, 'a'), anEntry(2, 1, 'b')),
      getWorkload: () => singleReplica,
    };
    expect((await runCli(['logs', 'web'], { coordinator })).stdout).toBe('a\nweb-2 | b\n');
  });

  it('joins the pieces of a long line, and prints the raw bytes of an entry', async () => {
    const pieces = [
      anEntry(1, 1, 'lo', { partial: true }),
      anEntry(2, 1, 'x'),
      anEntry(1, 2, 'ng'),
      anEntry(1, 3, '?', { raw: Uint8Array.of(0xc3, 0xa9) }),
      anEntry(2, 2, 'end', { partial: true }),
    ];
    expect(
      (await runCli(['logs', 'web'], { coordinator: createCoordinator(...pieces) })).stdout,
    ).toBe('web-2 | x\nweb-1 | long\nweb-1 | é\nweb-2 | end\n');
  });

  it('sends the values of --tail, --since and --stream, and prints times with --utc', async () => {
    let seen: StreamLogsRequest | undefined;
    const coordinator = {
      streamLogs: async function* (request: StreamLogsRequest) {
        seen = request;
        yield anEntry(1, 1, 'a');
      },
    };
    const argv = [
      'logs',
      '00000000000000aa-1',
      '--tail',
      '5',
      '--since',
      '10m',
      '--stream',
      'stderr',
      '--utc',
    ];
    expect((await runCli(argv, { coordinator })).stdout).toBe('2026-01-01T00:00:01.000Z a\n');
    expect(seen).toMatchObject({
      replicaId: '00000000000000aa-1',
      tailLines: 5,
      streams: [OutputStream.STDERR],
      follow: false,
    });
    expect(seen?.since).toEqual(timestampFromMs(NOW_MS - 600_000));
  });

  it('prints local times with --timestamps', async () => {
    const coordinator = {
      ...createCoordinator(anEntry(1, 1, 'a')),
      getWorkload: () => singleReplica,
    };
    const options = { coordinator, utcOffset: 60 };
    expect((await runCli(['logs', 'web', '--timestamps'], options)).stdout).toBe(
      '2026-01-01T01:00:01.000+01:00 a\n',
    );
  });

  it('separates the lines of a restarted container from those of its successor', async () => {
    const [first, second] = ['1'.repeat(64), '2'.repeat(64)];
    const inContainer = (containerId: string, sequence: number, line: string): LogEntry =>
      Object.assign(anEntry(1, sequence, line), { containerId });
    const entries = [
      inContainer(first, 1, 'start'),
      inContainer(first, 2, 'dying'),
      inContainer(second, 1, 'start'),
    ];
    const coordinator = { ...createCoordinator(...entries), getWorkload: () => singleReplica };
    expect(await runCli(['logs', 'web'], { coordinator })).toMatchObject({
      stdout: 'start\ndying\nstart\n',
      stderr: '--- web-1 was restarted: container 111111111111 ended, 222222222222 follows ---\n',
    });
    expect((await runCli(['logs', 'web', '-o', 'json'], { coordinator })).stderr).toBe('');
  });

  it('asks for the earlier container with --previous, and refuses to follow it', async () => {
    let seen: StreamLogsRequest | undefined;
    const coordinator = {
      getWorkload: () => singleReplica,
      streamLogs: async function* (request: StreamLogsRequest) {
        seen = request;
        yield anEntry(1, 1, 'a');
      },
    };
    await runCli(['logs', 'web', '--previous'], { coordinator });
    expect(seen).toMatchObject({ name: 'web', previous: true, follow: false });
    expect(await runCli(['logs', 'web', '--previous', '-f'], { coordinator })).toMatchObject({
      exitCode: 2,
      stderr:
        'cloudlessctl: --follow and --previous exclude each other: the earlier container has ended\n',
    });
  });

  it('prints all lines of a batch as text and as JSON', async () => {
    let asked = 0;
    const aBatch = (...lines: LogEntry[]): LogEntry => {
      const entries = lines.map((line) =>
        create(LogEntrySchema, { ...line, containerId: '', replicaId: '' }),
      );
      const [first] = lines;
      const batch = toBinary(LogBatchSchema, create(LogBatchSchema, { entries }));
      return Object.assign(anEntry(1, Number(first!.sequence), ''), {
        batch,
        lastSequence: lines.at(-1)!.sequence,
      });
    };
    const coordinator = {
      getWorkload: () => singleReplica,
      streamLogs: async function* (request: StreamLogsRequest) {
        asked = request.maxBatchBytes;
        yield aBatch(anEntry(1, 1, 'a'), anEntry(1, 2, 'lo', { partial: true }));
        yield aBatch(anEntry(1, 3, 'ng'), anEntry(1, 4, 'b'));
      },
    };
    expect((await runCli(['logs', 'web'], { coordinator })).stdout).toBe('a\nlong\nb\n');
    expect(asked).toBeGreaterThan(0);
    const printed = (await runCli(['logs', 'web', '-o', 'json'], { coordinator })).stdout
      .trimEnd()
      .split('\n');
    expect(printed.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { containerId: 'c1', replicaId: '00000000000000aa-1', sequence: '1', line: 'a' },
      { sequence: '2', line: 'lo' },
      { sequence: '3', line: 'ng' },
      { sequence: '4', line: 'b' },
    ]);
  });

  it('reports missing lines on stderr, and as an entry with -o json', async () => {
    const skipped = { firstSequence: 2n, lastSequence: 1_001n, bytes: 2_048n };
    const marker = create(LogEntrySchema, {
      containerId: 'c1',
      replicaId: '00000000000000aa-1',
      skipped,
    });
    const coordinator = {
      ...createCoordinator(anEntry(1, 1, 'a'), marker, anEntry(1, 1_002, 'b')),
      getWorkload: () => singleReplica,
    };
    expect(await runCli(['logs', 'web'], { coordinator })).toMatchObject({
      stdout: 'a\nb\n',
      stderr:
        '1000 lines (2Ki) of 00000000000000aa-1 missing: log rotation removed them before they were read\n',
    });
    const { stdout } = await runCli(['logs', 'web', '-o', 'json'], { coordinator });
    expect(JSON.parse(stdout.split('\n')[1]!)).toMatchObject({
      sequence: '0',
      skipped: { firstSequence: '2', lastSequence: '1001', bytes: '2048' },
    });
  });

  it.each([
    {
      name: 'a node that is away',
      unreadable: { code: Code.Unavailable, message: 'node "m2" is not connected' },
      says: 'node "m2" is not connected (UNAVAILABLE). Repeat the command when the node answers; see cloudlessctl node describe m2',
    },
    {
      name: 'a node that no longer has the log',
      unreadable: { code: Code.NotFound, message: 'replica "x-2" is not on node m2' },
      says: 'replica "x-2" is not on node m2 (NOT_FOUND). Node m2 no longer has the log, so there is nothing to do',
    },
    {
      name: 'a followed log of a node that is away',
      unreadable: {
        code: Code.Unavailable,
        message: 'node "m2" is not connected',
        retried: true,
      },
      says: 'node "m2" is not connected (UNAVAILABLE). Lines of this log follow once the node answers; see cloudlessctl node describe m2',
    },
  ])('prints the other logs, and names the log of $name', async ({ unreadable, says }) => {
    const entry = create(LogEntrySchema, {
      replicaId: '00000000000000aa-2',
      unreadable: { nodeId: 'm2', ...unreadable },
    });
    const coordinator = createCoordinator(anEntry(1, 1, 'a'), entry);
    const stderr = `the log of web-2 cannot be read: ${says}\n`;
    expect(await runCli(['logs', 'web'], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: 'web-1 | a\n',
      stderr,
    });
    const structured = await runCli(['logs', 'web', '-o', 'json'], { coordinator });
    expect(structured).toMatchObject({ exitCode: 0, stderr });
    expect(JSON.parse(structured.stdout.split('\n')[1]!)).toMatchObject({
      replicaId: '00000000000000aa-2',
      unreadable: { nodeId: 'm2', code: unreadable.code },
    });
  });

  it.each([
    { event: 'the connection breaks', code: Code.Unavailable },
    { event: 'the coordinator ends the log because of slow reading', code: Code.ResourceExhausted },
  ])('resumes after the last line when $event, and repeats no line', async ({ code }) => {
    const clock = new ManualClock(NOW_MS);
    const requests: StreamLogsRequest[] = [];
    const coordinator = {
      getWorkload: () => singleReplica,
      streamLogs: async function* (request: StreamLogsRequest) {
        requests.push(request);
        yield anEntry(1, 1, 'a');
        if (requests.length === 1) throw new ConnectError('ended', code);
        yield anEntry(1, 2, 'b');
      },
    };
    const running = runCli(['logs', 'web', '-f', '--tail', '1'], { clock, coordinator });
    let ended = false;
    void running.then(() => (ended = true));
    while (!ended) {
      await new Promise((resolve) => setImmediate(resolve));
      await clock.advance(100);
    }
    expect(await running).toMatchObject({ exitCode: 0, stdout: 'a\nb\n' });
    expect(requests.map(({ tailLines }) => tailLines)).toEqual([1, undefined]);
    expect(requests[1]?.after).toMatchObject([{ containerId: 'c1', sequence: 1n }]);
  });

  it('resumes at the reported start position when the connection breaks before the first line', async () => {
    const clock = new ManualClock(NOW_MS);
    const requests: StreamLogsRequest[] = [];
    const coordinator = {
      getWorkload: () => singleReplica,
      streamLogs: async function* (request: StreamLogsRequest) {
        requests.push(request);
        if (requests.length > 1) return;
        yield create(LogEntrySchema, {
          containerId: 'c1',
          replicaId: '00000000000000aa-1',
          position: 7n,
        });
        throw new ConnectError('no leader', Code.Unavailable);
      },
    };
    const running = runCli(['logs', 'web', '-f', '--tail', '0'], { clock, coordinator });
    while (requests.length < 2) {
      await new Promise((resolve) => setImmediate(resolve));
      await clock.advance(100);
    }
    expect(await running).toMatchObject({ exitCode: 0, stdout: '' });
    expect(requests[1]).toMatchObject({ after: [{ containerId: 'c1', sequence: 7n }] });
    expect(requests[1]?.tailLines).toBeUndefined();
  });

  it('prints one JSON entry per line with -o json', async () => {
    const { stdout } = await runCli(['logs', 'web', '-o', 'json'], {
      coordinator: createCoordinator(anEntry(1, 1, 'a'), anEntry(2, 1, 'b')),
    });
    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => (JSON.parse(line) as { line: string }).line),
    ).toEqual(['a', 'b']);
  });
});

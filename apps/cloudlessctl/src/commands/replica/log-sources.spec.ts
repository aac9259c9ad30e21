import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { LogEntrySchema } from '@cloudless/api';
import type { ListWorkloadsRequest, LogEntry, StreamLogsRequest } from '@cloudless/api';
import { NOW_MS, aWorkload, runCli } from '../../testing/run-cli.js';

const uids: Readonly<Record<string, string>> = { web: '00000000000000aa', api: '00000000000000bb' };

/** The line `<name> <second>` of the first replica of a workload, written at that second. */
const anEntry = (name: string, second: number): LogEntry =>
  create(LogEntrySchema, {
    containerId: `c-${name}`,
    replicaId: `${uids[name] ?? name}-1`,
    sequence: BigInt(second),
    line: `${name} ${second}`,
    time: timestampFromMs(NOW_MS + second * 1000),
  });

/** A coordinator with these workloads, each with one replica that has written two lines. */
function createCoordinator(replicas: number, ...names: string[]) {
  const status = { desiredReplicas: replicas, totalReplicas: replicas };
  const workloads = names.map((name) => aWorkload({ name, status }));
  const seen: { list?: ListWorkloadsRequest; logs: string[] } = { logs: [] };
  return {
    seen,
    coordinator: {
      listWorkloads: (request: ListWorkloadsRequest) => {
        seen.list = request;
        return { workloads };
      },
      getWorkload: ({ name }: { name: string }) => aWorkload({ name, status }),
      streamLogs: async function* ({ name, replicaId }: StreamLogsRequest) {
        const source = name || replicaId;
        seen.logs.push(source);
        const offset = names.indexOf(source);
        yield anEntry(source, 1 + offset);
        yield anEntry(source, 3 + offset);
      },
    },
  };
}

describe('cloudlessctl logs of several targets', () => {
  it('merges the logs of several workloads by time, each line with its replica', async () => {
    const { coordinator } = createCoordinator(1, 'web', 'api');
    expect(await runCli(['logs', 'web', 'api', 'web'], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: 'web-1 | web 1\napi-1 | api 2\nweb-1 | web 3\napi-1 | api 4\n',
    });
  });

  it('reads the logs of all workloads with the labels of -l', async () => {
    const { coordinator, seen } = createCoordinator(1, 'web', 'api');
    const { stdout } = await runCli(['logs', '-l', 'app=shop', '-f', '-n', 'shop'], {
      coordinator,
    });
    expect(stdout.trimEnd().split('\n')).toHaveLength(4);
    expect(stdout).toContain('api-1 | api 2');
    expect(seen.list).toMatchObject({ namespace: 'shop', labelSelector: 'app=shop' });
    expect(seen.logs.sort()).toEqual(['api', 'web']);
  });

  it('names the namespace in the prefixes when the workloads are in several namespaces', async () => {
    const { coordinator } = createCoordinator(1, 'web', 'api');
    expect((await runCli(['logs', 'web', 'shop/api'], { coordinator })).stdout).toContain(
      'shop/api-1    | api 2\n',
    );
  });

  it.each([
    {
      name: 'refuses more replicas than it reads at once, before it reads a log',
      argv: ['-l', 'app=shop'],
      replicas: 40,
      exitCode: 2,
      message:
        '2 targets with 80 replicas: at most 64 logs are read at once; select fewer, or allow more with --max-replicas 80',
    },
    {
      name: 'refuses targets together with -l',
      argv: ['web', '-l', 'app=shop'],
      replicas: 1,
      exitCode: 2,
      message: 'give targets or -l, not both: remove web or -l app=shop',
    },
    {
      name: 'asks for a target',
      argv: [],
      replicas: 1,
      exitCode: 2,
      message: 'give a workload, a replica or a container, or select workloads with -l',
    },
    {
      name: 'refuses an empty selector',
      argv: ['-l', ''],
      replicas: 1,
      exitCode: 2,
      message: '-l is empty, which would select every workload; give a label',
    },
  ])('$name', async ({ argv, replicas, exitCode, message }) => {
    const { coordinator, seen } = createCoordinator(replicas, 'web', 'api');
    expect(await runCli(['logs', ...argv], { coordinator })).toMatchObject({
      exitCode,
      stdout: '',
      stderr: `cloudlessctl: ${message}\n`,
    });
    expect(seen.logs).toEqual([]);
  });

  it('reads more replicas with --max-replicas', async () => {
    const { coordinator } = createCoordinator(40, 'web', 'api');
    const argv = ['logs', '-l', 'app=shop', '--max-replicas', '80'];
    expect((await runCli(argv, { coordinator })).exitCode).toBe(0);
  });

  it('ends with the exit code 3 when no workload has the labels', async () => {
    const { coordinator } = createCoordinator(1);
    expect(await runCli(['logs', '-l', 'app=nope'], { coordinator })).toMatchObject({
      exitCode: 3,
      stderr: 'cloudlessctl: no workload in namespace default has the labels app=nope\n',
    });
  });
});

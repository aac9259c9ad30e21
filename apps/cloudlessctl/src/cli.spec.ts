import { readFile } from 'node:fs/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import { create } from '@bufbuild/protobuf';
import { EventSchema } from '@cloudless/api';
import { VERSION } from '@cloudless/app-kit';
import { runCli } from './testing/run-cli.js';

describe('cloudlessctl', () => {
  it.each([
    {
      argv: ['workloads'],
      message: "cloudlessctl: unknown command 'workloads'\n(Did you mean workload?)",
    },
    {
      argv: ['workload', 'crate'],
      message: "cloudlessctl: unknown command 'crate'\n(Did you mean create?)",
    },
    {
      argv: ['get', 'workloads', '--namespce', 'x'],
      message: "cloudlessctl: unknown option '--namespce'\n(Did you mean --namespace?)",
    },
    { argv: ['scale', 'web'], message: "cloudlessctl: missing required argument 'replicas'" },
    {
      argv: ['version', 'extra'],
      message: "cloudlessctl: too many arguments for 'version'. Expected 0 arguments but got 1.",
    },
    {
      argv: ['scale', 'web', 'many'],
      message: 'cloudlessctl: the number of replicas: expected a whole number, got "many"',
    },
    {
      argv: ['scale', 'web', '10000000000'],
      message:
        'cloudlessctl: the number of replicas: expected a whole number from 0 to 1000000, got "10000000000"',
    },
    {
      argv: ['scale', 'web', '--', '-1'],
      message: 'cloudlessctl: the number of replicas is missing: only a command may follow --',
    },
    {
      argv: ['get', 'workloads', 'a', 'b', '-w'],
      message: 'cloudlessctl: --watch takes at most one workload, got 2',
    },
    {
      argv: ['get', 'nodes', 'a', 'b', '-w'],
      message: 'cloudlessctl: --watch takes at most one node, got 2',
    },
    {
      argv: ['get', 'events', '-l', 'a=b'],
      message:
        'cloudlessctl: --selector applies to workloads, nodes, replicas, namespaces, services, routes, secrets and configs, not to events',
    },
    {
      argv: ['get', 'nodes', '-A'],
      message:
        'cloudlessctl: --all-namespaces applies to workloads, replicas, events, containers, namespaces, services, routes, secrets, configs, policies and plans, not to nodes',
    },
    {
      argv: ['get', 'workloads', '--audit'],
      message: 'cloudlessctl: --audit applies to events, not to workloads',
    },
    {
      argv: ['get', 'containers', '--why', '7'],
      message: 'cloudlessctl: --why applies to events, not to containers',
    },
    {
      argv: ['get', 'nodes', '--limit', '5'],
      message: 'cloudlessctl: --limit applies to events, not to nodes',
    },
    {
      argv: ['get', 'pods'],
      message:
        'cloudlessctl: unknown kind "pods": expected workloads, replicas, containers, services, routes, secrets, configs, policies, plans, nodes, events, namespaces, users or tokens; here: replicas',
    },
    {
      argv: ['get', 'nods'],
      message:
        'cloudlessctl: unknown kind "nods": expected workloads, replicas, containers, services, routes, secrets, configs, policies, plans, nodes, events, namespaces, users or tokens; did you mean node?',
    },
    {
      argv: ['describe', 'Web!'],
      message:
        'cloudlessctl: "Web!" is not a valid workload name: expected [namespace/]name, each up to 63 lower-case letters, digits and inner hyphens',
    },
    {
      argv: ['get', 'workloads', '-o', 'jsn'],
      message:
        'cloudlessctl: --output: expected one of table, wide, json, yaml, name, manifest, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,…, got "jsn"; did you mean json?',
    },
    {
      argv: ['get', 'nodes', '--timeout', '5'],
      message:
        'cloudlessctl: --timeout: expected a duration such as "500ms", "2s" or "1h30m", got "5"; write "5s" for seconds',
    },
    {
      argv: ['get', 'nodes', '--server', 'localhost:8080'],
      message:
        'cloudlessctl: --server: expected an address such as http://127.0.0.1:8080, got "localhost:8080"',
    },
    {
      argv: ['workload', 'create', 'web'],
      message: 'cloudlessctl: nothing to run: give --image, or a command after --',
    },
    {
      argv: ['workload', 'create', 'web', 'nginx'],
      message:
        'cloudlessctl: unexpected "nginx": put the command after --, for example: cloudlessctl workload create web -- sleep 60',
    },
    {
      argv: ['workload', 'create', 'web', '--image', 'x', '--port', 'x'],
      message:
        'cloudlessctl: --port: expected 8080, http=8080, dns=53/udp or, with a host port, 80:8080, got "x"',
    },
    {
      argv: ['workload', 'create', 'web', '--image', 'x', '--restart', 'nver'],
      message:
        'cloudlessctl: --restart: expected one of Always, OnFailure, Never, got "nver"; did you mean Never?',
    },
    {
      argv: ['workload', 'update', 'web'],
      message: 'cloudlessctl: nothing to change: give at least one flag, or a command after --',
    },
    {
      argv: ['exec', 'web', 'ls'],
      message:
        'cloudlessctl: unexpected "ls": put the command after --, for example: cloudlessctl exec web -- ls -l',
    },
    {
      argv: ['node', 'taint', 'web1', 'a=b:NOPE'],
      message:
        'cloudlessctl: a=b:NOPE: unknown effect, expected one of NoSchedule, PreferNoSchedule, NoExecute, got "NOPE"',
    },
    {
      argv: ['apply'],
      message: "cloudlessctl: required option '-f, --filename <path>' not specified",
    },
    {
      argv: ['apply', '-f', 'none.yaml'],
      message: 'cloudlessctl: none.yaml: no such file or directory',
    },
  ])(
    'rejects the invalid command line $argv with exit code 2 before it connects',
    async ({ argv, message }) => {
      const { exitCode, stdout, stderr, servers } = await runCli(argv);
      expect({ exitCode, stdout, servers }).toEqual({ exitCode: 2, stdout: '', servers: [] });
      expect(stderr.slice(0, message.length)).toBe(message);
      expect(stderr[message.length]).toBe('\n');
    },
  );

  it('reports the version of its package.json', async () => {
    const { version } = JSON.parse(
      await readFile(new URL('../package.json', import.meta.url), 'utf8'),
    ) as { version: string };
    expect(version).toBe(VERSION);
  });

  it('prints its version as text and as JSON', async () => {
    expect(await runCli(['--version'])).toMatchObject({
      exitCode: 0,
      stdout: 'cloudlessctl 0.1.0\n',
    });
    expect(await runCli(['version', '--client', '-o', 'json'])).toMatchObject({
      exitCode: 0,
      stdout: '{\n  "version": "0.1.0"\n}\n',
    });
  });

  it('prints the version of the coordinator, and only its own version when the coordinator does not answer', async () => {
    const getServerInfo = () => ({
      version: '0.9.0',
      clusterId: 'c1',
      epoch: 3n,
      revision: 41n,
      protocolMin: 1,
      protocolMax: 2,
    });
    expect(await runCli(['version'], { coordinator: { getServerInfo } })).toMatchObject({
      exitCode: 0,
      stdout: 'cloudlessctl 0.1.0\ncoordinator 0.9.0 (cluster c1, epoch 3)\n',
    });
    const { stdout } = await runCli(['version', '-o', 'json'], { coordinator: { getServerInfo } });
    expect(JSON.parse(stdout)).toEqual({
      version: '0.1.0',
      server: {
        version: '0.9.0',
        clusterId: 'c1',
        epoch: '3',
        revision: '41',
        protocolMin: 1,
        protocolMax: 2,
        coordinatorId: '',
        coordinators: [],
      },
    });
    const unavailable = () => {
      throw new ConnectError('it is starting', Code.Unavailable);
    };
    expect(
      await runCli(['version'], { coordinator: { getServerInfo: unavailable } }),
    ).toMatchObject({
      exitCode: 5,
      stdout: 'cloudlessctl 0.1.0\n',
      stderr: 'cloudlessctl: it is starting (UNAVAILABLE)\n',
    });
  });

  it('prints the options of a command with --help, and exits with 2 for a group without a subcommand', async () => {
    const help = await runCli(['workload', 'create', '--help']);
    expect(help.exitCode).toBe(0);
    expect(help.stdout).toContain('--memory <bytes>');
    expect(help.stdout).toContain('Global options:');
    expect((await runCli(['workload'])).exitCode).toBe(2);
  });

  const exitCodes: readonly (readonly [Code, number])[] = [
    [Code.Canceled, 1],
    [Code.Unknown, 1],
    [Code.InvalidArgument, 2],
    [Code.DeadlineExceeded, 6],
    [Code.NotFound, 3],
    [Code.AlreadyExists, 4],
    [Code.PermissionDenied, 1],
    [Code.ResourceExhausted, 7],
    [Code.FailedPrecondition, 4],
    [Code.Aborted, 4],
    [Code.OutOfRange, 1],
    [Code.Unimplemented, 1],
    [Code.Internal, 1],
    [Code.Unavailable, 5],
    [Code.DataLoss, 1],
    [Code.Unauthenticated, 1],
  ];
  it.each(exitCodes.map(([code, exitCode]) => ({ name: Code[code], code, exitCode })))(
    'exits with $exitCode when the coordinator answers with the error code $name',
    async ({ code, exitCode }) => {
      const coordinator = {
        getWorkload: () => {
          throw new ConnectError('it went wrong', code);
        },
      };
      const result = await runCli(['workload', 'get', 'web'], { coordinator });
      expect(result.exitCode).toBe(exitCode);
      expect(result.stderr).toContain('it went wrong');
    },
  );

  it('prints the gRPC name of the error code of the coordinator', async () => {
    const coordinator = {
      getWorkload: () => {
        throw new ConnectError('workload default/web does not exist', Code.NotFound);
      },
    };
    expect((await runCli(['describe', 'web'], { coordinator })).stderr).toBe(
      'cloudlessctl: workload default/web does not exist (NOT_FOUND)\n',
    );
  });

  it('exits with 0 and without a message when the reader closes the output pipe', async () => {
    expect(await runCli(['version'], { brokenAfter: 0 })).toMatchObject({
      exitCode: 0,
      stderr: '',
    });
    expect(await runCli(['--help'], { brokenAfter: 0 })).toMatchObject({ exitCode: 0, stderr: '' });
  });

  it('exits with 130 on Ctrl-C', async () => {
    const stop = new AbortController();
    const coordinator = {
      listEvents: () => ({ events: [create(EventSchema, { id: '1', reason: 'NodeLost' })] }),
      watchEvents: async function* () {
        yield { event: create(EventSchema, { id: '2', reason: 'NodeReady' }) };
        await new Promise(() => undefined);
      },
    };
    const onStdout = (text: string): void => {
      if (text.includes('NodeReady')) stop.abort();
    };
    const result = await runCli(['events', '--watch'], {
      coordinator,
      signal: stop.signal,
      onStdout,
    });
    expect(result).toMatchObject({ exitCode: 130, stderr: '' });
    expect(result.stdout).toContain('NodeLost');
  });
});

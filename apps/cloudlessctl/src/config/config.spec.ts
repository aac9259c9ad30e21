import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { connectNodeAdapter, createConnectTransport } from '@connectrpc/connect-node';
import { CoordinatorService } from '@cloudless/api';
import { USER_TOKEN, aNode, runCli } from '../testing/run-cli.js';
import { checkServer } from './context.js';

const PATH = '/home/me/.config/cloudless/config.yaml';
const CONFIG =
  '# mine\ncurrent: dev\ncontexts:\n  dev:\n    server: http://127.0.0.1:9000\n    namespace: team\n  prod: {server: "https://cluster.example:8443", tokenFile: /token}\n';
const coordinator = { listWorkloads: () => ({}) };

describe('cloudlessctl', () => {
  it.each([
    {
      name: 'no configuration file',
      argv: [],
      env: {},
      config: '',
      server: 'http://127.0.0.1:8080',
      namespace: 'default',
    },
    {
      name: 'a current context',
      argv: [],
      env: {},
      config: CONFIG,
      server: 'http://127.0.0.1:9000',
      namespace: 'team',
    },
    {
      name: 'CLOUDLESS_SERVER and a current context',
      argv: [],
      env: { CLOUDLESS_SERVER: 'http://h:1' },
      config: CONFIG,
      server: 'http://h:1',
      namespace: 'team',
    },
    {
      name: '--context, CLOUDLESS_SERVER and a current context',
      argv: ['--context', 'prod'],
      env: { CLOUDLESS_SERVER: 'http://h:1' },
      config: CONFIG,
      server: 'https://cluster.example:8443',
      namespace: 'default',
    },
    {
      name: '--server, --namespace, CLOUDLESS_SERVER and a current context',
      argv: ['--server', 'http://x:2/', '-n', 'mine'],
      env: { CLOUDLESS_SERVER: 'http://h:1' },
      config: CONFIG,
      server: 'http://x:2',
      namespace: 'mine',
    },
    {
      name: '--server twice, of which the second is for when the first does not answer,',
      argv: ['--server', 'http://x:1', '--server', 'http://x:2'],
      env: {},
      config: '',
      server: 'http://x:1,http://x:2',
      namespace: 'default',
    },
  ])(
    'uses the server $server and the namespace $namespace with $name',
    async ({ argv, env, config, server, namespace }) => {
      const files = config === '' ? {} : { [PATH]: config, '/token': USER_TOKEN };
      for (const words of [
        [...argv, 'get', 'workloads'],
        ['get', ...argv, 'workloads'],
        ['get', 'workloads', ...argv],
        [...argv, 'workload', 'list'],
        ['workload', ...argv, 'list'],
      ]) {
        const result = await runCli(words, { coordinator, env, files });
        expect(result).toMatchObject({
          exitCode: 0,
          servers: [server],
          stderr: `no workloads in namespace ${namespace}\n`,
        });
      }
    },
  );

  it.each([
    {
      name: 'an unknown key',
      config: 'curent: x\n',
      message: `${PATH}:1:1: curent: unknown key; did you mean current?`,
    },
    {
      name: 'an unknown key of a context',
      config: 'contexts:\n  dev:\n    sever: http://x:1\n',
      message: `${PATH}:3:5: contexts.dev.sever: unknown key; did you mean server?`,
    },
    {
      name: 'an invalid server',
      config: 'contexts:\n  dev: {server: x}\n',
      message: `${PATH}:2:17: contexts.dev.server: expected an address such as http://127.0.0.1:8080, got "x"`,
    },
    {
      name: 'a current context that does not exist',
      config: 'current: prd\ncontexts: {prod: {}}\n',
      message: `the current context of ${PATH}: context "prd" does not exist in ${PATH}; did you mean prod?`,
    },
  ])('rejects a configuration file with $name', async ({ config, message }) => {
    expect(await runCli(['get', 'workloads'], { files: { [PATH]: config } })).toMatchObject({
      exitCode: 2,
      stderr: `cloudlessctl: ${message}\n`,
      servers: [],
    });
  });
});

describe('cloudlessctl context', () => {
  it('changes the configuration file and keeps its comments with set and use', async () => {
    const first = await runCli(['context', 'set', 'dev', '--server', 'http://127.0.0.1:9000']);
    expect(first.files[PATH]).toBe(
      'current: dev\ncontexts:\n  dev:\n    server: http://127.0.0.1:9000\n',
    );
    const second = await runCli(['context', 'set', 'dev', '-n', 'other'], {
      files: { [PATH]: CONFIG },
    });
    expect(second.files[PATH]).toBe(
      CONFIG.replace('namespace: team', 'namespace: other').replace(
        '{server: "https://cluster.example:8443", tokenFile: /token}',
        '{ server: "https://cluster.example:8443", tokenFile: /token }',
      ),
    );
    const third = await runCli(['context', 'use', 'prod'], { files: { [PATH]: CONFIG } });
    expect(third.files[PATH]).toContain('# mine\ncurrent: prod\n');
    expect((await runCli(['context', 'use', 'prd'], { files: { [PATH]: CONFIG } })).exitCode).toBe(
      3,
    );
    const broken = CONFIG.replace('current: dev', 'current: gone');
    expect((await runCli(['context', 'use', 'dev'], { files: { [PATH]: broken } })).exitCode).toBe(
      0,
    );
  });

  it('leaves the configuration file unchanged when set gets no setting or an invalid name', async () => {
    for (const [argv, message] of [
      [['dev'], 'nothing to set: give --server, --namespace, --token-file or --ca-file'],
      [['-x', '-n', 'team'], "unknown option '-x'"],
      [['a b', '-n', 'team'], '"a b" is not a valid context name'],
    ] as const) {
      const result = await runCli(['context', 'set', ...argv], { files: { [PATH]: CONFIG } });
      expect(result).toMatchObject({ exitCode: 2, files: { [PATH]: CONFIG } });
      expect(result.stderr).toContain(message);
    }
    const onlyNamespace = await runCli(['context', 'set', 'dev', '-n', 'team']);
    expect(onlyNamespace.files[PATH]).toBe(
      'current: dev\ncontexts:\n  dev:\n    namespace: team\n',
    );
  });

  it('prints the command that creates a context when list finds none', async () => {
    expect(await runCli(['context', 'list'])).toMatchObject({
      exitCode: 0,
      stdout: '',
      stderr: `no contexts in ${PATH}; create one with: cloudlessctl login https://HOST:8080 or cloudlessctl context set <name> --server <url>\n`,
    });
    expect(JSON.parse((await runCli(['context', 'list', '-o', 'json'])).stdout)).toEqual({
      contexts: [],
    });
  });

  it('prints all contexts with list, and the settings in use with show', async () => {
    expect((await runCli(['context', 'list'], { files: { [PATH]: CONFIG } })).stdout).toBe(
      'CURRENT   NAME   SERVER                         NAMESPACE   USER   LOGIN\n*         dev    http://127.0.0.1:9000          team        -      -\n-         prod   https://cluster.example:8443   default     -      token\n',
    );
    expect(
      (
        await runCli(['context', 'show'], {
          files: { '/c.yaml': CONFIG },
          env: { CLOUDLESS_CONFIG: '/c.yaml' },
        })
      ).stdout,
    ).toBe(
      'context:   dev\nserver:    http://127.0.0.1:9000\nnamespace: team\nconfig:    /c.yaml\n',
    );
  });
});

describe('cloudlessctl node get', () => {
  it('calls a coordinator by the Connect protocol over HTTP/2 without TLS', async () => {
    const server = createServer(
      connectNodeAdapter({
        routes: ({ service }) => void service(CoordinatorService, { getNode: () => aNode() }),
      }),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const transport = createConnectTransport({
      baseUrl: `http://127.0.0.1:${port}`,
      httpVersion: '2',
      idleConnectionTimeoutMs: 1,
    });
    const result = await runCli(['node', 'get', 'web1'], { transport });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toContain('web1   Ready');
    await new Promise((resolve) => server.close(resolve));
  });

  it('names the address and the settings to check when the coordinator refuses the connection', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const transport = createConnectTransport({
      baseUrl: `http://127.0.0.1:${port}`,
      httpVersion: '2',
    });
    expect(
      await runCli(['node', 'get', 'web1'], { transport, files: { [PATH]: CONFIG } }),
    ).toMatchObject({
      exitCode: 5,
      stdout: '',
      stderr:
        'cloudlessctl: cannot reach the coordinator at http://127.0.0.1:9000: connection refused. Is it running (npm start)? ' +
        `Check --server, CLOUDLESS_SERVER or the context 'dev' in ${PATH}\n`,
    });
  });
});

describe('checkServer', () => {
  const SUCH_AS = 'such as http://h:8080';
  it.each([
    { server: 'http://h:8080', problem: undefined },
    { server: 'https://[::1]:8443/', problem: undefined },
    { server: 'https://a:8080, https://b:8080', problem: undefined },
    {
      server: 'https://a:8080,',
      problem: 'expected an address such as http://127.0.0.1:8080, got ""',
    },
    {
      server: 'https://a:8080,http://b:8080',
      problem:
        'expected addresses with https:// or with http://, not both: a cluster has one of the two',
    },
    {
      server: Array.from({ length: 17 }, (_, index) => `https://c${index}`).join(),
      problem: 'expected at most 16 addresses, got 17',
    },
    {
      server: 'h:8080',
      problem: 'expected an address such as http://127.0.0.1:8080, got "h:8080"',
    },
    {
      server: 'ftp://h',
      problem: 'expected an address such as http://127.0.0.1:8080, got "ftp://h"',
    },
    {
      server: 'http://h:8080/api',
      problem: `expected an address without a path, ${SUCH_AS}, got "http://h:8080/api"`,
    },
    {
      server: 'http://h:8080/?a=1',
      problem: `expected an address without a query, ${SUCH_AS}, got "http://h:8080/?a=1"`,
    },
    {
      server: 'http://h:8080?',
      problem: `expected an address without a query, ${SUCH_AS}, got "http://h:8080?"`,
    },
    {
      server: 'http://h:8080#nodes',
      problem: `expected an address without a fragment, ${SUCH_AS}, got "http://h:8080#nodes"`,
    },
    {
      server: 'http://h:8080#',
      problem: `expected an address without a fragment, ${SUCH_AS}, got "http://h:8080#"`,
    },
    {
      server: 'http://me@h:8080',
      problem: `expected an address without a user name and password, ${SUCH_AS}`,
    },
    {
      server: 'http://:secret@h:8080',
      problem: `expected an address without a user name and password, ${SUCH_AS}`,
    },
  ])('returns for $server: $problem', ({ server, problem }) => {
    expect(checkServer(server)).toBe(problem);
  });
});

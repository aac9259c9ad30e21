import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import {
  ConfigSchema,
  WorkloadPlan_Action as Action,
  toConnectError,
  type Config,
  type CreateConfigRequest,
  type DeleteConfigRequest,
  type UpdateConfigRequest,
} from '@cloudless/api';
import { NOW_MS, aWorkload, runCli, type CliOptions } from '../../testing/run-cli.js';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const APP: Config = create(ConfigSchema, {
  namespace: 'default',
  name: 'app',
  uid: 'aa',
  generation: 3n,
  version: 2,
  labels: { app: 'shop' },
  createdAt: timestampFromMs(NOW_MS - 60_000),
  versions: [
    { version: 2, createdAt: timestampFromMs(NOW_MS - 60_000), sizes: { 'app.conf': 3, LEVEL: 4 } },
  ],
  data: { 'app.conf': encode('a=1'), LEVEL: encode('info') },
});
const newer = (): Config => create(ConfigSchema, { ...APP, version: 3, generation: 4n });

const configs: NonNullable<CliOptions['configs']> = {
  getConfig: ({ name }) => {
    if (name === 'app') return APP;
    throw new ConnectError(`config "default/${name}" not found`, Code.NotFound);
  },
  listConfigs: () => ({ configs: [APP], nextPageToken: '', revision: 1n }),
  updateConfig: () => newer(),
};
const users = (mode = 0): NonNullable<CliOptions['coordinator']> => ({
  listWorkloads: () => ({
    workloads: [
      aWorkload({ spec: { image: 'a', configs: [{ name: 'app', reload: { mode } }] } }),
      aWorkload({ name: 'api', spec: { image: 'a', configs: [{ name: 'app', version: 1 }] } }),
      aWorkload({ name: 'other', spec: { image: 'a', configs: [{ name: 'b' }] } }),
    ],
    nextPageToken: '',
    revision: 1n,
  }),
});

describe('config create', () => {
  it('sends the values of files, an env file, standard input and literals', async () => {
    const requests: CreateConfigRequest[] = [];
    const result = await runCli(
      [
        ...['config', 'create', 'app', '--from-file', 'etc/app.conf', '--from-file', '.b=b.conf'],
        ...['--from-env-file', 'app.env', '--from-stdin', 'in', '--from-literal', 'A=b=c'],
        ...['--label', 'app=shop', '--immutable'],
      ],
      {
        files: { 'etc/app.conf': 'a=1', 'b.conf': 'b', 'app.env': '# comment\nX=1\n' },
        stdin: { kind: 'pipe', text: 'line\n' },
        configs: { createConfig: (request) => (requests.push(request), APP) },
      },
    );
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: 'config default/app: created\n',
      stderr: '',
    });
    expect(requests).toMatchObject([
      { namespace: 'default', name: 'app', labels: { app: 'shop' }, immutable: true },
    ]);
    const values = Object.entries(requests[0]?.data ?? {}).map(([key, value]) => [
      key,
      new TextDecoder().decode(value),
    ]);
    expect(Object.fromEntries(values)).toEqual({
      ...{ 'app.conf': 'a=1', '.b': 'b', X: '1', in: 'line\n', A: 'b=c' },
    });
  });

  it.each([
    [[], 'give at least one value, such as --from-file app.conf'],
    [['--from-file', 'none.conf'], '--from-file none.conf: no such file or directory'],
    [['--from-file', '-'], '--from-file reads files; use --from-stdin KEY'],
    [['--from-file', 'etc'], '--from-file etc: is a directory; give each of its files'],
    [
      ['--from-file', 'a=b.conf', '--from-literal', 'a=1'],
      'the key a is given by --from-file b.conf and by --from-literal; keep one',
    ],
    [['--from-literal', '..data=1'], '"..data" is not a valid key: expected letters, digits'],
    [['--from-literal', 'a/b=1'], '"a/b" is not a valid key: expected letters, digits'],
    [['--from-literal', 'no-equals'], '--from-literal: expected KEY=VALUE'],
    [['--from-env-file', 'bad.env'], '--from-env-file: bad.env, line 1: expected NAME=VALUE\n'],
    [['--from-file', 'a=big'], 'the values have 1000001 bytes, of which a has 1000001; at most'],
  ])('refuses %j before any call', async (flags, message) => {
    const result = await runCli(['config', 'create', 'app', ...flags], {
      files: {
        ...{ 'b.conf': 'b', 'etc/x': '', 'bad.env': 'export A=secret-text' },
        big: 'x'.repeat(1_000_001),
      },
    });
    expect(result.exitCode).toBe(2);
    expect(result.stderr).toContain(message);
    expect(result.stderr).not.toContain('secret-text');
  });

  it('refuses a name that the API would refuse', async () => {
    const result = await runCli(['config', 'create', 'App_1', '--from-literal', 'a=1']);
    expect(result.exitCode).toBe(2);
    expect(result.stderr).toContain('"App_1" is not a valid config name');
  });
});

describe('config update', () => {
  it('keeps the other keys, shows the change and the workloads, and sends the generation', async () => {
    const requests: UpdateConfigRequest[] = [];
    const result = await runCli(['config', 'update', 'app', '--from-literal', 'LEVEL=debug'], {
      coordinator: users(),
      configs: { ...configs, updateConfig: (request) => (requests.push(request), newer()) },
    });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toBe(
      [
        '  data["LEVEL"]: "info" -> "debug"',
        '  workload default/web: gets a new version, which is rolled out',
        '  workload default/api: no change: the spec names version 1',
        'config default/app: has version 3',
        '',
      ].join('\n'),
    );
    expect(requests.map(({ dryRun }) => dryRun)).toEqual([true, false]);
    expect(requests[1]).toMatchObject({
      data: { 'app.conf': encode('a=1'), LEVEL: encode('debug') },
      updateMask: { paths: ['data'] },
      expectedGeneration: 3n,
    });
  });

  it.each([
    [0, 'Change config default/app, and roll out 1 workload? [y/N] '],
    [1, 'Change config default/app, and signal 1 workload? [y/N] '],
  ])('asks on a terminal for the reload mode %i', async (mode, question) => {
    const result = await runCli(['config', 'update', 'app', '--from-literal', 'LEVEL=debug'], {
      ...anInteractiveTerminal('n\n'),
      coordinator: users(mode),
      configs,
    });
    expect(result.exitCode).toBe(9);
    expect(result.stderr).toBe(`${question}cloudlessctl: nothing was changed\n`);
  });

  it('changes nothing with --plan', async () => {
    const requests: UpdateConfigRequest[] = [];
    const argv = ['config', 'update', 'app', '--remove-key', 'LEVEL', '--plan'];
    const result = await runCli(argv, {
      coordinator: users(),
      configs: { ...configs, updateConfig: (request) => (requests.push(request), newer()) },
    });
    expect(result.exitCode).toBe(0);
    expect(result.stdout).toContain('config default/app: would get version 3\n');
    expect(requests.map(({ dryRun }) => dryRun)).toEqual([true]);
  });

  it.each([
    [['--remove-key', 'none'], 3, 'config default/app has no key "none"'],
    [['--remove-key', 'LEVEL', '--remove-key', 'app.conf'], 2, 'no value would be left'],
    [[], 2, 'nothing to change'],
    [['--plan', '--wait', '--immutable'], 2, 'change nothing to wait for; remove --wait'],
  ])('refuses %j', async (flags, exitCode, message) => {
    const result = await runCli(['config', 'update', 'app', ...flags], { configs });
    expect(result.exitCode).toBe(exitCode);
    expect(result.stderr).toContain(message);
  });
});

describe('config get, list, describe and delete', () => {
  it('prints a value byte for byte, and the manifest that apply accepts', async () => {
    expect(await runCli(['config', 'get', 'app', '--key', 'app.conf'], { configs })).toMatchObject({
      exitCode: 0,
      stdout: 'a=1',
    });
    expect((await runCli(['config', 'get', 'app', '-o', 'manifest'], { configs })).stdout).toBe(
      [
        'kind: Config',
        'namespace: default',
        'name: app',
        'labels:',
        '  app: shop',
        'data:',
        '  LEVEL: info',
        '  app.conf: a=1',
        '',
      ].join('\n'),
    );
    const other = await runCli(['config', 'get', 'app', '--key', 'app.con'], { configs });
    expect(other).toMatchObject({ exitCode: 3 });
    expect(other.stderr).toContain('there is no key "app.con"; did you mean app.conf?');
  });

  it('writes the values to new files only', async () => {
    const argv = ['config', 'get', 'app', '--out-dir', 'out'];
    const result = await runCli(argv, { configs });
    expect(result.files).toEqual({ 'out/app.conf': 'a=1', 'out/LEVEL': 'info' });
    expect(await runCli(argv, { configs, files: { 'out/LEVEL': 'x' } })).toMatchObject({
      exitCode: 2,
      files: { 'out/LEVEL': 'x' },
    });
  });

  it('lists configs, and describes one with the workloads that use the config', async () => {
    expect((await runCli(['config', 'list'], { configs })).stdout).toMatch(
      /default +app +2 +LEVEL, app\.conf +7 +60s/,
    );
    const { stdout } = await runCli(['config', 'describe', 'app'], {
      configs,
      coordinator: users(),
    });
    expect(stdout).toContain('app.conf:  a=1');
    expect(stdout).toMatch(/default\/web +gets a new version, which is rolled out/);
  });

  it('names a similar config', async () => {
    const result = await runCli(['config', 'get', 'apq'], { configs });
    expect(result).toMatchObject({ exitCode: 3 });
    expect(result.stderr).toContain('did you mean app?');
  });

  it('deletes after a question, and without a terminal only with --yes', async () => {
    const requests: DeleteConfigRequest[] = [];
    const options = {
      configs: { deleteConfig: (request: DeleteConfigRequest) => (requests.push(request), {}) },
    };
    const refused = await runCli(['config', 'delete', 'app'], options);
    expect(refused.exitCode).toBe(9);
    expect(refused.stderr).toContain('all versions of config default/app would be lost');
    expect(await runCli(['config', 'delete', 'app', '-y'], options)).toMatchObject({
      exitCode: 0,
      stdout: 'config default/app: deleted\n',
    });
    expect(requests).toMatchObject([{ namespace: 'default', name: 'app' }]);
  });
});

describe('manifests of kind Config', () => {
  const MANIFEST = [
    'kind: Config',
    'name: app',
    'data: { app.conf: "a=2", LEVEL: info }',
    'labels: { app: shop }',
  ].join('\n');

  it('updates only what differs', async () => {
    const requests: UpdateConfigRequest[] = [];
    const result = await runCli(['apply', '-f', 'app.yaml'], {
      files: { 'app.yaml': MANIFEST },
      coordinator: users(),
      configs: { ...configs, updateConfig: (request) => (requests.push(request), newer()) },
    });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toContain(
      'config default/app: update\n  data["app.conf"]: "a=1" -> "a=2"\n',
    );
    expect(requests).toMatchObject([{ updateMask: { paths: ['data'] }, expectedGeneration: 3n }]);
  });

  it('creates a config that does not exist, and shows it with --dry-run only', async () => {
    const requests: CreateConfigRequest[] = [];
    const options: CliOptions = {
      files: { 'app.yaml': MANIFEST.replace('name: app', 'name: new') },
      configs: { ...configs, createConfig: (request) => (requests.push(request), APP) },
    };
    const shown = await runCli(['apply', '-f', 'app.yaml', '--dry-run'], options);
    expect(shown.stdout).toContain('config default/new: create\n');
    expect(requests).toEqual([]);
    expect(await runCli(['apply', '-f', 'app.yaml'], options)).toMatchObject({ exitCode: 0 });
    expect(requests).toMatchObject([{ name: 'new', labels: { app: 'shop' } }]);
  });

  it.each([
    ['spec.configs[0].name: config "default/new" not found', ''],
    ['spec.secrets[0].name: secret "default/db" not found', 'nothing was applied:'],
  ])(
    'creates a config before the workload of the same file, unless %s',
    async (problem, refusal) => {
      const calls: string[] = [];
      const result = await runCli(['apply', '-f', 'app.yaml'], {
        files: {
          'app.yaml': `${MANIFEST.replace('name: app', 'name: new')}
---
name: web
spec: { image: a, configs: [{ name: new }] }
`,
        },
        configs: { ...configs, createConfig: () => (calls.push('create config'), APP) },
        coordinator: {
          createPlan: ({ validateOnly }) => {
            calls.push(validateOnly ? 'predict' : 'plan');
            if (!calls.includes('create config'))
              throw toConnectError(new CloudlessError('MISSING_REFERENCE', problem));
            const workloads = [{ namespace: 'default', name: 'web', action: Action.CREATE }];
            return { id: validateOnly ? '' : '6f1d0c9be2a45718', workloads };
          },
          executePlan: () => (calls.push('execute'), { workloads: [aWorkload()] }),
        },
      });
      if (refusal === '') {
        expect(result).toMatchObject({ exitCode: 0, stderr: '' });
        expect(calls.slice(-4)).toEqual(['create config', 'predict', 'plan', 'execute']);
      } else {
        expect(result.stderr).toContain(refusal);
        expect(calls).not.toContain('create config');
      }
    },
  );

  it.each([
    ['kind: Config\nname: app', 'data: is missing'],
    ['kind: Config\nname: app\ndata: {}', 'data: a config needs at least one value'],
    ['kind: Config\nname: app\ndata: { a: 1 }', 'data["a"]: expected a string, got the number 1'],
    ['kind: Config\nname: app\nbinaryData: { a: "!" }', 'expected base64 text'],
    ['kind: Config\nname: app\ndata: { a: b }\nspec: {}', 'spec: unknown key'],
    [
      'kind: Secret\nname: db\ndata: { a: b }',
      'kind: expected Workload, Service, Route or Config, got the string "Secret"; a manifest has no values of secrets; create the secret with: cloudlessctl secret create NAME --from-file KEY=PATH',
    ],
  ])('refuses %j', async (text, message) => {
    const result = await runCli(['apply', '-f', 'a.yaml'], { files: { 'a.yaml': text } });
    expect(result.exitCode).toBe(2);
    expect(result.stderr).toContain(message);
  });
});

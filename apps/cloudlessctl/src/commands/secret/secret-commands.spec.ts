import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import {
  SecretSchema,
  toConnectError,
  type CreateSecretRequest,
  type DeleteSecretRequest,
  type Secret,
  type UpdateSecretRequest,
} from '@cloudless/api';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';
import { NOW_MS, aWorkload, runCli, type CliOptions } from '../../testing/run-cli.js';

/** Occurs in every value of this file, and must occur in no output. */
const CANARY = 'c4n4ry';
const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const DB: Secret = create(SecretSchema, {
  namespace: 'default',
  name: 'db',
  uid: 'aa',
  generation: 3n,
  version: 2,
  audiences: ['workload/default.*'],
  createdAt: timestampFromMs(NOW_MS - 60_000),
  versions: [
    {
      version: 2,
      createdAt: timestampFromMs(NOW_MS - 60_000),
      sizes: { password: 12, user: 4 },
      masterKeyId: 'k1',
    },
  ],
});
const newer = (): Secret => create(SecretSchema, { ...DB, version: 3, generation: 4n });
const secrets: NonNullable<CliOptions['secrets']> = {
  getSecret: ({ name }) => {
    if (name === 'db') return { secret: DB };
    throw new ConnectError(`secret "default/${name}" not found`, Code.NotFound);
  },
  listSecrets: () => ({ secrets: [DB], nextPageToken: '', revision: 1n }),
  updateSecret: () => newer(),
};
const coordinator: NonNullable<CliOptions['coordinator']> = {
  listWorkloads: () => ({
    workloads: [
      aWorkload({ spec: { image: 'a', secrets: [{ name: 'db' }] } }),
      aWorkload({ name: 'api', spec: { image: 'a', imagePull: { secret: 'db' } } }),
    ],
    nextPageToken: '',
    revision: 1n,
  }),
};

describe('secret create', () => {
  it('sends the values and lets every workload of the namespace use them', async () => {
    const requests: CreateSecretRequest[] = [];
    const result = await runCli(
      ['secret', 'create', 'db', '--from-file', 'password=pw', '--ttl', '90d', '--immutable'],
      {
        files: { pw: CANARY },
        secrets: { createSecret: (request) => (requests.push(request), DB) },
      },
    );
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: 'secret default/db: created, for workload/default.*\n',
      stderr: '',
    });
    expect(requests).toMatchObject([
      {
        ...{ namespace: 'default', name: 'db', immutable: true },
        data: { password: encode(CANARY) },
        audiences: ['workload/default.*'],
        ttl: { seconds: 7_776_000n },
      },
    ]);
  });

  it('warns about values in arguments and about a line feed, without the values', async () => {
    const result = await runCli(
      ['secret', 'create', 'db', '--from-literal', `a=${CANARY}`, '--from-stdin', 'b'],
      {
        stdin: { kind: 'pipe', text: `${CANARY}\n` },
        secrets: { createSecret: () => DB },
      },
    );
    expect(result.exitCode).toBe(0);
    expect(result.stderr).toBe(
      [
        'warning: other users of this machine and the history of the shell can show the values of --from-literal; use --prompt, --from-stdin or --from-file',
        'note: the value of b ends with a line feed; to leave the line feed out, write the value with printf %s',
        '',
      ].join('\n'),
    );
  });

  it('asks twice for a typed value and does not show the value', async () => {
    const requests: CreateSecretRequest[] = [];
    const result = await runCli(['secret', 'create', 'db', '--prompt', 'password'], {
      ...anInteractiveTerminal(`${CANARY}\r`),
      secrets: { createSecret: (request) => (requests.push(request), DB) },
    });
    expect(result).toMatchObject({
      exitCode: 0,
      stderr: 'Value of password: \nValue of password, again: \n',
    });
    expect(requests[0]?.data).toEqual({ password: encode(CANARY) });
  });

  it.each([
    [[], 'give at least one value, such as --prompt password'],
    [['--prompt', 'a'], '--prompt needs a terminal; use --from-stdin KEY or --from-file KEY=PATH'],
    [['--from-literal', CANARY], '--from-literal: expected KEY=VALUE'],
    [['--from-literal', 'a=b', '--audience', 'a b'], '--audience: expected letters, digits'],
    [['--from-literal', 'a=b', '--ttl', '1h', '--expires-at', 'x'], 'exclude each other'],
    [['--from-literal', 'a=b', '--expires-at', 'soon'], '--expires-at: expected a time such as'],
    [['--from-env-file', 'env'], '--from-env-file: env, line 1: expected NAME=VALUE\n'],
  ])('refuses %j before any call', async (flags, message) => {
    const result = await runCli(['secret', 'create', 'db', ...flags], {
      files: { env: `export A=${CANARY}` },
    });
    expect(result.exitCode).toBe(2);
    expect(result.stderr).toContain(message);
    expect(result.stderr).not.toContain(CANARY);
  });
});

describe('secret update', () => {
  it('keeps the other keys and shows the workloads that change', async () => {
    const requests: UpdateSecretRequest[] = [];
    const result = await runCli(['secret', 'update', 'db', '--from-file', 'password=pw'], {
      ...{ files: { pw: CANARY }, coordinator },
      secrets: { ...secrets, updateSecret: (request) => (requests.push(request), newer()) },
    });
    expect(result.stdout).toBe(
      [
        '  workload default/web: gets a new version, which is rolled out',
        '  workload default/api: the next pull of the image uses the new version',
        'secret default/db: has version 3',
        '',
      ].join('\n'),
    );
    expect(requests).toMatchObject([
      {
        ...{ keepOtherKeys: true, expectedGeneration: 3n, dryRun: false },
        data: { password: encode(CANARY) },
        updateMask: { paths: ['data'] },
      },
    ]);
  });

  it('asks on a terminal before replicas change', async () => {
    const result = await runCli(['secret', 'update', 'db', '--from-file', 'password=pw'], {
      ...{ files: { pw: CANARY }, coordinator, secrets },
      ...anInteractiveTerminal('n\n'),
    });
    expect(result.exitCode).toBe(9);
    expect(result.stderr).toContain('Change secret default/db, and roll out 1 workload? [y/N] ');
  });

  it('shows the effect of a new version with --plan, with and without values', async () => {
    const requests: UpdateSecretRequest[] = [];
    const options: CliOptions = {
      ...{ files: { pw: CANARY }, coordinator },
      secrets: { ...secrets, updateSecret: (request) => (requests.push(request), newer()) },
    };
    const without = await runCli(['secret', 'update', 'db', '--plan'], options);
    expect(without.stdout).toContain('secret default/db: would get version 3\n');
    expect(requests).toEqual([]);
    const argv = ['secret', 'update', 'db', '--from-file', 'password=pw', '--plan'];
    expect((await runCli(argv, options)).stdout).toContain('would get version 3\n');
    expect(requests.map(({ dryRun }) => dryRun)).toEqual([true]);
  });

  it('needs --yes to remove keys without a terminal', async () => {
    const argv = ['secret', 'update', 'db', '--from-file', 'password=pw', '--replace'];
    const options = { files: { pw: CANARY }, coordinator, secrets };
    const result = await runCli(argv, options);
    expect(result.exitCode).toBe(9);
    expect(result.stderr).toContain('secret default/db would lose the keys user');
    expect(await runCli([...argv, '--yes'], options)).toMatchObject({ exitCode: 0 });
  });

  it('sends only the metadata that the flags set', async () => {
    const requests: UpdateSecretRequest[] = [];
    const argv = ['secret', 'update', 'db', '--audience', 'workload/*', '--no-expiry'];
    const result = await runCli([...argv, '--label', 'a=b'], {
      secrets: { ...secrets, updateSecret: (request) => (requests.push(request), DB) },
    });
    expect(result.exitCode).toBe(0);
    expect(requests).toMatchObject([
      {
        audiences: ['workload/*'],
        labels: { a: 'b' },
        updateMask: { paths: ['audiences', 'expires_at', 'labels'] },
      },
    ]);
  });
});

describe('--revoke-tokens', () => {
  it('revokes access tokens with new values and with a deletion', async () => {
    const updates: UpdateSecretRequest[] = [];
    const deletions: DeleteSecretRequest[] = [];
    const options: CliOptions = {
      ...{ files: { pw: CANARY }, coordinator },
      secrets: {
        ...secrets,
        updateSecret: (request) => (updates.push(request), newer()),
        deleteSecret: (request) => (deletions.push(request), {}),
      },
    };
    const update = ['secret', 'update', 'db', '--from-file', 'password=pw', '--revoke-tokens'];
    expect((await runCli(update, options)).stdout).toContain(
      'secret default/db: has version 3; access tokens revoked\n',
    );
    expect((await runCli([...update, '--plan'], options)).stdout).toContain(
      'secret default/db: would get version 3; access tokens would be revoked\n',
    );
    expect(updates).toMatchObject([
      { revokeExistingTokens: true, dryRun: false },
      { revokeExistingTokens: true, dryRun: true },
    ]);
    await runCli(['secret', 'delete', 'db', '--yes', '--revoke-tokens'], options);
    expect(deletions).toMatchObject([{ revokeTokens: true }]);
  });

  it('is refused without a change, with the command that revokes tokens alone', async () => {
    const result = await runCli(['secret', 'update', 'db', '--revoke-tokens'], { secrets });
    expect(result).toMatchObject({ exitCode: 2, servers: [] });
    expect(result.stderr).toContain('cloudlessctl secret token revoke default/db --all');
  });

  it.each([
    {
      message: 'secret "default/db" has 2 valid access tokens: a, b',
      hint: '(FAILED_PRECONDITION)\nTo revoke the access tokens, add --revoke-tokens\n',
    },
    { message: 'access token a is valid; use --revoke-tokens', hint: '(FAILED_PRECONDITION)\n' },
    { message: 'secret "default/db" is used by web', hint: '(FAILED_PRECONDITION)\n' },
  ])('is named once when access tokens keep a secret: $message', async ({ message, hint }) => {
    const deleteSecret = (): never => {
      throw toConnectError(new CloudlessError('STILL_USED', message));
    };
    const result = await runCli(['secret', 'delete', 'db', '--yes'], { secrets: { deleteSecret } });
    expect(result).toMatchObject({ exitCode: 4, stderr: `cloudlessctl: ${message} ${hint}` });
  });
});

describe('secret list, get, describe and delete', () => {
  it('shows keys and sizes, and no values', async () => {
    expect((await runCli(['secret', 'list'], { secrets })).stdout).toMatch(
      /default +db +2 +password, user/,
    );
    const { stdout } = await runCli(['secret', 'describe', 'db'], { secrets, coordinator });
    expect(stdout).toContain('Audiences:  workload/default.*');
    expect(stdout).toMatch(/password +12/);
    expect(stdout).toMatch(/default\/web +gets a new version/);
  });

  it('shows the routes that use a secret, also before an update', async () => {
    const used = create(SecretSchema, { ...DB, usedByRoutes: ['blog', 'shop'] });
    const getSecret = () => ({ secret: used });
    const options = { files: { pw: CANARY }, secrets: { ...secrets, getSecret }, coordinator };
    const described = await runCli(['secret', 'describe', 'db'], options);
    expect(described.stdout).toMatch(
      /Used by routes:\n +ROUTE.*\n +default\/blog .*\n +default\/shop /,
    );
    const update = ['secret', 'update', 'db', '--from-file', 'password=pw'];
    const lines = [
      '  route default/blog: serves the new certificate at once\n',
      '  route default/shop: serves the new certificate at once\n',
    ].join('');
    expect((await runCli([...update, '--plan'], options)).stdout).toContain(lines);
    expect((await runCli(update, options)).stdout).toContain(lines);
    const labels = await runCli(['secret', 'update', 'db', '--label', 'a=b'], options);
    expect(labels.stdout).not.toContain('route');
    const unused = await runCli(['secret', 'describe', 'db'], { secrets, coordinator });
    expect(unused.stdout).not.toContain('Used by routes');
  });

  it('prints names, and the columns that the user chooses', async () => {
    const list = ['secret', 'list', '-o'];
    expect((await runCli([...list, 'name'], { secrets })).stdout).toBe('default/db\n');
    const columns = await runCli([...list, 'custom-columns=NAME:.name,V:.version'], { secrets });
    expect(columns.stdout).toBe('NAME   V\ndb     2\n');
  });

  it('names a similar secret', async () => {
    const result = await runCli(['secret', 'get', 'dc'], { secrets });
    expect(result).toMatchObject({ exitCode: 3 });
    expect(result.stderr).toContain('did you mean db?');
  });

  it('asks before a deletion, and needs --yes without a terminal', async () => {
    const requests: DeleteSecretRequest[] = [];
    const options = {
      secrets: { deleteSecret: (request: DeleteSecretRequest) => (requests.push(request), {}) },
    };
    const refused = await runCli(['secret', 'delete', 'db'], options);
    expect(refused.exitCode).toBe(9);
    expect(refused.stderr).toContain('the values of secret default/db would be lost');
    const declined = await runCli(['secret', 'delete', 'db'], {
      ...options,
      ...anInteractiveTerminal('n\n'),
    });
    expect(declined.exitCode).toBe(9);
    expect(requests).toEqual([]);
    expect(await runCli(['secret', 'delete', 'db', '-y'], options)).toMatchObject({ exitCode: 0 });
    expect(requests).toMatchObject([{ namespace: 'default', name: 'db' }]);
  });
});

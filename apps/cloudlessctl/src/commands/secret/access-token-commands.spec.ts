import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  AccessTokenSchema,
  SecretSchema,
  type AccessToken,
  type GenerateAccessTokenRequest,
  type GetSecretRequest,
  type RevokeAccessTokenRequest,
} from '@cloudless/api';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';
import { NOW_MS, runCli, type CliOptions } from '../../testing/run-cli.js';

/** Occurs in every value of this file, and must occur in no output but that of values. */
const CANARY = 'c4n4ry';
/** A text of the form of an access token, which only `token create` may show. */
const TOKEN = `cls1.k3v9x0aq71bd.${'Zt0k'.repeat(10)}`;
const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const HOUR_MS = 3_600_000;
const anAccessToken = (fields: Partial<Omit<AccessToken, '$typeName'>> = {}): AccessToken =>
  create(AccessTokenSchema, {
    id: 'k3v9x0aq71bd',
    audience: 'workload/default.web',
    createdAt: timestampFromMs(NOW_MS - 60_000),
    createdBy: 'user/ada',
    expiresAt: timestampFromMs(NOW_MS + HOUR_MS),
    maxUses: 10,
    useCount: 3,
    ...fields,
  });
const DB = create(SecretSchema, {
  ...{ namespace: 'default', name: 'db', version: 2, audiences: ['workload/default.*'] },
  createdAt: timestampFromMs(NOW_MS - HOUR_MS),
  versions: [{ version: 2, sizes: { password: 7, tls: 2 } }],
});
const DATA = { password: encode(`${CANARY}\n`), tls: Uint8Array.of(0, 255) };
/** Answers GetSecret: with values to a request with the token, with tokens to any other request. */
const secrets: NonNullable<CliOptions['secrets']> = {
  getSecret: ({ accessToken, version }) =>
    accessToken === ''
      ? { secret: DB, accessTokens: [anAccessToken(), anAccessToken({ id: 'b', maxUses: -1 })] }
      : { secret: DB, data: DATA, version: version || 2 },
};
const GET = ['secret', 'get', 'db', '--access-token-file', 'token', '--audience', 'ci'];
const files = (): Record<string, string> => ({ token: `${TOKEN}\n` });

/** Records the requests of the fake service that reads values. */
const recordReads = (requests: GetSecretRequest[]): NonNullable<CliOptions['secrets']> => ({
  getSecret: (request) => (requests.push(request), { secret: DB, data: DATA, version: 2 }),
});

describe('secret get with an access token', () => {
  it.each([
    { name: 'a file', argv: ['--access-token-file', 'token'], options: {} },
    {
      name: 'standard input',
      argv: ['--access-token-file', '-'],
      options: { stdin: { kind: 'pipe', text: `${TOKEN}\n` } as const },
    },
    {
      name: 'the environment',
      argv: [] as string[],
      options: { env: { CLOUDLESS_SECRET_TOKEN: TOKEN } },
    },
    { name: 'an argument', argv: ['--access-token', TOKEN], options: {} },
  ])('reads the token from $name', async ({ argv, options }) => {
    const requests: GetSecretRequest[] = [];
    const read = ['secret', 'get', 'shop/db', ...argv, '--audience', 'ci', '--version', '1'];
    const result = await runCli(read, {
      ...{ files: files(), secrets: recordReads(requests) },
      ...options,
    });
    expect(result.exitCode).toBe(0);
    expect(requests).toMatchObject([
      { namespace: 'shop', name: 'db', accessToken: TOKEN, audience: 'ci', version: 1 },
    ]);
    expect(result.stderr.includes('warning: other users')).toBe(argv.includes('--access-token'));
    expect(result.stdout + result.stderr).not.toContain(TOKEN);
  });

  it('prints one value byte for byte', async () => {
    const result = await runCli([...GET, '--key', 'password'], { files: files(), secrets });
    expect(result).toMatchObject({ exitCode: 0, stdout: `${CANARY}\n`, stderr: '' });
  });

  it('prints all values as a table, and as texts or base64 in JSON', async () => {
    const data = { ...DATA, user: encode('ada'), escape: encode('\u001b[31m') };
    const options = {
      files: files(),
      secrets: { getSecret: () => ({ secret: DB, data, version: 2 }) },
    };
    expect((await runCli(GET, options)).stdout).toBe(
      [
        'KEY        SIZE   VALUE',
        'escape     5      (text with special characters; use --key escape)',
        'password   7      (text with line ends; use --key password)',
        'tls        2      (no text; use --key tls)',
        'user       3      ada',
        '',
      ].join('\n'),
    );
    const json = JSON.parse((await runCli([...GET, '-o', 'json'], options)).stdout) as unknown;
    expect(json).toMatchObject({
      name: 'db',
      version: 2,
      data: { password: `${CANARY}\n`, user: 'ada' },
      binaryData: { tls: 'AP8=' },
    });
  });

  it('writes each value to a file, and replaces files only with --force', async () => {
    const argv = [...GET, '--out-dir', 'out/'];
    const written = await runCli(argv, { files: files(), secrets });
    expect(written).toMatchObject({ exitCode: 0, stdout: '', stderr: 'wrote 2 files to out/\n' });
    expect(written.files['out/password']).toBe(`${CANARY}\n`);
    const kept = { ...files(), 'out/tls': 'kept' };
    const refused = await runCli(argv, { files: kept, secrets });
    expect(refused).toMatchObject({ exitCode: 2, files: kept });
    expect(refused.stderr).toContain('out/tls exists already; choose another directory, or');
    expect(refused.stderr).toContain('This read has counted as one use of the access token');
    const forced = await runCli([...argv, '--force'], { files: kept, secrets });
    expect(forced.exitCode).toBe(0);
    expect(forced.files['out/tls']).not.toBe('kept');
  });

  it('writes no file for a key that is a path', async () => {
    const data = { ok: encode('a'), '../up': encode('b') };
    const result = await runCli([...GET, '--out-dir', 'out'], {
      files: files(),
      secrets: { getSecret: () => ({ secret: DB, data, version: 2 }) },
    });
    expect(result).toMatchObject({ exitCode: 1, files: files() });
    expect(result.stderr).toContain('"../up" is not a valid key');
  });

  it('names the audit log when the coordinator refuses the token', async () => {
    const getSecret = (): never => {
      throw new ConnectError('the access token does not permit this', Code.PermissionDenied);
    };
    const result = await runCli(GET, { files: files(), secrets: { getSecret } });
    expect(result).toMatchObject({ exitCode: 1, stdout: '' });
    expect(result.stderr).toBe(
      'cloudlessctl: the access token does not permit this (PERMISSION_DENIED)\n' +
        'Users with the role viewer in namespace default see the cause with: cloudlessctl secret audit default/db\n',
    );
  });

  it.each([
    [['--key', 'a'], {}, 'the access token is missing: give --access-token-file FILE, or set'],
    [['--access-token-file', 'token'], {}, '--audience is missing: name the audience'],
    [['--access-token-file', 'token', '--access-token', TOKEN], {}, 'exclude each other'],
    [['--access-token-file', 'none'], {}, '--access-token-file: none: no such file or directory'],
    [['--access-token-file', 'bad'], {}, '--access-token-file (bad): expected one access token'],
    [['--access-token-file', 'user'], {}, 'this is a token of a user; an access token of a secret'],
    [['--access-token-file', 'empty'], {}, '--access-token-file (empty): there is no token'],
    [['--access-token-file', '-'], anInteractiveTerminal(''), 'standard input is a terminal'],
    [['--audience', TOKEN, '--access-token-file', 'token'], {}, 'this is the text of an access'],
    [['--audience', 'a/*', '--access-token-file', 'token'], {}, '"a/*" is a prefix; name the one'],
    [['--audience', 'a b', '--access-token-file', 'token'], {}, 'expected letters, digits and'],
    [['--version', '0'], {}, '--version: expected the number of a version, got "0"'],
    [['--key', 'a', '--out-dir', 'b'], {}, '--key and --out-dir exclude each other'],
    [
      ['--audience', 'ci', '--access-token-file', 'token', '--out-dir', 'token'],
      {},
      '--out-dir: token is a file; name a directory',
    ],
    [['--force'], {}, '--force replaces files of --out-dir; give --out-dir'],
    [['--audience', 'a', '--force'], {}, '--force replaces files of --out-dir; give --out-dir'],
    [['tls', '--audience', 'a'], {}, 'an access token reads one secret; name one'],
  ])('refuses %j before any call', async (flags, options, message) => {
    const result = await runCli(['secret', 'get', 'db', ...flags], {
      files: { ...files(), bad: `cls1.${CANARY}`, user: `clu1.${CANARY}.x`, empty: '\n' },
      ...options,
    });
    expect(result).toMatchObject({ exitCode: 2, servers: [] });
    expect(result.stderr).toContain(message);
    expect(result.stderr).not.toMatch(/c4n4ry|Zt0k/);
  });

  it('refuses a file that others can read', async () => {
    const result = await runCli(GET, { files: files(), modes: { token: 0o644 }, secrets });
    expect(result).toMatchObject({ exitCode: 1, servers: [] });
    expect(result.stderr).toContain('run: chmod 600 token');
  });
});

describe('secret get and describe without an access token', () => {
  it('show the valid access tokens', async () => {
    const result = await runCli(['secret', 'get', 'db'], {
      secrets,
      env: { CLOUDLESS_SECRET_TOKEN: TOKEN },
    });
    expect(result.stdout).toBe(
      [
        'NAMESPACE   NAME   VERSION   KEYS            EXPIRY   AGE',
        'default     db     2         password, tls   -        60m',
        '',
        'Access tokens of default/db:',
        '  ID             AUDIENCE               USES          EXPIRY           AGE   CREATED BY',
        '  k3v9x0aq71bd   workload/default.web   3/10          expires in 60m   60s   user/ada',
        '  b              workload/default.web   3/unlimited   expires in 60m   60s   user/ada',
        '',
      ].join('\n'),
    );
    const json = await runCli(['secret', 'get', 'db', '-o', 'jsonpath={.accessTokens[*].id}'], {
      secrets,
    });
    expect(json.stdout).toBe('k3v9x0aq71bd b\n');
    const coordinator = { listWorkloads: () => ({ workloads: [] }) };
    const { stdout } = await runCli(['secret', 'describe', 'db'], { secrets, coordinator });
    expect(stdout).toMatch(/Access tokens:\n +ID .*\n +k3v9x0aq71bd/);
  });
});

describe('secret token create', () => {
  const create = ['secret', 'token', 'create', 'db', '--audience', 'workload/default.web'];
  const record = (requests: GenerateAccessTokenRequest[]): CliOptions['secrets'] => ({
    generateAccessToken: (request) => {
      requests.push(request);
      return { token: anAccessToken({ maxUses: 5, useCount: 0 }), text: TOKEN };
    },
  });

  it('prints only the text on standard output, and what it is for on standard error', async () => {
    const requests: GenerateAccessTokenRequest[] = [];
    const result = await runCli([...create, '--lifetime', '30m', '--max-uses', '5'], {
      secrets: record(requests) ?? {},
    });
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: `${TOKEN}\n`,
      stderr:
        'access token k3v9x0aq71bd of secret default/db: for workload/default.web, 5 uses, expires 2026-01-01T01:00:00Z\n' +
        'The text is not shown again; keep it secret.\n',
    });
    expect(requests).toMatchObject([
      {
        ...{ namespace: 'default', name: 'db', audience: 'workload/default.web', maxUses: 5 },
        ttl: { seconds: 1_800n },
      },
    ]);
  });

  it('writes the text to a file that secret get reads', async () => {
    const result = await runCli([...create, '--max-uses', 'unlimited', '--output-file', 'f'], {
      secrets: record([]) ?? {},
    });
    expect(result).toMatchObject({ exitCode: 0, stdout: '', files: { f: `${TOKEN}\n` } });
    expect(result.stderr).toContain(
      'next: cloudlessctl secret get default/db --access-token-file f --audience workload/default.web\n',
    );
    expect(result.stderr).not.toContain(TOKEN);
  });

  it.each([
    [['--ttl', '25h'], '--ttl: expected 1s to 24h, got 25h'],
    [['--lifetime', '25h'], '--lifetime: expected 1s to 24h, got 25h'],
    [['--lifetime', '1h', '--ttl', '1h'], '--lifetime and --ttl are the same'],
    [['--ttl', '10ms'], '--ttl: expected 1s to 24h, got 10ms'],
    [['--ttl', 'soon'], '--ttl: '],
    [['--max-uses', '0'], '--max-uses: expected 1 to 1000000, or unlimited, got "0"'],
    [['--max-uses', '-1'], '--max-uses: expected 1 to 1000000, or unlimited, got "-1"'],
    [['--max-uses', '1000001'], '--max-uses: expected 1 to 1000000, or unlimited'],
    [['-o', 'name'], '-o name does not show the text: add --output-file'],
  ])('refuses %j before any call', async (flags, message) => {
    const result = await runCli([...create, ...flags]);
    expect(result).toMatchObject({ exitCode: 2, servers: [] });
    expect(result.stderr).toContain(message);
  });
});

describe('secret token list', () => {
  it('lists tokens, and says how to create one', async () => {
    const json = await runCli(['secret', 'token', 'list', 'db', '-o', 'json'], { secrets });
    expect(JSON.parse(json.stdout)).toMatchObject({
      accessTokens: [{ id: 'k3v9x0aq71bd', maxUses: 10, useCount: 3 }, { id: 'b' }],
    });
    const empty = await runCli(['secret', 'token', 'list', 'db'], {
      secrets: { getSecret: () => ({ secret: DB }) },
    });
    expect(empty).toMatchObject({ exitCode: 0, stdout: '' });
    expect(empty.stderr).toContain(
      'no valid access tokens of secret default/db; create one with: cloudlessctl secret token create default/db --audience AUDIENCE',
    );
  });
});

describe('secret token revoke', () => {
  const revoke = ['secret', 'token', 'revoke', 'db'];
  const record = (
    requests: RevokeAccessTokenRequest[],
    revoked = 1,
  ): NonNullable<CliOptions['secrets']> => ({
    revokeAccessToken: (request) => (requests.push(request), { revoked }),
  });

  it('revokes several tokens by id, and goes on after a failure', async () => {
    const revokeAccessToken = ({ tokenId }: RevokeAccessTokenRequest): { revoked: number } => {
      if (tokenId === 'b') throw new ConnectError('no access token "b"', Code.NotFound);
      return { revoked: tokenId === 'a' ? 1 : 0 };
    };
    expect(
      await runCli([...revoke, 'a', 'b', 'c'], { secrets: { revokeAccessToken } }),
    ).toMatchObject({
      exitCode: 3,
      stdout:
        'secret default/db: access token a revoked\n' +
        'secret default/db: access token c had ended before\n',
      stderr: expect.stringContaining('no access token "b"') as string,
    });
  });

  it('revokes a token by its text, which is not shown', async () => {
    const requests: RevokeAccessTokenRequest[] = [];
    const result = await runCli([...revoke, '--access-token-file', 'token', '-o', 'json'], {
      ...{ files: files(), secrets: record(requests) },
    });
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: '{\n  "revoked": 1\n}\n',
      stderr: 'secret default/db: access token revoked\n',
    });
    expect(requests).toMatchObject([{ accessToken: TOKEN, tokenId: '', all: false }]);
  });

  it('asks before --all, and needs --yes without a terminal', async () => {
    const requests: RevokeAccessTokenRequest[] = [];
    const options = { secrets: record(requests, 3) };
    const refused = await runCli([...revoke, '--all'], options);
    expect(refused.exitCode).toBe(9);
    expect(refused.stderr).toContain('the holders of all access tokens of secret default/db would');
    const declined = await runCli([...revoke, '--all'], {
      ...options,
      ...anInteractiveTerminal('n\n'),
    });
    expect(declined.exitCode).toBe(9);
    expect(requests).toEqual([]);
    expect(await runCli([...revoke, '--all', '--yes'], options)).toMatchObject({
      exitCode: 0,
      stdout: 'secret default/db: 3 access tokens revoked\n',
    });
    expect(requests).toMatchObject([{ all: true, accessToken: '', tokenId: '' }]);
  });

  it.each([
    [[], 'name the tokens in one way'],
    [['a', '--all'], 'name the tokens in one way'],
    [['--all', '--access-token-file', 'token'], 'name the tokens in one way'],
    [[TOKEN], 'this is the text of an access token, not an id'],
    [['a', '-o', 'name'], '--output name: the result of this command has no name'],
  ])('refuses %j before any call', async (flags, message) => {
    const result = await runCli([...revoke, ...flags], {
      ...{ files: files(), env: { CLOUDLESS_SECRET_TOKEN: TOKEN } },
    });
    expect(result).toMatchObject({ exitCode: 2, servers: [] });
    expect(result.stderr).toContain(message);
    expect(result.stderr).not.toContain(TOKEN);
  });
});

describe('secret token validate', () => {
  const expiresAt = timestampFromMs(NOW_MS + HOUR_MS);
  it.each([
    {
      response: { valid: true, expiresAt, usesRemaining: 7 },
      exitCode: 0,
      stdout: 'valid: 7 uses left, expires 2026-01-01T01:00:00Z\n',
    },
    {
      response: { valid: true, expiresAt, usesRemaining: -1 },
      exitCode: 0,
      stdout: 'valid: unlimited uses left, expires 2026-01-01T01:00:00Z\n',
    },
    {
      response: { valid: false, reason: 'used up', expiresAt },
      exitCode: 1,
      stdout: 'not valid: used up\n',
    },
    {
      response: { valid: false, reason: 'unknown' },
      exitCode: 1,
      stdout:
        'not valid: the secret has no such token for this audience and this caller; users with the role viewer find the cause with: cloudlessctl secret audit\n',
    },
  ])('exits with $exitCode for $response.reason', async ({ response, exitCode, stdout }) => {
    const argv = ['secret', 'token', 'validate', 'db', '--access-token-file', 'token'];
    const options = { files: files(), secrets: { validateAccessToken: () => response } };
    expect(await runCli([...argv, '--audience', 'ci'], options)).toMatchObject({
      ...{ exitCode, stdout, stderr: '' },
    });
    const json = await runCli([...argv, '--audience', 'ci', '-o', 'json'], options);
    expect(json.exitCode).toBe(exitCode);
    expect(JSON.parse(json.stdout)).toMatchObject({ valid: response.valid });
  });
});

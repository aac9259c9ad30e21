import { anIdentity, formatIdentityFile, LIFE_MS } from '../testing/an-identity.js';
import { NOW_MS, USER_TOKEN, runCli } from '../testing/run-cli.js';
import type { CliOptions } from '../testing/run-cli.js';

const SERVER = 'https://cluster.example:8443';
const FOLDER = '/home/me/.config/cloudless';
const IDENTITY = `${FOLDER}/identities/prod/identity.json`;
const config = (keys: string) => ({
  [`${FOLDER}/config.yaml`]: `current: prod\ncontexts:\n  prod: { server: ${SERVER}${keys} }\n`,
});
const loggedIn = (identity = anIdentity(NOW_MS)) => ({
  ...config(', identityDir: identities/prod'),
  [IDENTITY]: formatIdentityFile(identity),
});
const OTHER_TOKEN = USER_TOKEN.replace('k3v9', '0000');
const coordinator = { listWorkloads: () => ({}) };
const run = (argv: readonly string[], options: CliOptions) =>
  runCli([...argv, 'get', 'workloads'], { coordinator, ...options });

describe('credential of a command', () => {
  it.each<{ name: string; argv?: readonly string[]; options: CliOptions; access: object }>([
    {
      name: 'the identity of the context',
      options: { files: loggedIn() },
      access: { kind: 'certificate' },
    },
    {
      name: 'the token file of the context, relative to the configuration',
      options: { files: { ...config(', tokenFile: t'), [`${FOLDER}/t`]: USER_TOKEN } },
      access: { kind: 'token', text: USER_TOKEN, caSha256s: ['ab'.repeat(32)] },
    },
    {
      name: 'CLOUDLESS_TOKEN with CLOUDLESS_SERVER, without a configuration file',
      options: { env: { CLOUDLESS_SERVER: SERVER, CLOUDLESS_TOKEN: `${USER_TOKEN}\n` } },
      access: { kind: 'token', text: USER_TOKEN },
    },
    {
      name: 'CLOUDLESS_TOKEN rather than the identity of the current context',
      options: { files: loggedIn(), env: { CLOUDLESS_TOKEN: USER_TOKEN } },
      access: { kind: 'token', text: USER_TOKEN },
    },
    {
      name: 'the identity of the context of --context rather than CLOUDLESS_TOKEN',
      argv: ['--context', 'prod'],
      options: { files: loggedIn(), env: { CLOUDLESS_TOKEN: USER_TOKEN } },
      access: { kind: 'certificate' },
    },
    {
      name: '--token-file rather than CLOUDLESS_TOKEN',
      argv: ['--token-file', '/t'],
      options: {
        files: { ...loggedIn(), '/t': OTHER_TOKEN },
        env: { CLOUDLESS_TOKEN: USER_TOKEN },
      },
      access: { kind: 'token', text: OTHER_TOKEN },
    },
  ])('is $name', async ({ argv = [], options, access }) => {
    expect(await run(argv, options)).toMatchObject({
      exitCode: 0,
      servers: [SERVER],
      accesses: [access],
    });
  });

  it('is not used for a server without TLS', async () => {
    const result = await run(['--server', 'http://127.0.0.1:8080'], { files: loggedIn() });
    expect(result).toMatchObject({ exitCode: 0, accesses: [] });
  });

  it.each<{ name: string; argv?: readonly string[]; options: CliOptions; message: string }>([
    {
      name: 'there is none',
      options: { files: config('') },
      message: `not logged in (context prod); log in with: cloudlessctl login ${SERVER}`,
    },
    {
      name: 'the files of the identity were removed',
      options: { files: config(', identityDir: identities/prod') },
      message: `not logged in (context prod); log in with: cloudlessctl login ${SERVER}`,
    },
    {
      name: 'the certificate has expired',
      options: { files: loggedIn(anIdentity(NOW_MS - LIFE_MS - 3_600_000)) },
      message: `the certificate of user/ada expired 60m ago by the clock of this machine (context prod); log in with: cloudlessctl login ${SERVER}`,
    },
    {
      name: 'others can read the identity',
      options: { files: loggedIn(), modes: { [IDENTITY]: 0o640 } },
      message: `${IDENTITY} has mode 0640, so others can read the secret; run: chmod 600 ${IDENTITY}`,
    },
    {
      name: 'the identity is damaged',
      options: { files: { ...loggedIn(), [IDENTITY]: '{"format":1,"keyPem":"SECRET' } },
      message: `${IDENTITY} is damaged or of another version of cloudlessctl; log in again with: cloudlessctl login`,
    },
  ])('fails with exit code 1 before it connects when $name', async ({ options, message }) => {
    expect(await run([], options)).toMatchObject({
      exitCode: 1,
      stderr: `cloudlessctl: ${message}\n`,
      servers: [],
    });
  });

  it.each([
    { origin: '--token-file', argv: ['--token-file', '/t'], env: {} },
    { origin: 'CLOUDLESS_TOKEN', argv: [], env: { CLOUDLESS_TOKEN: USER_TOKEN } },
  ])(
    'is never sent in plaintext when it is the token of $origin',
    async ({ origin, argv, env }) => {
      const words = [...argv, '--server', 'http://127.0.0.1:8080'];
      expect(await run(words, { env, files: { '/t': USER_TOKEN } })).toMatchObject({
        exitCode: 2,
        stderr: `cloudlessctl: ${origin}: a token is sent only over https, and the server is http://127.0.0.1:8080; use https:// for a cluster with TLS, and no token for a cluster without\n`,
        servers: [],
      });
    },
  );

  it('refuses a --ca-file without certificates', async () => {
    const env = { CLOUDLESS_SERVER: SERVER, CLOUDLESS_TOKEN: USER_TOKEN };
    expect(await run(['--ca-file', '/ca'], { env, files: { '/ca': 'nothing' } })).toMatchObject({
      exitCode: 2,
      stderr: 'cloudlessctl: --ca-file: /ca: expected certificates in PEM, got none\n',
      servers: [],
    });
  });

  it('refuses a context with an identity and a token', async () => {
    const files = config(', identityDir: a, tokenFile: b');
    expect(await run([], { files })).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('expected identityDir or tokenFile, not both'),
    });
  });
});

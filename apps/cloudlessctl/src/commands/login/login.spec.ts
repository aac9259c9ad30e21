import { Code, ConnectError } from '@connectrpc/connect';
import { Role } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { toConnectError } from '@cloudless/api';
import {
  TestIssuer,
  aCredential,
  anIdentity,
  formatIdentityFile,
} from '../../testing/an-identity.js';
import { NOW_MS, USER_TOKEN, runCli } from '../../testing/run-cli.js';
import type { CliOptions, CliResult } from '../../testing/run-cli.js';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';

const SERVER = 'https://cluster.example:8443';
const FOLDER = '/home/me/.config/cloudless';
const CONFIG = `${FOLDER}/config.yaml`;
const IDENTITY = `${FOLDER}/identities/cluster.example/identity.json`;
const files = { 'ada.token': `${USER_TOKEN}\n` };
const WITH_FILE = ['--token-file', 'ada.token'];
const LOGGED_IN = {
  [CONFIG]: `current: prod\ncontexts:\n  prod: { server: ${SERVER}, identityDir: identities/prod }\n`,
  [`${FOLDER}/identities/prod/identity.json`]: formatIdentityFile(anIdentity(NOW_MS)),
};

const whoAmI = () => ({
  principal: 'user/ada',
  grants: [
    { role: Role.VIEWER, namespace: '' },
    { role: Role.OPERATOR, namespace: 'shop' },
  ],
  credential: aCredential(NOW_MS),
});

let issuer: TestIssuer;
beforeEach(async () => (issuer = await TestIssuer.create(() => NOW_MS)));

/** Runs `login` with a coordinator that issues certificates. */
function runLogin(words: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  const users = { whoAmI, issueUserCertificate: issuer.issueUserCertificate, ...options.users };
  return runCli(['login', ...words], { ...options, files: { ...files, ...options.files }, users });
}

describe('cloudlessctl login', () => {
  it('stores an identity, selects the context and prints who the user is', async () => {
    const result = await runLogin([SERVER, ...WITH_FILE]);
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: [
        'Server:       https://cluster.example:8443',
        'Context:      cluster.example',
        'Name:         user/ada',
        'Roles:        viewer of the cluster, operator in shop',
        'Credential:   client certificate 0m4c8e2fz6ty (laptop)',
        'Login:        expires in 90d (2026-04-01T00:00:00Z)',
        'Certificate:  expires in 7d (2026-01-08T00:00:00Z), renewed by commands in the second half of its life',
        '',
      ].join('\n'),
      stderr: `logged in to ${SERVER}; the current context is cluster.example in ${CONFIG}\n`,
    });
    expect(result.files[CONFIG]).toBe(
      `current: cluster.example\ncontexts:\n  cluster.example:\n    server: ${SERVER}\n    identityDir: identities/cluster.example\n`,
    );
    expect(JSON.parse(result.files[IDENTITY] ?? '')).toMatchObject({
      principal: 'user/ada',
      credentialId: '0m4c8e2fz6ty',
      bundlePem: issuer.authority.rootPem,
    });
    expect(issuer.requests.map(({ description }) => description)).toEqual(['laptop']);
  });

  it('stores the addresses of the other coordinators of the cluster', async () => {
    const other = 'https://10.0.0.2:8443';
    const coordinator = {
      getServerInfo: () => ({
        coordinators: [
          { id: 'one', address: SERVER },
          { id: 'two', address: `${other}/` },
          { id: 'odd', address: 'http://10.0.0.3:8443' },
        ],
      }),
    };
    const result = await runLogin([SERVER, ...WITH_FILE], { coordinator });
    expect(result.files[CONFIG]).toContain(`    server: ${SERVER},${other}\n`);
    const again = await runLogin([other, ...WITH_FILE], { coordinator, files: result.files });
    expect(again.files[CONFIG]).toBe(
      result.files[CONFIG]?.replace(`${SERVER},${other}`, `${other},${SERVER}`),
    );
  });

  it('authenticates with the token first, pinned to its root, then with the certificate', async () => {
    const { accesses, files: after } = await runLogin([SERVER, ...WITH_FILE]);
    expect(accesses.map(({ kind }) => kind)).toEqual(['token', 'certificate']);
    expect(accesses[0]).toMatchObject({ text: USER_TOKEN, caSha256s: ['ab'.repeat(32)] });
    expect(after[IDENTITY]).not.toContain(USER_TOKEN.split('.')[2]);
  });

  it('stores the token instead with --keep-token', async () => {
    const { files: after } = await runLogin([SERVER, ...WITH_FILE, '--keep-token', '--name', 'ci']);
    expect(after[`${FOLDER}/identities/ci/token`]).toBe(`${USER_TOKEN}\n`);
    expect(after[CONFIG]).toContain('tokenFile: identities/ci/token');
    expect(issuer.requests).toEqual([]);
  });

  it('keeps --ca-file in the context with --keep-token', async () => {
    const words = [SERVER, ...WITH_FILE, '--keep-token', '--ca-file', '/etc/ca.crt'];
    const { files: after } = await runLogin(words, {
      files: { '/etc/ca.crt': issuer.authority.rootPem },
    });
    expect(after[CONFIG]).toContain('caFile: /etc/ca.crt');
  });

  it.each<{ name: string; options: CliOptions; words?: readonly string[] }>([
    { name: 'piped standard input', options: { stdin: { kind: 'pipe', text: USER_TOKEN } } },
    {
      name: 'standard input with --token-file -',
      options: { stdin: { kind: 'other', text: `${USER_TOKEN}\n` } },
      words: ['--token-file', '-'],
    },
    { name: 'CLOUDLESS_TOKEN', options: { env: { CLOUDLESS_TOKEN: USER_TOKEN } } },
    { name: 'a terminal', options: anInteractiveTerminal(`x\u007f${USER_TOKEN}\r`) },
  ])('reads the token from $name', async ({ options, words = [] }) => {
    const result = await runLogin([SERVER, ...words], options);
    expect(result).toMatchObject({ exitCode: 0, accesses: [{ text: USER_TOKEN }, {}] });
    expect(`${result.stdout}${result.stderr}`).not.toContain(USER_TOKEN.slice(0, 30));
  });

  it('keeps the identities of two configuration files in one directory apart', async () => {
    const [a, b] = ['a.yaml', 'b.yaml'].map((name) => `/etc/cloudless/${name}`);
    const first = await runLogin([SERVER, ...WITH_FILE], { env: { CLOUDLESS_CONFIG: a ?? '' } });
    const second = await runLogin([SERVER, ...WITH_FILE], {
      env: { CLOUDLESS_CONFIG: b ?? '' },
      files: first.files,
    });
    const identity = '/etc/cloudless/a.yaml.identities/cluster.example/identity.json';
    expect(first.files[a ?? '']).toContain('identityDir: a.yaml.identities/cluster.example\n');
    expect(second.files[identity]).toBe(first.files[identity]);
    expect(second.files[identity.replace('a.yaml', 'b.yaml')]).toContain('user/ada');
    const token = await runLogin([SERVER, ...WITH_FILE, '--keep-token'], {
      env: { CLOUDLESS_CONFIG: b ?? '' },
      files: second.files,
    });
    expect(token.files['/etc/cloudless/b.yaml.identities/cluster.example/token']).toBeDefined();
    expect(token.files[b ?? '']).toContain('tokenFile: b.yaml.identities/cluster.example/token\n');
    expect(token.files[identity]).toBe(first.files[identity]);
  });

  it.each([
    { before: 'user/admin', flags: [], says: true },
    { before: 'user/admin', flags: ['--keep-token'], says: true },
    { before: 'user/ada', flags: [], says: false },
  ])(
    'login as user/ada with flags $flags to the context of $before: names both is $says',
    async ({ before, flags, says }) => {
      const present = formatIdentityFile({ ...anIdentity(NOW_MS), principal: before });
      const { exitCode, stderr } = await runLogin([...WITH_FILE, ...flags], {
        files: { ...LOGGED_IN, [`${FOLDER}/identities/prod/identity.json`]: present },
      });
      expect(exitCode).toBe(0);
      const notice =
        'the context prod now has the identity of user/ada; before: user/admin; to keep a context for each user, log in with --name\n';
      expect(stderr.endsWith(notice)).toBe(says);
    },
  );

  it.each([
    { option: '--name', current: 'prod' },
    { option: '--context', current: 'prod' },
    { option: '--context', current: undefined },
  ])(
    'stores the login in the new context of $option, current context $current, and names that context',
    async ({ option, current }) => {
      const {
        exitCode,
        stdout,
        stderr,
        files: after,
      } = await runLogin(
        [SERVER, ...WITH_FILE, option, 'ada'],
        current === undefined ? {} : { files: LOGGED_IN },
      );
      expect({ exitCode, stdout, stderr }).toMatchObject({
        exitCode: 0,
        stdout: expect.stringContaining('\nContext:      ada\n'),
        stderr: `logged in to ${SERVER}; the current context is ada in ${CONFIG}\n`,
      });
      expect(after[CONFIG]).toContain('current: ada');
      expect(after[`${FOLDER}/identities/ada/identity.json`]).toContain('user/ada');
      const prod = `${FOLDER}/identities/prod/identity.json`;
      expect(after[prod]).toBe(current === undefined ? undefined : LOGGED_IN[prod]);
    },
  );

  it('logs in again to the server of the context of --context', async () => {
    const document = `${LOGGED_IN[CONFIG] ?? ''}  other: { server: https://other.example:8443 }\n`;
    const words = [...WITH_FILE, '--context', 'other'];
    const result = await runLogin(words, { files: { ...LOGGED_IN, [CONFIG]: document } });
    expect(result.exitCode).toBe(0);
    expect(result.stderr).toContain('logged in to https://other.example:8443');
    expect(result.files[CONFIG]).toContain('current: other');
  });

  it('logs in again to the server of the current context', async () => {
    const { exitCode, files: after } = await runLogin(WITH_FILE, { files: LOGGED_IN });
    expect(exitCode).toBe(0);
    expect(after[`${FOLDER}/identities/prod/identity.json`]).toContain(
      issuer.authority.rootPem[30],
    );
    expect(after[CONFIG]).toContain('current: prod');
  });

  it.each<{ name: string; words: readonly string[]; options?: CliOptions; message: string }>([
    {
      name: 'a plaintext server',
      words: ['http://127.0.0.1:8080'],
      message:
        'http://127.0.0.1:8080: only a cluster with TLS has users; its address begins with https://. Without TLS use: cloudlessctl context set NAME --server http://127.0.0.1:8080',
    },
    {
      name: 'a join token',
      words: [SERVER, ...WITH_FILE],
      options: { files: { 'ada.token': USER_TOKEN.replace('clu1', 'cl1') } },
      message:
        '--token-file (ada.token): this is a join token for machines; a token of a user begins with clu1. and is created by: cloudlessctl user token create',
    },
    {
      name: 'a token that is cut off',
      words: [SERVER, ...WITH_FILE],
      options: { files: { 'ada.token': USER_TOKEN.slice(0, -1) } },
      message:
        '--token-file (ada.token): expected one token of a user, which begins with clu1. and has four or five parts with dots between; is the text complete?',
    },
    {
      name: 'no token',
      words: [SERVER],
      message: 'there is no token: give --token-file FILE, or pipe the token into standard input',
    },
    {
      name: 'a file that does not exist',
      words: [SERVER, '--token-file', 'none'],
      message: '--token-file: none: no such file or directory',
    },
    {
      name: 'a directory',
      words: [SERVER, '--token-file', 'tokens'],
      options: { files: { 'tokens/ada.token': USER_TOKEN } },
      message: '--token-file: tokens: is a directory; give the file with the token',
    },
    {
      name: 'two names of the context',
      words: [SERVER, ...WITH_FILE, '--name', 'ada', '--context', 'bob'],
      message: '--name ada and --context bob name two contexts; give one of the two',
    },
    {
      name: 'a name with a slash in --context',
      words: [SERVER, ...WITH_FILE, '--context', 'a/b'],
      message: '--context: expected letters, digits, dots, hyphens and underscores, got "a/b"',
    },
    {
      name: 'a context with another server',
      words: ['https://other:1', ...WITH_FILE, '--name', 'prod'],
      options: { files: LOGGED_IN },
      message: `the context prod has the server ${SERVER}; choose another name with --name, or change the context first: cloudlessctl context set prod --server https://other:1`,
    },
  ])('refuses $name with exit code 2 before it connects', async ({ words, options, message }) => {
    expect(await runLogin(words, options)).toMatchObject({
      exitCode: 2,
      stdout: '',
      stderr: `cloudlessctl: ${message}\n`,
      servers: [],
    });
  });

  it('refuses a token file that others can read, and names the command that mends it', async () => {
    const options = { modes: { 'ada.token': 0o644 } };
    expect(await runLogin([SERVER, ...WITH_FILE], options)).toMatchObject({
      exitCode: 1,
      stderr:
        'cloudlessctl: --token-file: ada.token has mode 0644, so others can read the secret; run: chmod 600 ada.token\n',
      servers: [],
    });
  });

  it('changes nothing when the coordinator refuses the token', async () => {
    const refusal = new CloudlessError('INVALID_TOKEN', 'the token is not valid');
    const result = await runLogin([SERVER, ...WITH_FILE], {
      users: {
        issueUserCertificate: () => {
          throw toConnectError(refusal);
        },
      },
    });
    expect(result).toMatchObject({
      exitCode: 1,
      stderr: `cloudlessctl: the token is not valid (UNAUTHENTICATED)\nLog in with a valid token: cloudlessctl login ${SERVER}\n`,
    });
    expect(result.files).toEqual(files);
  });
});

describe('cloudlessctl logout', () => {
  it('revokes the credential, removes the files and keeps the context', async () => {
    const revoked: string[] = [];
    const revokeUserToken = ({ id }: { id: string }) => {
      revoked.push(id);
      return {};
    };
    const result = await runCli(['logout'], { files: LOGGED_IN, users: { revokeUserToken } });
    expect({ ...result, revoked }).toMatchObject({
      exitCode: 0,
      stdout: `logged out of ${SERVER} (context prod)\n`,
      revoked: ['0m4c8e2fz6ty'],
    });
    expect(result.files).toEqual({
      [CONFIG]: `current: prod\ncontexts:\n  prod: { server: ${SERVER} }\n`,
    });
  });

  const refuse = (code: Code) => ({
    revokeUserToken: () => {
      throw new ConnectError('x', code);
    },
  });

  it('removes the files of a credential that is refused already', async () => {
    const users = refuse(Code.Unauthenticated);
    const result = await runCli(['logout'], { files: LOGGED_IN, users });
    expect(result.exitCode).toBe(0);
    expect(Object.keys(result.files)).toEqual([CONFIG]);
  });

  it('removes nothing when the coordinator does not answer, unless --local', async () => {
    const users = refuse(Code.Unavailable);
    const result = await runCli(['logout'], { files: LOGGED_IN, users });
    expect(result).toMatchObject({ exitCode: 5, files: LOGGED_IN });
    expect(result.stderr).toContain('nothing was removed; to remove only the files, use --local\n');
    const local = await runCli(['logout', '--local'], { files: LOGGED_IN, users });
    expect(local).toMatchObject({
      exitCode: 0,
      stdout: `logged out of ${SERVER} (context prod); the identity was not revoked\n`,
      servers: [],
    });
  });
});

describe('cloudlessctl whoami', () => {
  it('says that a cluster without TLS has no users', async () => {
    const users = { whoAmI: () => ({ principal: 'anonymous@loopback' }) };
    expect(await runCli(['whoami'], { users })).toMatchObject({
      exitCode: 0,
      stdout: 'Server:  http://127.0.0.1:8080\nName:    anonymous@loopback\n',
      stderr: 'the cluster has no TLS: every process of this machine may make every call\n',
    });
  });
});

describe('cloudlessctl context', () => {
  it('lists the user and the end of the login of each context', async () => {
    const { stdout } = await runCli(['context', 'list'], { files: LOGGED_IN });
    expect(stdout).toBe(
      'CURRENT   NAME   SERVER                         NAMESPACE   USER       LOGIN\n*         prod   https://cluster.example:8443   default     user/ada   expires in 7d unless used, in 90d at the latest\n',
    );
  });

  it('shows the user and the end of the login with show', async () => {
    const { stdout } = await runCli(['context', 'show'], { files: LOGGED_IN });
    expect(stdout).toContain(
      'user:      user/ada\nlogin:     expires in 7d unless used, in 90d at the latest\n',
    );
  });
});

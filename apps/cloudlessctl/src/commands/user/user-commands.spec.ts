import { Code, ConnectError } from '@connectrpc/connect';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Role,
  UserCredentialSchema,
  UserCredential_Kind as CredentialKind,
  UserSchema,
  toConnectError,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { NOW_MS, USER_TOKEN as TEXT, runCli } from '../../testing/run-cli.js';
import type { CliOptions } from '../../testing/run-cli.js';

const DAY_MS = 86_400_000;
const ada = create(UserSchema, {
  name: 'ada',
  createdAt: timestampFromMs(NOW_MS - 3 * DAY_MS),
  grants: [
    { role: Role.VIEWER, namespace: '' },
    { role: Role.OPERATOR, namespace: 'shop' },
  ],
});
const credential = create(UserCredentialSchema, {
  id: 'k3v9x0aq71bd',
  user: 'ada',
  kind: CredentialKind.TOKEN,
  description: 'backup job',
  createdBy: 'user/admin',
  createdAt: timestampFromMs(NOW_MS),
  expiresAt: timestampFromMs(NOW_MS + 90 * DAY_MS),
});

/** Runs a command line and returns the requests of one method of the user service. */
async function runRecorded(
  line: string,
  method: keyof NonNullable<CliOptions['users']>,
  response: unknown,
  options: CliOptions = {},
) {
  const requests: Record<string, unknown>[] = [];
  const users = {
    [method]: (request: Record<string, unknown>) => {
      requests.push(request);
      return response;
    },
  };
  return { ...(await runCli(line.split(' '), { ...options, users })), requests };
}

describe('cloudlessctl user grant', () => {
  it('names the role of the whole cluster when a grant for the whole cluster is refused', async () => {
    const users = {
      grant: () => {
        const metadata = { principal: 'user/eve', role: 'admin' };
        throw toConnectError(new CloudlessError('denied', 'refused', { metadata }));
      },
    };
    const words = ['user', 'grant', 'ada', 'admin', '--cluster'];
    expect((await runCli(words, { users })).stderr).toContain(
      'An administrator grants the role with: cloudlessctl user grant eve admin --cluster\n',
    );
  });

  it.each([
    { words: 'ada operator', namespace: 'default', text: 'operator in default' },
    { words: 'ada Operator -n shop', namespace: 'shop', text: 'operator in shop' },
    { words: 'ada operator --cluster', namespace: '', text: 'operator of the cluster' },
  ])('grants the role of $words', async ({ words, namespace, text }) => {
    expect(await runRecorded(`user grant ${words}`, 'grant', ada)).toMatchObject({
      exitCode: 0,
      stdout: `user ada: is now ${text}\n`,
      requests: [{ user: 'ada', role: Role.OPERATOR, namespace }],
    });
  });

  it.each([
    {
      words: 'ada operater',
      message:
        'the role: expected one of viewer, operator, admin, got "operater"; did you mean operator?',
    },
    {
      words: 'ada operator --cluster -n shop',
      message: 'give --cluster or --namespace, not both',
    },
  ])('refuses $words with exit code 2', async ({ words, message }) => {
    expect(await runRecorded(`user grant ${words}`, 'grant', ada)).toMatchObject({
      exitCode: 2,
      stderr: `cloudlessctl: ${message}\n`,
      requests: [],
    });
  });
});

describe('cloudlessctl user revoke', () => {
  it('names the roles that are left', async () => {
    expect(await runRecorded('user revoke ada admin --cluster', 'revoke', ada)).toMatchObject({
      stdout:
        'user ada: is no longer admin of the cluster; left: viewer of the cluster, operator in shop\n',
    });
  });
});

describe('cloudlessctl user create', () => {
  it('names the command that gives a role', async () => {
    const user = create(UserSchema, { name: 'ada' });
    expect(await runRecorded('user create ada', 'createUser', user)).toMatchObject({
      exitCode: 0,
      stdout: 'user ada: created without roles; next: cloudlessctl user grant ada viewer\n',
      requests: [{ name: 'ada' }],
    });
  });

  it('prints a user as JSON', async () => {
    const { stdout } = await runRecorded('user create ada -o json', 'createUser', ada);
    expect(JSON.parse(stdout)).toMatchObject({ name: 'ada', grants: [{ role: 'VIEWER' }, {}] });
  });
});

describe('cloudlessctl user token list', () => {
  const certificate = (certificateDays: number, days: number) => ({
    ...credential,
    kind: CredentialKind.CERTIFICATE,
    certificateExpiresAt: timestampFromMs(NOW_MS + certificateDays * DAY_MS),
    expiresAt: timestampFromMs(NOW_MS + days * DAY_MS),
  });

  it.each([
    { name: 'a token', shown: credential, state: 'expires in 90d' },
    {
      name: 'a login with a certificate that commands renew',
      shown: certificate(7, 90),
      state: 'expires in 7d unless used, in 90d at the latest',
    },
    {
      name: 'a login whose certificate cannot outlive its token',
      shown: certificate(2, 2),
      state: 'expires in 2d',
    },
    { name: 'an unused login', shown: certificate(-3, 83), state: 'expired 3d ago' },
  ])('shows the end of $name', async ({ shown, state }) => {
    const { stdout } = await runRecorded('user token list ada', 'listUserTokens', {
      credentials: [shown],
    });
    expect(stdout.split('\n')[1]).toContain(`  ${state}  `);
  });
});

describe('cloudlessctl get users', () => {
  const response = { users: [ada, create(UserSchema, { name: 'grace' })] };

  it('prints names for -o name', async () => {
    expect(await runRecorded('get users -o name', 'listUsers', response)).toMatchObject({
      stdout: 'ada\ngrace\n',
    });
  });

  it('suggests a similar name for a user that does not exist', async () => {
    expect(await runRecorded('get users adda', 'listUsers', response)).toMatchObject({
      exitCode: 3,
      stderr: 'cloudlessctl: user adda does not exist; did you mean ada?\n',
    });
  });
});

describe('cloudlessctl user token create', () => {
  const response = { credential, text: TEXT };

  it('prints the text alone on standard output', async () => {
    const words = 'user token create ada --lifetime 30d --description backup';
    expect(await runRecorded(words, 'createUserToken', response)).toMatchObject({
      exitCode: 0,
      stdout: `${TEXT}\n`,
      stderr:
        'token k3v9x0aq71bd of user ada: expires 2026-04-01T00:00:00Z\nThe text is not shown again; keep it secret.\n',
      requests: [{ user: 'ada', description: 'backup', lifetime: { seconds: 2_592_000n } }],
    });
  });

  it('writes the text to --output-file and prints the command that uses the file', async () => {
    const words = 'user token create ada --output-file ada.token --server https://c:8443';
    const env = { CLOUDLESS_TOKEN: TEXT };
    const result = await runRecorded(words, 'createUserToken', response, { env });
    expect(result).toMatchObject({
      stdout: '',
      stderr:
        'token k3v9x0aq71bd of user ada: expires 2026-04-01T00:00:00Z; written to ada.token\nnext: cloudlessctl login https://c:8443 --token-file ada.token\n',
      files: { 'ada.token': `${TEXT}\n` },
    });
  });

  it('creates no token when --output-file exists', async () => {
    const words = 'user token create ada --output-file ada.token';
    const files = { 'ada.token': 'old' };
    expect(await runRecorded(words, 'createUserToken', response, { files })).toMatchObject({
      exitCode: 2,
      stderr: 'cloudlessctl: --output-file: ada.token exists already; choose another file\n',
      requests: [],
      files,
    });
  });

  it('leaves no file when the coordinator refuses the token', async () => {
    const words = 'user token create ada --output-file ada.token'.split(' ');
    const users = {
      createUserToken: () => {
        throw new ConnectError('no', Code.PermissionDenied);
      },
    };
    expect(await runCli(words, { users })).toMatchObject({ exitCode: 1, files: {} });
    expect((await runCli(words, { users })).files).toEqual({});
  });

  it('creates no token whose text -o name would lose', async () => {
    const words = 'user token create ada -o name';
    expect(await runRecorded(words, 'createUserToken', response)).toMatchObject({
      exitCode: 2,
      requests: [],
    });
  });

  it('has the text as a field of the JSON', async () => {
    const { stdout } = await runRecorded('user token create -o json', 'createUserToken', response);
    expect(JSON.parse(stdout)).toMatchObject({ id: 'k3v9x0aq71bd', user: 'ada', text: TEXT });
  });
});

describe('cloudlessctl user token revoke', () => {
  it('revokes the credentials of another user', async () => {
    const words = 'user token revoke k3v9x0aq71bd --user ada';
    expect(await runRecorded(words, 'revokeUserToken', credential)).toMatchObject({
      stdout: 'token k3v9x0aq71bd of user ada: revoked\n',
      requests: [{ user: 'ada', id: 'k3v9x0aq71bd' }],
    });
  });
});

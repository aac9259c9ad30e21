import { timestampMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import {
  AdminService,
  CoordinatorService,
  Role,
  UserCredential_Kind as CredentialKind,
  UserService,
  fromConnectError,
} from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import type { Grant } from '@cloudless/identity';
import { createKeyAndCsr, decodeCertificates } from '@cloudless/identity/x509';
import { ApiTestBed } from '../testing/api-test-bed.js';
import {
  TestIdentity,
  createCertificateClient,
  createTokenClient,
} from '../testing/test-identity.js';

const DAY_MS = 24 * 60 * 60 * 1_000;
const days = (count: number) => ({ seconds: BigInt(count) * 86_400n, nanos: 0 });

let identity: TestIdentity;
let bed: ApiTestBed;

beforeAll(async () => {
  identity = await TestIdentity.create(new ManualClock().wallTime());
});
beforeEach(async () => {
  bed = await ApiTestBed.open({ identity });
  await identity.putAuthority(bed);
});
afterEach(() => bed.stop());

const at = (role: Grant['role'], namespace = ''): Grant => ({ role, namespace });
async function asUser(name: string, ...grants: readonly Grant[]) {
  return createTokenClient(bed, UserService, await identity.putUser(bed, name, grants));
}
const failureOf = async (call: Promise<unknown>) => {
  const reason = await call.then(
    () => undefined,
    (cause: unknown) => cause,
  );
  expect(reason).toBeInstanceOf(ConnectError);
  return fromConnectError(reason);
};

describe('users and roles', () => {
  it('creates a user without roles, gives and takes roles, and deletes the user', async () => {
    const root = await asUser('root', at('admin'));
    expect((await root.createUser({ name: 'ada' })).grants).toEqual([]);
    expect((await failureOf(root.createUser({ name: 'ada' }))).reason).toBe('USER_EXISTS');
    for (let turn = 0; turn < 2; turn += 1) {
      const { grants } = await root.grant({ user: 'ada', role: Role.OPERATOR, namespace: 'shop' });
      expect(grants).toMatchObject([{ role: Role.OPERATOR, namespace: 'shop' }]);
    }
    const { grants } = await root.revoke({ user: 'ada', role: Role.OPERATOR, namespace: 'shop' });
    expect(grants).toEqual([]);
    await root.deleteUser({ name: 'ada' });
    expect((await failureOf(root.deleteUser({ name: 'ada' }))).reason).toBe('USER_NOT_FOUND');
    expect((await root.listUsers({})).users.map(({ name }) => name)).toEqual(['root']);
    expect(bed.auditRecords).toEqual([
      'CreateUser ok',
      'CreateUser already_exists',
      'Grant ok',
      'Grant unchanged',
      'Revoke ok',
      'DeleteUser ok',
      'DeleteUser not_found',
    ]);
    expect(bed.events('Grant')[0]?.message).toContain(
      'user/root called Grant on user ada, role operator in namespace shop: ok',
    );
  });

  it('keeps the last admin of the whole cluster', async () => {
    const root = await asUser('root', at('admin'), at('admin', 'shop'));
    for (const call of [
      () => root.deleteUser({ name: 'root' }),
      () => root.revoke({ user: 'root', role: Role.ADMIN }),
    ]) {
      const error = await failureOf(call());
      expect(error.reason).toBe('LAST_ADMIN');
      expect(error.message).toBe(
        'user "root" is the last admin of the whole cluster; make another user admin first',
      );
    }
    await root.createUser({ name: 'ada' });
    await root.grant({ user: 'ada', role: Role.ADMIN });
    await root.revoke({ user: 'root', role: Role.ADMIN });
    expect((await failureOf(root.createUser({ name: 'bob' }))).kind).toBe('denied');
  });

  it('keeps one of two admins that revoke each other at the same time', async () => {
    const [a, b] = [await asUser('ada', at('admin')), await asUser('bob', at('admin'))];
    const results = await Promise.allSettled([
      a.revoke({ user: 'bob', role: Role.ADMIN }),
      b.revoke({ user: 'ada', role: Role.ADMIN }),
    ]);
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  });

  it('lets an admin of a namespace give roles there and nowhere else', async () => {
    const shopAdmin = await asUser('ada', at('admin', 'shop'), at('operator', 'bank'));
    await identity.putUser(bed, 'bob', [at('viewer', 'bank'), at('admin')]);
    const { grants } = await shopAdmin.grant({
      user: 'bob',
      role: Role.ADMIN,
      namespace: 'shop',
    });
    expect(grants).toMatchObject([{ role: Role.ADMIN, namespace: 'shop' }]);
    for (const namespace of ['', 'bank', 'home']) {
      const request = { user: 'ada', role: Role.ADMIN, namespace };
      expect((await failureOf(shopAdmin.grant(request))).kind).toBe('denied');
      expect((await failureOf(shopAdmin.revoke({ ...request, user: 'bob' }))).kind).toBe('denied');
    }
    for (const call of [
      () => shopAdmin.createUser({ name: 'eve' }),
      () => shopAdmin.deleteUser({ name: 'bob' }),
      () => shopAdmin.createUserToken({ user: 'bob' }),
      () => shopAdmin.listUserTokens({ user: 'bob' }),
    ])
      expect((await failureOf(call())).kind).toBe('denied');
  });

  it('shows an admin of a namespace only users with roles there, and only these roles', async () => {
    const shopAdmin = await asUser('ada', at('admin', 'shop'), at('viewer', 'bank'));
    await identity.putUser(bed, 'bob', [at('viewer', 'shop'), at('admin')]);
    await identity.putUser(bed, 'cleo', [at('viewer', 'bank')]);
    const { users } = await shopAdmin.listUsers({});
    expect(
      users.map(({ name, grants }) => [name, grants.map(({ namespace }) => namespace)]),
    ).toEqual([
      ['ada', ['shop']],
      ['bob', ['shop']],
    ]);
  });

  it('refuses a role that is not specified, and more than 64 roles', async () => {
    const root = await asUser('root', at('admin'));
    await root.createUser({ name: 'ada' });
    expect((await failureOf(root.grant({ user: 'ada' }))).message).toBe(
      'role: is required: VIEWER, OPERATOR or ADMIN',
    );
    await identity.putUser(
      bed,
      'bob',
      Array.from({ length: 64 }, (_, index) => at('viewer', `n${index}`)),
    );
    expect((await failureOf(root.grant({ user: 'bob', role: Role.ADMIN }))).message).toBe(
      'user "bob" has 64 roles; revoke some of them first',
    );
  });

  it('tells a caller its principal, roles and credential', async () => {
    const ada = await asUser('ada', at('viewer', 'shop'));
    expect(await ada.whoAmI({})).toMatchObject({
      principal: 'user/ada',
      grants: [{ role: Role.VIEWER, namespace: 'shop' }],
      credential: { user: 'ada', kind: CredentialKind.TOKEN },
    });
    const node = createCertificateClient(bed, UserService, 'n', await identity.putNode(bed, 'n1'));
    const answer = await node.whoAmI({});
    expect([answer.principal, answer.grants, answer.credential]).toEqual([
      'node/n1',
      [],
      undefined,
    ]);
  });

  it('refuses everything but WhoAmI in a cluster without TLS', async () => {
    const plain = await ApiTestBed.open();
    const client = createClient(UserService, plain.transport);
    expect(await client.whoAmI({})).toMatchObject({
      principal: 'anonymous@loopback',
      grants: [{ role: Role.ADMIN, namespace: '' }],
    });
    for (const call of [
      () => client.createUser({ name: 'ada' }),
      () => client.listUsers({}),
      () => client.createUserToken({ user: 'ada' }),
    ]) {
      const error = await failureOf(call());
      expect(error.reason).toBe('NO_IDENTITIES');
      expect(error.message).toBe(
        'this cluster has no identities; start the coordinator with --tls on',
      );
    }
    await plain.stop();
  });
});

describe('bearer tokens', () => {
  it('creates a token whose text works and is not stored', async () => {
    const root = await asUser('root', at('admin'));
    await identity.putUser(bed, 'ada', [at('viewer', 'shop')]);
    const { text, credential } = await root.createUserToken({ user: 'ada', description: 'CI' });
    expect(text).toMatch(/^clu1\.[a-z0-9]{12}\.[\w-]{43}\.[0-9a-f]{64}$/);
    expect(credential).toMatchObject({ user: 'ada', description: 'CI', createdBy: 'user/root' });
    const coordinator = createTokenClient(bed, CoordinatorService, text);
    await coordinator.listWorkloads({});
    const secret = text.split('.')[2] ?? '';
    for await (const { data } of createTokenClientOfBackup(bed)())
      expect(Buffer.from(data).includes(secret)).toBe(false);
  });

  it('lets a user create, list and revoke its own tokens without any role', async () => {
    const ada = await asUser('ada');
    const { credential, text } = await ada.createUserToken({ description: 'laptop' });
    const { credentials } = await ada.listUserTokens({});
    expect(credentials).toHaveLength(2);
    const revoked = await ada.revokeUserToken({ id: credential?.id ?? '' });
    expect(revoked.revokedAt).toBeDefined();
    await ada.revokeUserToken({ id: credential?.id ?? '' });
    const other = createTokenClient(bed, UserService, text);
    expect((await failureOf(other.whoAmI({}))).reason).toBe('INVALID_TOKEN');
    await identity.putUser(bed, 'bob');
    const bobs = [...bed.state.view().credentials()].find(
      ({ value }) => value.credential?.user === 'bob',
    )?.value.credential?.id;
    expect((await failureOf(ada.revokeUserToken({ id: bobs ?? '' }))).message).toBe(
      `user "ada" has no credential "${bobs}"`,
    );
  });

  it('lets only admins of the cluster create tokens that outlive the credential of the call', async () => {
    const ada = createTokenClient(
      bed,
      UserService,
      await identity.putUser(bed, 'ada', [at('admin', 'shop')], DAY_MS),
    );
    const nowMs = bed.clock.wallTime();
    const { credential } = await ada.createUserToken({});
    expect(timestampMs(credential!.expiresAt!)).toBe(nowMs + DAY_MS);
    const error = await failureOf(ada.createUserToken({ lifetime: days(2) }));
    expect(error.message).toBe(
      `lifetime: ends after the credential of this call, which expires at ${new Date(nowMs + DAY_MS).toISOString()}; choose a shorter lifetime, or ask an administrator of the cluster for the token`,
    );
    const root = createTokenClient(
      bed,
      UserService,
      await identity.putUser(bed, 'root', [at('admin')], DAY_MS),
    );
    const created = await root.createUserToken({ user: 'ada' });
    expect(timestampMs(created.credential!.expiresAt!)).toBe(nowMs + 90 * DAY_MS);
  });

  it.each([
    { seconds: 0n, nanos: 999_000_000 },
    { seconds: -1n, nanos: 0 },
    { seconds: 5n * 365n * 86_400n + 1n, nanos: 0 },
  ])('refuses the lifetime of %j', async (lifetime) => {
    const root = await asUser('root', at('admin'));
    expect((await failureOf(root.createUserToken({ lifetime }))).message).toBe(
      'lifetime: must be from 1 s to 5 years',
    );
  });

  it('refuses a token for an unknown user', async () => {
    const root = await asUser('root', at('admin'));
    expect((await failureOf(root.createUserToken({ user: 'eve' }))).reason).toBe('USER_NOT_FOUND');
    expect((await failureOf(root.listUserTokens({ user: 'eve' }))).reason).toBe('USER_NOT_FOUND');
  });

  it('removes ended credentials of a user that has 80, and refuses the 81st valid one', async () => {
    const root = await asUser('root', at('admin'));
    await identity.putUser(bed, 'ada', [], 90 * DAY_MS);
    for (let count = 1; count < 80; count += 1)
      await root.createUserToken({ user: 'ada', lifetime: days(count === 40 ? 1 : 30) });
    expect((await failureOf(root.createUserToken({ user: 'ada' }))).message).toBe(
      'user "ada" has 80 valid credentials; revoke some of them first',
    );
    const { credentials } = await root.listUserTokens({ user: 'ada', pageSize: 1 });
    await root.revokeUserToken({ user: 'ada', id: credentials[0]?.id ?? '' });
    await root.createUserToken({ user: 'ada' });
    expect((await root.listUserTokens({ user: 'ada' })).credentials).toHaveLength(80);
    await root.deleteUser({ name: 'ada' });
    expect([...bed.state.view().credentials()]).toHaveLength(1);
  });
});

describe('client certificates of users', () => {
  async function login(token: string, connection = 'laptop') {
    const { csr } = await createKeyAndCsr();
    const response = await createTokenClient(bed, UserService, token).issueUserCertificate({
      csr,
      description: 'laptop',
    });
    const chainDer = decodeCertificates(response.certificateChain, 'chain');
    return {
      response,
      client: createCertificateClient(bed, UserService, connection, { chainDer }),
    };
  }

  it('issues a certificate while a restored state waits, so that an operator can accept the state', async () => {
    const token = await identity.putUser(bed, 'ada', [at('admin')]);
    bed.state.reportNewerState({ nodeId: 'node-1', epoch: 99n, orderRevision: 0n });
    const { response } = await login(token);
    const chainDer = decodeCertificates(response.certificateChain, 'chain');
    const admin = createCertificateClient(bed, AdminService, 'desktop', { chainDer });
    expect(await admin.acceptRestoredState({})).toMatchObject({ accepted: true });
  });

  it('issues a certificate for a bearer token, which ends with the token', async () => {
    const token = await identity.putUser(bed, 'ada', [], 3 * DAY_MS);
    const { response, client } = await login(token);
    expect(response.credential).toMatchObject({
      user: 'ada',
      kind: CredentialKind.CERTIFICATE,
      description: 'laptop',
      tokenId: token.split('.')[1],
    });
    expect(timestampMs(response.credential!.expiresAt!)).toBe(bed.clock.wallTime() + 3 * DAY_MS);
    expect(response).toMatchObject({
      trustBundle: identity.authority.bundlePem,
      coordinatorIds: identity.coordinatorIds,
      trustDomain: 'cloudless',
    });
    const { principal, credential } = await client.whoAmI({});
    expect(principal).toBe('user/ada');
    // The certificate cannot outlive the token, so both end together.
    expect(timestampMs(credential!.certificateExpiresAt!)).toBe(bed.clock.wallTime() + 3 * DAY_MS);
    const root = await asUser('root', at('admin'));
    await root.revokeUserToken({ user: 'ada', id: token.split('.')[1] ?? '' });
    const { credentials } = await root.listUserTokens({ user: 'ada' });
    expect(credentials.map(({ revokedAt }) => revokedAt === undefined)).toEqual([false, false]);
    expect((await failureOf(client.whoAmI({}))).reason).toBe('CREDENTIAL_REVOKED');
  });

  it('refuses a certificate for a token that ends within 1 s', async () => {
    const { csr } = await createKeyAndCsr();
    const token = await identity.putUser(bed, 'ada', [], 999);
    const client = createTokenClient(bed, UserService, token);
    const { cause, message } = await failureOf(client.issueUserCertificate({ csr }));
    expect(Code[(cause as ConnectError).code]).toBe('Unauthenticated');
    expect(message).toBe('the credential expires now; log in again');
  });

  it('renews the credential of a certificate, and extends the connection', async () => {
    const { response, client } = await login(await identity.putUser(bed, 'ada'));
    const { csr } = await createKeyAndCsr();
    const renewed = await client.issueUserCertificate({ csr });
    expect(renewed.credential?.id).toBe(response.credential?.id);
    const { current, previous } = bed.state.view().credential(renewed.credential?.id ?? '')!.value;
    expect(previous?.serial).not.toBe(current?.serial);
    expect(bed.callers.at(-1)?.credential).toMatchObject({ serial: current?.serial });
    const chainDer = decodeCertificates(renewed.certificateChain, 'chain');
    const next = createCertificateClient(bed, UserService, 'laptop-2', { chainDer });
    expect((await next.whoAmI({})).principal).toBe('user/ada');
    expect((await client.whoAmI({})).principal).toBe('user/ada');
  });

  it('keeps the previous certificate when a client renews again with the same key', async () => {
    const { client } = await login(await identity.putUser(bed, 'ada'));
    const { csr } = await createKeyAndCsr();
    const first = await client.issueUserCertificate({ csr });
    const id = first.credential?.id ?? '';
    const { previous } = bed.state.view().credential(id)!.value;
    await client.issueUserCertificate({ csr });
    expect(bed.state.view().credential(id)!.value.previous).toEqual(previous);
  });

  it.each([
    { name: 'an empty request', csr: new Uint8Array() },
    { name: 'bytes that are no request', csr: new Uint8Array(100).fill(48) },
  ])('refuses $name', async ({ csr }) => {
    const ada = await asUser('ada');
    const error = await failureOf(ada.issueUserCertificate({ csr }));
    expect(Code[(error.cause as ConnectError).code]).toMatch(/InvalidArgument|Unauthenticated/);
  });
});

/** Returns the read of a backup, as an admin. */
function createTokenClientOfBackup(testBed: ApiTestBed) {
  return async function* () {
    const token = await identity.putUser(testBed, 'backup', [at('admin')]);
    yield* createTokenClient(testBed, AdminService, token).backup({});
  };
}

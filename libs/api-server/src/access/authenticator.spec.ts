import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { CoordinatorService, IdentityService, SecretsService, UserService } from '@cloudless/api';
import {
  CertificateAuthorityRecordSchema,
  CertificateRecordSchema,
  CredentialRecordSchema,
  WorkloadRecordSchema,
  NodeBanRecordSchema,
  NodeRecordSchema,
  UserRecordSchema,
} from '@cloudless/api/store';
import { ManualClock } from '@cloudless/base/testing';
import { CERTIFICATE_AUTHORITY_KEY } from '@cloudless/cluster-state';
import type { TestCredential } from '@cloudless/identity/testing';
import { CERTIFICATE_MISTAKES } from '@cloudless/identity/testing';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { TestIdentity } from '../testing/test-identity.js';

const DAY_MS = 24 * 60 * 60 * 1_000;
const HOUR_MS = 60 * 60 * 1_000;
const MINUTE_MS = 60 * 1_000;
const { getServerInfo, listWorkloads, session, listNodes } = CoordinatorService.method;

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

const authorize = (
  headers: Record<string, string> = {},
  credential?: Pick<TestCredential, 'chainDer'>,
  method: Parameters<
    NonNullable<typeof bed.authenticator>['authorize']
  >[0]['method'] = getServerInfo,
  connectionName = 'c1',
) => {
  const connection = bed.connection(connectionName);
  connection.peer = credential;
  const { authenticator } = bed;
  if (authenticator === undefined) throw new Error('no identities');
  return authenticator.authorize({ method, connection, header: new Headers(headers) });
};
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

const revoke = async (token: string): Promise<void> => {
  const id = token.split('.')[1] ?? '';
  const record = clone(CredentialRecordSchema, bed.state.view().credential(id)!.value);
  record.credential!.revokedAt = timestampFromMs(bed.clock.wallTime());
  await bed.state.commit(bed.state.transaction().put('credential', id, record));
};
const ban = (nodeId: string) =>
  bed.state.commit(bed.state.transaction().put('ban', nodeId, create(NodeBanRecordSchema)));
const putNodeCertificates = async (id: string, fields: object): Promise<void> => {
  const record = clone(NodeRecordSchema, bed.state.view().node(id)!.value);
  Object.assign(record.identity!, fields);
  await bed.state.commit(bed.state.transaction().put('node', id, record));
};

describe('Authenticator with bearer tokens', () => {
  it('returns the user with the current roles', async () => {
    const token = await identity.putUser(bed, 'ada', [{ role: 'viewer', namespace: 'shop' }]);
    const caller = authorize(bearer(token));
    expect(caller.principal).toMatchObject({
      name: 'user/ada',
      grants: [{ role: 'viewer', namespace: 'shop' }],
    });
    expect(caller.credential).toEqual({ kind: 'user', id: token.split('.')[1] });
  });

  it('gives one message for every bad token, and its cause only in the audit record', async () => {
    const good = await identity.putUser(bed, 'ada');
    const revoked = await identity.putUser(bed, 'bob');
    await revoke(revoked);
    const expired = await identity.putUser(bed, 'cleo', [], 1_000);
    const orphan = await identity.putUser(bed, 'dan');
    await bed.state.commit(bed.state.transaction().delete('user', 'dan'));
    await bed.clock.advance(1_000);
    const [prefix, id = '', secret = '', ca] = good.split('.');
    const tampered = [prefix, id, `${secret[0] === 'A' ? 'B' : 'A'}${secret.slice(1)}`, ca].join(
      '.',
    );
    const rows = [
      ['', 'empty token'],
      ['clu1.x', 'malformed token'],
      [good.replace('clu1', 'cl1'), 'malformed token'],
      [[prefix, 'aaaaaaaaaaaa', secret, ca].join('.'), 'unknown token'],
      [tampered, 'tampered token'],
      [revoked, 'revoked token'],
      [expired, 'expired token'],
      [orphan, 'token of a deleted user'],
    ] as const;
    const messages = new Set<string>();
    for (const [text] of rows) {
      try {
        authorize(bearer(text));
      } catch (reason) {
        expect(reason).toMatchObject({ kind: 'unauthenticated', reason: 'INVALID_TOKEN' });
        messages.add((reason as Error).message);
      }
    }
    await bed.settle();
    expect([...messages]).toEqual([
      'the bearer token is not valid; log in again, or ask an administrator for a new token',
    ]);
    const audits = bed.events('GetServerInfo').map(({ audit }) => audit);
    expect(audits.map((audit) => audit?.cause)).toEqual(rows.map(([, cause]) => cause));
    expect(audits.map((audit) => audit?.principal)).toEqual([
      ...['unauthenticated', 'unauthenticated', 'unauthenticated', 'unauthenticated'],
      ...['user/ada', 'user/bob', 'user/cleo', 'user/dan'],
    ]);
    const texts = JSON.stringify(bed.events(), (_key, value: unknown) =>
      typeof value === 'bigint' ? String(value) : value,
    );
    for (const [text] of rows.filter(([token]) => token.length > 20))
      expect(texts).not.toContain(text.split('.')[2]);
  });

  it('records at most 20 refusals of one cause at once, and counts the others', async () => {
    for (let turn = 0; turn < 100; turn += 1) expect(() => authorize(bearer('x'))).toThrow();
    await bed.clock.advance(10_000);
    expect(() => authorize(bearer('x'))).toThrow();
    await bed.settle();
    const events = bed.events('GetServerInfo');
    expect(events).toHaveLength(21);
    expect(events.at(-1)?.count).toBe(81);
  });

  it.each(['Basic YTpi', 'Bearer a b', 'Bearer', 'Token x'])(
    'refuses the header Authorization: %s',
    (authorization) => {
      expect(() => authorize({ authorization })).toThrow(
        expect.objectContaining({ reason: 'INVALID_TOKEN' }),
      );
    },
  );

  it('refuses a bearer token beside a client certificate', async () => {
    const token = await identity.putUser(bed, 'ada');
    const node = await identity.putNode(bed, 'n1');
    expect(() => authorize(bearer(token), node)).toThrow(
      'the call has a client certificate and a bearer token; send one of them',
    );
  });

  it('ends an open call when its token is revoked or expires, or its user is deleted', async () => {
    const token = await identity.putUser(bed, 'ada', [{ role: 'viewer', namespace: '' }]);
    const open = authorize(bearer(token), undefined, listWorkloads);
    const changes: string[] = [];
    bed.authenticator?.onChange(() => changes.push('changed'));
    open.check();
    await revoke(token);
    expect(changes).toEqual(['changed']);
    expect(() => open.check()).toThrow(expect.objectContaining({ reason: 'INVALID_TOKEN' }));
    expect(open.principal).toMatchObject({ name: 'user/ada', grants: [] });
    const second = await identity.putUser(bed, 'ada', [{ role: 'viewer', namespace: '' }], 5_000);
    const other = authorize(bearer(second), undefined, listWorkloads);
    await bed.clock.advance(5_000);
    expect(() => other.check()).toThrow(expect.objectContaining({ reason: 'INVALID_TOKEN' }));
  });

  it('ends an open call when the last role for the call is revoked', async () => {
    const token = await identity.putUser(bed, 'ada', [{ role: 'viewer', namespace: '' }]);
    const open = authorize(bearer(token), undefined, listNodes);
    const record = clone(UserRecordSchema, bed.state.view().user('ada')!.value);
    record.user!.grants = [];
    await bed.state.commit(bed.state.transaction().put('user', 'ada', record));
    expect(() => open.check()).toThrow(
      'user/ada does not have the role viewer in the whole cluster',
    );
  });
});

describe('Authenticator with client certificates', () => {
  it.each(CERTIFICATE_MISTAKES.filter((mistake) => mistake !== 'expired'))(
    'refuses a certificate %s and closes its connection after the answer',
    async (mistake) => {
      await identity.putNode(bed, 'n1');
      const wrong = await identity.authority.issueMistake(mistake, 'node', 'n1');
      expect(() => authorize({}, wrong)).toThrow(
        expect.objectContaining({ kind: 'unauthenticated' }),
      );
      expect(bed.connection('c1').isDrained).toBe(true);
    },
  );

  it('permits a workload and a service only calls with an access token as their credential', async () => {
    const { getSecret } = SecretsService.method;
    await bed.putReplica('w-0');
    for (const [kind, id] of [
      ['workload', 'default.web-w'],
      ['service', 'web'],
    ] as const) {
      const certificate = await identity.authority.issue(kind, id, HOUR_MS);
      expect(authorize({}, certificate, getSecret, `c ${kind}`).principal).toEqual({
        ...{ kind, name: `${kind}/${id}` },
      });
      for (const method of [getServerInfo, listWorkloads])
        expect(() => authorize({}, certificate, method, `c ${kind}`)).toThrow(
          `${kind}/${id} may not make this call: the call is not for ${kind}s`,
        );
    }
  });

  it('refuses an expired certificate of a workload, and that of a deleted workload', async () => {
    const { getSecret } = SecretsService.method;
    await bed.putReplica('w-0');
    const certificate = await identity.authority.issue('workload', 'default.web-w', HOUR_MS);
    const open = authorize({}, certificate, getSecret);
    const deletion = bed.state.transaction().delete('name', 'default/web-w');
    await bed.state.commit(deletion.delete('workload', 'w'));
    expect(() => open.check()).toThrow('workload "default/web-w" does not exist');
    // The validity of the certificate begins 5 minutes before the issue.
    const issuedMs = bed.clock.wallTime();
    for (const [afterMs, isRefused] of [
      [4 * MINUTE_MS, false],
      [6 * MINUTE_MS, true],
    ] as const) {
      const workload = create(WorkloadRecordSchema, {
        ...{ uid: 'v', namespace: 'default', name: 'web-w', generation: 1n },
        createdAt: timestampFromMs(issuedMs + afterMs),
      });
      const creation = bed.state.transaction().put('workload', 'v', workload);
      await bed.state.commit(
        creation.put('name', 'default/web-w', create(WorkloadRecordSchema, { uid: 'v' })),
      );
      const check = expect(() => open.check());
      if (isRefused) check.toThrow('was deleted and created again');
      else check.not.toThrow();
    }
    const other = await identity.authority.issue('service', 'web', HOUR_MS);
    const late = authorize({}, other, getSecret, 'c2');
    bed.clock.suspend(HOUR_MS + 1);
    expect(() => late.check()).toThrow(expect.objectContaining({ reason: 'CERTIFICATE_EXPIRED' }));
    expect(() => authorize({}, other, getSecret, 'c3')).toThrow(
      expect.objectContaining({ reason: 'CERTIFICATE_EXPIRED' }),
    );
  });

  it('gives a node with an expired certificate 30 days to renew it, and nothing else', async () => {
    const { renewNodeCertificate } = IdentityService.method;
    const node = await identity.putNode(bed, 'n1', HOUR_MS);
    bed.clock.suspend(HOUR_MS + 29 * DAY_MS);
    expect(authorize({}, node, renewNodeCertificate).principal.kind).toBe('expired-node');
    expect(() => authorize({}, node, session)).toThrow(
      expect.objectContaining({
        reason: 'CERTIFICATE_EXPIRED',
        message: expect.stringContaining('only its renewal is possible') as string,
      }),
    );
    bed.clock.suspend(2 * DAY_MS);
    expect(() => authorize({}, node, renewNodeCertificate, 'c2')).toThrow(
      expect.objectContaining({ reason: 'CERTIFICATE_EXPIRED' }),
    );
  });

  it.each([
    ['banned', 'NODE_BANNED', () => ban('n1')],
    [
      'removed',
      'CREDENTIAL_REVOKED',
      () => bed.state.commit(bed.state.transaction().delete('node', 'n1')),
    ],
    [
      'replaced',
      'CREDENTIAL_REVOKED',
      () =>
        putNodeCertificates('n1', {
          current: create(CertificateRecordSchema, { serial: 'ff', generation: 1 }),
        }),
    ],
  ])('refuses the certificate of a node that was %s', async (_name, reason, change) => {
    const node = await identity.putNode(bed, 'n1');
    expect(authorize({}, node).principal).toMatchObject({ name: 'node/n1' });
    await change();
    expect(() => authorize({}, node)).toThrow(expect.objectContaining({ reason }));
  });

  it('accepts the previous certificate until the current one is used, and reports that use', async () => {
    const old = await identity.putNode(bed, 'n1');
    const renewed = await identity.authority.issue('node', 'n1');
    const { current } = bed.state.view().node('n1')!.value.identity!;
    await putNodeCertificates('n1', {
      current: create(CertificateRecordSchema, { serial: renewed.serial, generation: 1 }),
      previous: current,
    });
    authorize({}, old);
    expect(bed.usedCredentials).toEqual([]);
    authorize({}, renewed, getServerInfo, 'c22');
    expect(bed.usedCredentials).toEqual([`node n1 ${renewed.serial}`]);
  });

  it('lets an open call go on after a renewal, but no new call with the older certificate', async () => {
    const node = await identity.putNode(bed, 'n1', HOUR_MS);
    const open = authorize({}, node, session);
    await putNodeCertificates('n1', {
      current: create(CertificateRecordSchema, {
        serial: 'ff',
        generation: 1,
        notAfter: timestampFromMs(bed.clock.wallTime() + 2 * HOUR_MS),
      }),
    });
    expect(() => authorize({}, node, session)).toThrow(
      expect.objectContaining({ reason: 'CREDENTIAL_REVOKED' }),
    );
    await bed.clock.advance(2 * HOUR_MS);
    open.check();
    await bed.clock.advance(1);
    expect(() => open.check()).toThrow('expired at');
  });

  it('ends an open call of a machine whose name another machine has taken', async () => {
    const node = await identity.putNode(bed, 'n1');
    const open = authorize({}, node, session);
    const record = clone(NodeRecordSchema, bed.state.view().node('n1')!.value);
    record.instanceId = 'another-machine-0123456789';
    await bed.state.commit(bed.state.transaction().put('node', 'n1', record));
    expect(() => open.check()).toThrow(expect.objectContaining({ reason: 'CREDENTIAL_REVOKED' }));
  });

  it('takes the renewed certificate for all further calls on the connection', async () => {
    const node = await identity.putNode(bed, 'n1', HOUR_MS);
    const caller = authorize({}, node, session);
    const notAfterMs = bed.clock.wallTime() + 3 * HOUR_MS;
    await putNodeCertificates('n1', {
      current: create(CertificateRecordSchema, {
        serial: 'ff',
        generation: 1,
        notAfter: timestampFromMs(notAfterMs),
      }),
    });
    bed.authenticator?.replaceCredential(caller, {
      serial: 'ff',
      notBeforeMs: 0,
      notAfterMs,
      publicKeySha256: '',
      pem: '',
    });
    await bed.clock.advance(2 * HOUR_MS);
    expect(authorize({}, node, session).credential).toMatchObject({ serial: 'ff' });
    // A certificate that was not presented in a handshake does not end the one before.
    expect(bed.usedCredentials).toEqual([`node n1 ${node.serial}`]);
  });

  it('ends an open call at once when the credential of its user is revoked', async () => {
    await identity.putUser(bed, 'ada', [{ role: 'viewer', namespace: '' }]);
    const certificate = await identity.putUserCertificate(bed, 'ada');
    const open = authorize({}, certificate, listNodes);
    open.check();
    const record = clone(CredentialRecordSchema, bed.state.view().credential('cert-ada')!.value);
    record.credential!.revokedAt = timestampFromMs(bed.clock.wallTime());
    await bed.state.commit(bed.state.transaction().put('credential', 'cert-ada', record));
    for (const call of [() => open.check(), () => authorize({}, certificate)])
      expect(call).toThrow(expect.objectContaining({ reason: 'CREDENTIAL_REVOKED' }));
  });

  it('verifies a chain once for each connection, and again after a change of the trust bundle', async () => {
    const node = await identity.putNode(bed, 'n1');
    const before = identity.verifier;
    let count = 0;
    identity.verifier = {
      verify: (...facts) => {
        count += 1;
        return before.verify(...facts);
      },
    };
    for (let turn = 0; turn < 3; turn += 1) authorize({}, node);
    expect(count).toBe(1);
    const foreign = await TestIdentity.create(bed.clock.wallTime());
    identity.verifier = foreign.verifier;
    expect(() => authorize({}, node)).toThrow(
      expect.objectContaining({ reason: 'CERTIFICATE_INVALID' }),
    );
    identity.verifier = before;
  });

  it('refuses a certificate of a generation that the cluster has retired', async () => {
    const node = await identity.putNode(bed, 'n1');
    const { current } = bed.state.view().node('n1')!.value.identity!;
    await putNodeCertificates('n1', {
      current: Object.assign(clone(CertificateRecordSchema, current!), { generation: 9 }),
    });
    expect(() => authorize({}, node)).toThrow('of a certificate authority that was retired');
  });

  it('ends an open call whose holder has no certificate of a trusted generation any more', async () => {
    await identity.putUser(bed, 'ada', [{ role: 'viewer', namespace: '' }]);
    const user = await identity.putUserCertificate(bed, 'ada');
    const node = await identity.putNode(bed, 'n1');
    const open = [authorize({}, user, listNodes), authorize({}, node, session, 'c2')];
    for (const call of open) call.check();
    const authority = clone(
      CertificateAuthorityRecordSchema,
      bed.state.view().certificateAuthority()!.value,
    );
    authority.roots[0]!.generation = 2;
    await bed.state.commit(bed.state.transaction().put('ca', CERTIFICATE_AUTHORITY_KEY, authority));
    for (const call of open)
      expect(() => call.check()).toThrow('of a certificate authority that was retired');
  });
});

describe('Authenticator without credentials', () => {
  it('refuses a call and says how to get an identity', () => {
    expect(() => authorize({}, undefined, UserService.method.whoAmI)).toThrow(
      'the call has no identity; log in with "cloudlessctl login", or send a bearer token',
    );
  });

  it('lets a machine without an identity enrol', () => {
    const caller = authorize({}, undefined, CoordinatorService.method.enrollNode);
    expect(caller.principal.name).toBe('unauthenticated');
  });
});

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { createClient, type Client } from '@connectrpc/connect';
import {
  NetworkService,
  NodeNetworkService,
  SecretsService,
  fromConnectError,
  type RouteSpecSchema,
} from '@cloudless/api';
import { NodeBanRecordSchema } from '@cloudless/api/store';
import { ManualClock } from '@cloudless/base/testing';
import { SecretKeys } from '../secret/secret-keys.js';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { createCertificate, type CertificateData } from '../testing/certificate-pairs.js';
import {
  TestIdentity,
  createCertificateClient,
  createTokenClient,
} from '../testing/test-identity.js';

type SpecInit = Omit<MessageInitShape<typeof RouteSpecSchema>, '$typeName' | '$unknown'>;

const rules = [{ service: 'web', port: '80' }];
const audiences = ['route/*'];
const nodeSelector = { ingress: 'true' };
const web = { namespace: 'default', name: 'web' };
const call = { ...web, nodeId: 'n1' };

let first: CertificateData;
let second: CertificateData;
let bed: ApiTestBed;
let proxy: Client<typeof NodeNetworkService>;
let routes: Client<typeof NetworkService>;
let secrets: Client<typeof SecretsService>;

beforeAll(async () => {
  [first, second] = await Promise.all([createCertificate(), createCertificate()]);
});
beforeEach(async () => {
  bed = await ApiTestBed.open();
  proxy = createClient(NodeNetworkService, bed.transport);
  routes = createClient(NetworkService, bed.transport);
  secrets = createClient(SecretsService, bed.transport);
  await bed.putNode('n1', { labels: nodeSelector });
  await bed.putNode('n2');
  await secrets.createSecret({ name: 'cert', data: first, audiences });
  await aRoute();
});
afterEach(() => bed.stop());

const aRoute = (name = 'web', spec: SpecInit = {}) =>
  routes.createRoute({
    name,
    spec: {
      ...{ hosts: [`${name}.b`], rules, nodeSelector, tls: { certificateSecret: 'cert' } },
      ...spec,
    },
  });
const fetch = async (fields: object = {}) => {
  const { version, certificate, key } = await proxy.getRouteCertificate({ ...call, ...fields });
  return { version, data: { 'tls.crt': Buffer.from(certificate), 'tls.key': Buffer.from(key) } };
};
const refusalOf = async (calling: Promise<unknown>): Promise<string> => {
  const reason: unknown = await calling.then(
    () => new Error('values were sent'),
    (error: unknown) => error,
  );
  const { reason: code, message } = fromConnectError(reason);
  return `${code}: ${message}`;
};
const records = () =>
  bed.events('GetRouteCertificate').map(({ audit }) => {
    const { result = '', secrets: names = [], secretVersions = [] } = audit ?? {};
    return `${result} ${names.join()}@${secretVersions.join()}`;
  });
const ban = () =>
  bed.state.commit(
    bed.state
      .transaction()
      .put('ban', 'n1', create(NodeBanRecordSchema, { ban: { nodeId: 'n1' } })),
  );

/** Makes a change once: after the values are read, or after the audit record is committed. */
function changeDuring(moment: 'read' | 'record', change: () => Promise<unknown>): void {
  const { state } = bed;
  const [readRecord, commit] = [state.readRecord.bind(state), state.commitObserved.bind(state)];
  let isDone = false;
  const changeOnce = async (): Promise<void> => {
    if (isDone) return;
    isDone = true;
    await change();
  };
  if (moment === 'read')
    state.readRecord = async (kind, id) => {
      const record = await readRecord(kind, id);
      await changeOnce();
      return record;
    };
  else
    state.commitObserved = async (transaction) => {
      const revision = await commit(transaction);
      await changeOnce();
      return revision;
    };
}

describe('GetRouteCertificate', () => {
  it('sends the newest certificate with its key', async () => {
    const { uid = '' } = bed.state.view().secret('default/cert')?.value ?? {};
    expect(await fetch()).toEqual({
      version: expect.objectContaining({ secretUid: uid, version: 1 }),
      data: first,
    });
    await secrets.updateSecret({ name: 'cert', data: second });
    expect(await fetch()).toEqual({
      version: expect.objectContaining({ secretUid: uid, version: 2 }),
      data: second,
    });
  });

  interface Refusal {
    readonly name: string;
    readonly prepare?: () => Promise<unknown>;
    readonly fields?: object;
    readonly message: string;
  }
  it.each<Refusal>([
    {
      name: 'a node that the route does not select',
      fields: { nodeId: 'n2' },
      message:
        'PERMISSION_DENIED: route "default/web" does not select node "n2", so the node gets no certificate of the route',
    },
    {
      name: 'a banned node',
      prepare: ban,
      message: 'NODE_BANNED: node "n1" is banned from this cluster',
    },
    {
      name: 'an unknown node',
      fields: { nodeId: 'n9' },
      message: 'NODE_NOT_FOUND: node "n9" is not enrolled',
    },
    {
      name: 'an unknown route',
      fields: { name: 'blog' },
      message: 'NOT_FOUND: route "default/blog" not found',
    },
    {
      name: 'a route of another namespace',
      fields: { namespace: 'other' },
      message: 'NOT_FOUND: route "other/web" not found',
    },
    {
      name: 'a route with files',
      prepare: () => aRoute('blog', { tls: { certificateFile: '/a', keyFile: '/b' } }),
      fields: { name: 'blog' },
      message: 'WRONG_STATE: route "default/blog" names no secret; set spec.tls.certificate_secret',
    },
    {
      name: 'a route without TLS',
      prepare: () => routes.updateRoute({ ...web, updateMask: { paths: ['tls'] } }),
      message: 'WRONG_STATE: route "default/web" names no secret; set spec.tls.certificate_secret',
    },
    {
      name: 'a secret without the audience of the route',
      prepare: () => secrets.updateSecret({ name: 'cert', audiences: ['route/default.blog'] }),
      message:
        'MISSING_REFERENCE: spec.tls.certificate_secret: secret "default/cert" does not allow the audience route/default.web; add the audience route/default.web to the secret',
    },
    {
      name: 'an expired secret',
      prepare: async () => {
        await secrets.updateSecret({ name: 'cert', ttl: { seconds: 10n } });
        await bed.clock.advance(10_000);
      },
      message:
        'SECRET_EXPIRED: secret "default/cert" has expired; update it with new values and a later expires_at',
    },
    {
      name: 'a secret that a coordinator of an earlier version has deleted',
      prepare: () => bed.state.commit(bed.state.transaction().delete('secret', 'default/cert')),
      message:
        'MISSING_REFERENCE: spec.tls.certificate_secret: secret "default/cert" not found; create the secret first',
    },
    {
      name: 'a secret that such a coordinator has replaced by unfit values',
      prepare: async () => {
        await bed.state.commit(bed.state.transaction().delete('secret', 'default/cert'));
        const data = { ...first, 'tls.key': second['tls.key'] };
        await secrets.createSecret({ name: 'cert', data, audiences });
      },
      message:
        'MISSING_REFERENCE: spec.tls.certificate_secret: tls.key of secret "default/cert" does not belong to the first certificate in tls.crt',
    },
  ])('refuses $name, and records the refusal', async ({ prepare, fields = {}, message }) => {
    await prepare?.();
    expect(await refusalOf(fetch(fields))).toBe(message);
    const refused = bed.events('GetRouteCertificate');
    expect(refused).toHaveLength(1);
    expect(refused[0]).toMatchObject({ nodeId: call.nodeId, ...('nodeId' in fields && fields) });
    expect(refused[0]?.audit?.secretVersions).toEqual([]);
    const key = { ...web, ...fields };
    expect(refused[0]?.message).toContain(
      `called GetRouteCertificate on route ${key.namespace}/${key.name}: `,
    );
  });

  it('is refused by a coordinator without the key-encryption key', async () => {
    const { store, clock } = bed;
    const other = await ApiTestBed.open({ store, clock, secretKeys: new SecretKeys(), seed: 5 });
    const { getRouteCertificate } = createClient(NodeNetworkService, other.transport);
    expect(await refusalOf(getRouteCertificate(call))).toMatch(/^NO_SECRETS_KEY: /);
    await other.stop();
  });

  interface Change {
    readonly name: string;
    readonly change: () => Promise<unknown>;
    readonly message: string;
  }
  const changes: readonly Change[] = [
    {
      name: 'the node loses the label',
      change: () => bed.putNode('n1'),
      message: 'route "default/web" does not select node "n1"',
    },
    {
      name: 'the route selects other nodes',
      change: () => routes.updateRoute({ ...web, spec: { nodeSelector: { ingress: 'no' } } }),
      message: 'route "default/web" does not select node "n1"',
    },
    { name: 'the node is banned', change: ban, message: 'node "n1" is banned' },
    {
      name: 'the node is removed',
      change: () => bed.state.commit(bed.state.transaction().delete('node', 'n1')),
      message: 'node "n1" is not enrolled',
    },
    {
      name: 'the route is deleted',
      change: () => routes.deleteRoute(web),
      message: 'route "default/web" not found',
    },
    {
      name: 'the route no longer names the secret',
      change: () => routes.updateRoute({ ...web, updateMask: { paths: ['tls'] } }),
      message: 'route "default/web" names no secret',
    },
    {
      name: 'the secret loses the audience',
      change: () => secrets.updateSecret({ name: 'cert', audiences: ['ci'] }),
      message: 'does not allow the audience route/default.web',
    },
    {
      name: 'the secret expires',
      change: async () => {
        await secrets.updateSecret({ name: 'cert', ttl: { seconds: 1n } });
        await bed.clock.advance(1_000);
      },
      message: 'secret "default/cert" has expired',
    },
  ];

  const moments = [
    { moment: 'read', when: 'while the values are read' },
    { moment: 'record', when: 'while the call is recorded' },
  ] as const;
  it.each(moments.flatMap((each) => changes.map((change) => ({ ...each, ...change }))))(
    'sends nothing when $name $when',
    async ({ moment, change, message }) => {
      changeDuring(moment, change);
      expect(await refusalOf(fetch())).toContain(message);
      expect(records()).toHaveLength(moment === 'read' ? 1 : 2);
      expect(records().at(-1)).not.toContain('ok');
    },
  );

  it.each(moments)('sends the newest version when the secret changes $when', async ({ moment }) => {
    changeDuring(moment, () => secrets.updateSecret({ name: 'cert', data: second }));
    expect(await fetch()).toMatchObject({ version: { version: 2 }, data: second });
    expect(records().at(-1)).toBe('ok default/cert@2');
  });

  it.each(moments)(
    'sends the values of the secret that was created again $when',
    async ({ moment }) => {
      changeDuring(moment, async () => {
        await bed.state.commit(bed.state.transaction().delete('secret', 'default/cert'));
        await secrets.createSecret({ name: 'cert', data: second, audiences });
      });
      const { version, data } = await fetch();
      expect(version?.secretUid).toBe(bed.state.view().secret('default/cert')?.value.uid);
      expect(data).toEqual(second);
    },
  );

  it('is recorded for the secret before the values, with version, node and route', async () => {
    const before = bed.state.commitObserved.bind(bed.state);
    bed.state.commitObserved = () => Promise.reject(new Error('the store is full'));
    expect(await refusalOf(fetch())).toContain('INTERNAL');
    bed.state.commitObserved = before;
    expect(records()).toEqual([]);
    await fetch();
    expect(bed.events('GetRouteCertificate')).toMatchObject([
      {
        ...{ namespace: 'default', nodeId: 'n1', workload: '' },
        message: 'anonymous@loopback called GetRouteCertificate on route default/web: ok',
        audit: { result: 'ok', secrets: ['default/cert'], secretVersions: [1] },
      },
    ]);
    const { entries } = await secrets.getSecretAuditLog({ name: 'cert' });
    expect(entries[0]).toMatchObject({
      ...{ operation: 'GetRouteCertificate', result: 'ok', version: 1 },
    });
  });

  it('merges its records for the same version and route, and writes no other record for them', async () => {
    await aRoute('blog');
    for (let count = 0; count < 15; count += 1) await fetch();
    expect(records()).toEqual(Array<string>(10).fill('ok default/cert@1'));
    await fetch({ name: 'blog' });
    expect(records()).toHaveLength(11);
    await bed.clock.advance(10_000);
    await fetch();
    expect(bed.events('GetRouteCertificate').at(-1)?.count).toBe(6);
    expect(new Set(records())).toEqual(new Set(['ok default/cert@1']));
  });
});

describe('GetRouteCertificate in a cluster with identities', () => {
  let identity: TestIdentity;
  let own: Client<typeof NodeNetworkService>;
  let admin: string;
  beforeEach(async () => {
    await bed.stop();
    identity = await TestIdentity.create(new ManualClock().wallTime());
    bed = await ApiTestBed.open({ identity });
    await identity.putAuthority(bed);
    own = createCertificateClient(bed, NodeNetworkService, 'c1', await identity.putNode(bed, 'n1'));
    admin = await identity.putUser(bed, 'root', [{ role: 'admin', namespace: '' }]);
    await createTokenClient(bed, SecretsService, admin).createSecret({
      ...{ name: 'cert', data: first, audiences },
    });
    const tls = { certificateSecret: 'cert' };
    await createTokenClient(bed, NetworkService, admin).createRoute({
      ...{ name: 'web', spec: { hosts: ['a.b'], rules, tls } },
    });
  });

  it('is for the node itself, not for other nodes and users', async () => {
    const n2 = await identity.putNode(bed, 'n2');
    const foreign = createCertificateClient(bed, NodeNetworkService, 'c22', n2);
    const user = createTokenClient(bed, NodeNetworkService, admin);
    expect(Buffer.from((await own.getRouteCertificate(call)).key)).toEqual(first['tls.key']);
    expect(await refusalOf(foreign.getRouteCertificate(call))).toBe(
      'PERMISSION_DENIED: node/n2 may not act for node "n1"',
    );
    expect(await refusalOf(user.getRouteCertificate(call))).toMatch(/^PERMISSION_DENIED: /);
    const principals = bed.events('GetRouteCertificate').map(({ audit }) => audit?.principal);
    expect(principals).toEqual(['node/n1', 'node/n2', 'user/root']);
    await ban();
    expect(await refusalOf(own.getRouteCertificate(call))).toMatch(/^NODE_BANNED: /);
  });

  it('sends nothing when another machine takes the name of the node while the values are read', async () => {
    changeDuring('read', () => bed.putNode('n1', { instanceId: 'another-machine-0123456789' }));
    expect(await refusalOf(own.getRouteCertificate(call))).toMatch(/^CREDENTIAL_REVOKED: /);
  });
});

import { createClient, type Client } from '@connectrpc/connect';
import {
  NetworkService,
  RouteCondition_Type as ConditionType,
  SecretsService,
  fromConnectError,
  type Route,
} from '@cloudless/api';
import { SecretKeys } from '../../secret/secret-keys.js';
import { ApiTestBed } from '../../testing/api-test-bed.js';
import { createCertificate, type CertificateData } from '../../testing/certificate-pairs.js';

const rules = [{ service: 'web', port: '80' }];
const audiences = ['route/*'];

let first: CertificateData;
let second: CertificateData;
let bed: ApiTestBed;
let client: Client<typeof NetworkService>;
let secrets: Client<typeof SecretsService>;

beforeAll(async () => {
  [first, second] = await Promise.all([createCertificate(), createCertificate()]);
});
beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createClient(NetworkService, bed.transport);
  secrets = createClient(SecretsService, bed.transport);
});
afterEach(() => bed.stop());

const aSecret = (name = 'cert', fields: object = {}) =>
  secrets.createSecret({ name, data: first, audiences, ...fields });
/** Creates a route; with `{}` as `tls`, without TLS. */
const aRoute = (name = 'web', tls: object = { certificateSecret: 'cert' }, host = 'a.b') =>
  client.createRoute({
    name,
    spec: { hosts: [host], rules, ...(Object.keys(tls).length > 0 && { tls }) },
  });
const refusalOf = async (call: Promise<unknown>): Promise<string> => {
  const reason: unknown = await call.then(
    () => new Error('the call was accepted'),
    (error: unknown) => error,
  );
  const error = fromConnectError(reason);
  return `${error.reason}: ${error.message}`;
};
const findCondition = ({ status }: Route): string => {
  const found = status?.conditions.find(({ type }) => type === ConditionType.CERTIFICATE_USABLE);
  return found === undefined ? 'none' : `${found.holds} ${found.reason} ${found.message}`.trim();
};

describe('a route with a secret', () => {
  it('is created, and its secret shows the route in its audit log and among its users', async () => {
    await aSecret();
    const route = await aRoute();
    expect(route.spec?.tls).toMatchObject({ certificateSecret: 'cert', certificateFile: '' });
    expect(findCondition(route)).toBe('true');
    const { entries } = await secrets.getSecretAuditLog({ name: 'cert' });
    expect(entries.map(({ operation, result }) => `${operation} ${result}`)).toEqual([
      'CreateRoute ok',
      'CreateSecret ok',
    ]);
    await aRoute('blog', { certificateSecret: 'cert' }, 'c.d');
    expect((await secrets.getSecret({ name: 'cert' })).secret?.usedByRoutes).toEqual([
      'blog',
      'web',
    ]);
    expect((await secrets.listSecrets({})).secrets[0]?.usedByRoutes).toEqual([]);
  });

  interface Unusable {
    readonly name: string;
    /** Fields of the secret; `null`: there is no secret. */
    readonly secret: object | null;
    readonly message: string;
  }
  it.each<Unusable>([
    {
      ...{ name: 'a missing secret', secret: null },
      message: 'secret "default/cert" not found; create the secret first',
    },
    {
      ...{ name: 'a secret of another namespace', secret: { namespace: 'other' } },
      message: 'secret "default/cert" not found; create the secret first',
    },
    {
      ...{ name: 'an expired secret', secret: { ttl: { seconds: 10n } } },
      message: 'secret "default/cert" has expired; update the secret first',
    },
    {
      ...{ name: 'the audiences of workloads', secret: { audiences: ['workload/default.*'] } },
      message:
        'secret "default/cert" does not allow the audience route/default.web; add the audience route/default.web to the secret',
    },
    {
      ...{ name: 'the audience of another route', secret: { audiences: ['route/default.web2'] } },
      message:
        'secret "default/cert" does not allow the audience route/default.web; add the audience route/default.web to the secret',
    },
    {
      ...{ name: 'a secret without the key', secret: { data: { 'tls.crt': Buffer.from('x') } } },
      message:
        'secret "default/cert" needs the keys tls.crt and tls.key for a route; its keys are tls.crt',
    },
  ])('is refused with $name', async ({ secret, message }) => {
    if (secret !== null) await aSecret('cert', secret);
    await aSecret('usable');
    await bed.clock.advance(11_000);
    const refusal = `MISSING_REFERENCE: spec.tls.certificate_secret: ${message}`;
    expect(await refusalOf(aRoute())).toBe(refusal);
    await aRoute('web', { certificateSecret: 'usable' });
    const tls = { certificateSecret: 'cert' };
    expect(await refusalOf(client.updateRoute({ name: 'web', spec: { tls } }))).toBe(refusal);
    expect((await client.getRoute({ name: 'web' })).generation).toBe(1n);
  });

  it('is refused with the key of another certificate, and the refusal is recorded', async () => {
    await aSecret('cert', { data: { ...first, 'tls.key': second['tls.key'] } });
    expect(await refusalOf(aRoute())).toBe(
      'MISSING_REFERENCE: spec.tls.certificate_secret: tls.key of secret "default/cert" does not belong to the first certificate in tls.crt',
    );
    const { entries } = await secrets.getSecretAuditLog({ name: 'cert' });
    expect(entries[0]).toMatchObject({ operation: 'CreateRoute', result: 'failed_precondition' });
    await aRoute('web', {});
    const tls = { certificateSecret: 'cert' };
    expect(await refusalOf(client.updateRoute({ name: 'web', spec: { tls } }))).toContain(
      'does not belong to the first certificate',
    );
  });

  it('changes in other ways also while the secret cannot be used', async () => {
    await aSecret();
    await aRoute();
    await secrets.updateSecret({ name: 'cert', audiences: ['ci'] });
    const changed = await client.updateRoute({ name: 'web', spec: { hosts: ['c.d'] } });
    expect(changed.spec?.hosts).toEqual(['c.d']);
    expect(findCondition(changed)).toMatch(/^false AudienceNotPermitted/);
  });

  it('reads the values again when the secret changes meanwhile', async () => {
    await aSecret('cert', { data: { ...first, 'tls.key': second['tls.key'] } });
    const readRecord = bed.state.readRecord.bind(bed.state);
    let reads = 0;
    bed.state.readRecord = async (kind, id) => {
      const record = await readRecord(kind, id);
      reads += 1;
      // The second read is that of the update itself.
      if (reads === 1) await secrets.updateSecret({ name: 'cert', data: first });
      return record;
    };
    await aRoute();
    expect(reads).toBe(3);
  });

  it('fails when the secret changes with each read', async () => {
    await aSecret();
    const readRecord = bed.state.readRecord.bind(bed.state);
    bed.state.readRecord = async (kind, id) => {
      const record = await readRecord(kind, id);
      await secrets.deleteSecret({ name: 'cert' });
      await aSecret();
      return record;
    };
    expect(await refusalOf(aRoute())).toBe(
      'TEMPORARILY_UNAVAILABLE: the secret with the certificate of the route was changed again and again while it was read; try again later',
    );
    expect((await client.listRoutes({})).routes).toEqual([]);
  });

  it('is refused by a coordinator without the key-encryption key', async () => {
    await aSecret();
    const { store, clock } = bed;
    const other = await ApiTestBed.open({ store, clock, secretKeys: new SecretKeys(), seed: 5 });
    const tls = { certificateSecret: 'cert' };
    const call = createClient(NetworkService, other.transport).createRoute({
      ...{ name: 'web', spec: { hosts: ['a.b'], rules, tls } },
    });
    expect(await refusalOf(call)).toMatch(
      /^NO_SECRETS_KEY: this coordinator has no key-encryption/,
    );
    await other.stop();
  });
});

describe('the condition CERTIFICATE_USABLE', () => {
  it('is absent without a secret', async () => {
    expect(findCondition(await aRoute('web', {}))).toBe('none');
    const tls = { certificateFile: '/a', keyFile: '/b' };
    expect(findCondition(await aRoute('blog', tls, 'c.d'))).toBe('none');
  });

  it('follows the secret, in GetRoute and ListRoutes', async () => {
    await aSecret();
    await aRoute();
    const read = async (): Promise<string> => {
      const condition = findCondition(await client.getRoute({ name: 'web' }));
      const [listed] = (await client.listRoutes({})).routes;
      expect(listed && findCondition(listed)).toBe(condition);
      return condition;
    };
    expect(await read()).toBe('true');
    await secrets.updateSecret({ name: 'cert', audiences: ['route/default.blog'] });
    expect(await read()).toBe(
      'false AudienceNotPermitted secret "default/cert" does not allow the audience route/default.web; add the audience route/default.web to the secret',
    );
    await secrets.updateSecret({ name: 'cert', audiences, ttl: { seconds: 10n } });
    expect(await read()).toBe('true');
    await bed.clock.advance(10_000);
    expect(await read()).toBe(
      'false SecretExpired secret "default/cert" has expired; update the secret first',
    );
    // As a coordinator of an earlier version may leave behind.
    const { state } = bed;
    await state.commit(state.transaction().delete('secret', 'default/cert'));
    expect(await read()).toBe(
      'false SecretNotFound secret "default/cert" not found; create the secret first',
    );
    await aSecret('cert', { data: { password: Buffer.from('x') } });
    expect(await read()).toBe(
      'false KeyMissing secret "default/cert" needs the keys tls.crt and tls.key for a route; its keys are password',
    );
  });
});

describe('routes with a common host', () => {
  beforeEach(async () => {
    await aSecret('one');
    await aSecret('two', { data: second });
    await aSecret('one', { namespace: 'other' });
  });

  interface Side {
    readonly namespace?: string;
    readonly tls?: { certificateSecret: string } | { certificateFile: string; keyFile: string };
  }
  const files = { certificateFile: '/a', keyFile: '/b' };
  const create = (name: string, { namespace = 'default', tls }: Side, host = 'a.b') => {
    const pathPrefix = `/${name}`;
    const spec = { hosts: [host], rules: [{ ...rules[0], pathPrefix }], ...(tls && { tls }) };
    return client.createRoute({ namespace, name, spec });
  };
  const secret = (name: string) => ({ tls: { certificateSecret: name } });
  const another = 'has another certificate for host a.b already';

  it.each<{ name: string; sides: readonly [Side, Side]; message?: string }>([
    { name: 'may not name two secrets', sides: [secret('one'), secret('two')], message: another },
    {
      name: 'may not name a secret and files',
      sides: [secret('one'), { tls: files }],
      message: another,
    },
    {
      name: 'may not name secrets of one name in two namespaces',
      sides: [secret('one'), { namespace: 'other', ...secret('one') }],
      message: another,
    },
    { name: 'may name the same secret', sides: [secret('one'), secret('one')] },
    { name: 'may name a secret and no certificate, in one namespace', sides: [secret('one'), {}] },
    {
      name: 'may name other files',
      sides: [{ tls: files }, { tls: { certificateFile: '/c', keyFile: '/d' } }],
    },
  ])('$name, in both orders', async ({ sides, message }) => {
    for (const [left, right] of [sides, [...sides].reverse() as [Side, Side]]) {
      const { namespace = 'default' } = left;
      await create('left', left);
      const created = refusalOf(create('right', right));
      await create('late', right, 'c.d');
      const inNamespace = { namespace: right.namespace ?? 'default', name: 'late' };
      const updated = refusalOf(
        client.updateRoute({ ...inNamespace, spec: { hosts: ['c.d', 'a.b'] } }),
      );
      const refused = `WRONG_STATE: route "${namespace}/left" ${message ?? ''}`;
      for (const refusal of [await created, await updated])
        if (message === undefined) expect(refusal).toContain('the call was accepted');
        else expect(refusal).toContain(refused);
      for (const { namespace: of, name } of (await client.listRoutes({})).routes)
        await client.deleteRoute({ namespace: of, name });
    }
  });

  it('keep the certificate of a host from wildcards of other namespaces', async () => {
    const stranger = { namespace: 'other', ...secret('one') };
    await create('web', {}, 'shop.a.b');
    expect(await refusalOf(create('api', stranger, '*.a.b'))).toContain(
      'route "default/web" of another namespace answers host shop.a.b already; set spec.tls in that route, or choose other hosts',
    );
    await create('api', stranger, '*.b');
    await create('deep', stranger, '*.shop.a.b');
    await client.deleteRoute({ name: 'web' });
    await create('wild', stranger, '*.a.b');
    await create('web', {}, 'shop.a.b');
    const wild = { namespace: 'other', name: 'wild' };
    await client.updateRoute({ ...wild, spec: { redirectToHttps: true } });
  });

  it('may replace the files of a route whose host others share', async () => {
    await create('web', { tls: files });
    await create('plain', { namespace: 'other' });
    await client.updateRoute({
      ...{ name: 'web', spec: secret('one'), updateMask: { paths: ['tls'] } },
    });
  });

  it('keep the certificate of a host from other namespaces, whose routes may join later', async () => {
    const stranger = { namespace: 'other', ...secret('one') };
    await create('web', {});
    const refused =
      'route "default/web" of another namespace answers host a.b already; take the host out of that route first, or choose another host';
    expect(await refusalOf(create('api', stranger))).toContain(refused);
    await create('api', stranger, 'c.d');
    const api = { namespace: 'other', name: 'api' };
    const hosts = { ...api, spec: { hosts: ['a.b', 'c.d'] } };
    expect(await refusalOf(client.updateRoute(hosts))).toContain(refused);
    await client.deleteRoute({ name: 'web' });
    await client.updateRoute(hosts);
    await create('web', {});
    // The route may still change, because the host and the certificate are not new.
    await client.updateRoute({ ...api, spec: { redirectToHttps: true } });
    await aSecret('three', { namespace: 'other' });
    await client.updateRoute({ ...api, spec: { tls: { certificateSecret: 'three' } } });
  });

  it('are compared by all hosts, and those without hosts with each other', async () => {
    const every = (name: string, side: Side) => {
      const spec = { rules: [{ ...rules[0], pathPrefix: `/${name}` }], ...side };
      return client.createRoute({ name, spec });
    };
    await every('left', secret('one'));
    await create('web', secret('two'));
    expect(await refusalOf(every('right', secret('two')))).toContain(
      'has another certificate for every host already',
    );
    await every('right', secret('one'));
  });
});

import { createClient, type Client } from '@connectrpc/connect';
import fc from 'fast-check';
import {
  NetworkService,
  createSecretsClient,
  fromConnectError,
  type SecretsClient,
} from '@cloudless/api';
import { toValueKeyId } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { createCertificate, type CertificateData } from '../testing/certificate-pairs.js';
import { SecretKeys } from './secret-keys.js';
import { StoredSecretValues } from './secret-values.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const anAudience = ['workload/*'];

describe('secrets', () => {
  let bed: ApiTestBed;
  let client: SecretsClient;
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    client = createSecretsClient(bed.transport);
  });
  afterEach(() => bed.close());

  const aSecret = (name = 'db', data: Record<string, Uint8Array> = { password: bytes('s3cret') }) =>
    client.createSecret({ name, data, audiences: anAudience });
  const read = async (name: string, version = 0) => {
    const values = new StoredSecretValues({ ...bed, keys: bed.secretKeys });
    const { data } = await values.read(bed.state.view(), 'default', name, version);
    return Object.fromEntries(
      [...data].map(([key, value]) => [key, Buffer.from(value).toString()]),
    );
  };

  it('are created without values in the answer, with one audit record, and read again', async () => {
    const secret = await aSecret();
    expect(secret).toMatchObject({
      ...{ namespace: 'default', name: 'db', generation: 1n, version: 1, audiences: anAudience },
      versions: [{ version: 1, sizes: { password: 6 } }],
    });
    expect((await client.getSecret({ name: 'db' })).secret).toEqual(secret);
    expect((await client.listSecrets({})).secrets).toEqual([secret]);
    expect(bed.auditRecords).toEqual(['CreateSecret ok']);
    expect(bed.events('SecretCreated')[0]).toMatchObject({
      namespace: 'default',
      message: 'secret default/db was created',
    });
    expect(await read('db')).toEqual({ password: 's3cret' });
  });

  it('are created at the same time in one namespace', async () => {
    const names = Array.from({ length: 50 }, (_, index) => `s-${index}`);
    await Promise.all(names.map((name) => aSecret(name)));
    expect((await client.listSecrets({ pageSize: 100 })).secrets).toHaveLength(50);
  });

  it('are created once for a request id, and once for a name', async () => {
    const request = { name: 'a', data: { k: bytes('1') }, audiences: anAudience, requestId: 'r1' };
    const first = await client.createSecret(request);
    expect(await client.createSecret(request)).toEqual(first);
    await expect(client.createSecret({ ...request, data: { k: bytes('2') } })).rejects.toThrow(
      'was used for another CreateSecret',
    );
    await expect(aSecret('a')).rejects.toThrow(
      '[already_exists] secret "default/a" already exists; update it, or choose another name',
    );
  });

  it.each([
    { name: 'no values', fields: { data: {} }, message: 'data' },
    { name: 'no audience', fields: { audiences: [] }, message: 'audiences' },
    {
      name: 'too many bytes',
      fields: { data: { k: new Uint8Array(1_000_000) } },
      message: '1000001 bytes of keys and values; the limit is 1000000',
    },
    { name: 'a name with upper case', fields: { name: 'DB' }, message: 'name' },
    { name: 'a key with a slash', fields: { data: { 'a/b': bytes('1') } }, message: 'data' },
    {
      name: 'an end in the past',
      fields: { expiresAt: { seconds: 1n } },
      message: 'expires_at: must be in the future',
    },
    {
      name: 'two ends',
      fields: { ttl: { seconds: 60n }, expiresAt: { seconds: 9_999_999_999n } },
      message: 'ttl: cannot be combined',
    },
  ])('with $name are refused', async ({ fields, message }) => {
    const request = { name: 'db', data: { k: bytes('1') }, audiences: anAudience, ...fields };
    await expect(client.createSecret(request)).rejects.toThrow(message);
  });

  it('of the largest size are stored and updated', async () => {
    await aSecret('big', { k: new Uint8Array(999_999).fill(1) });
    await client.updateSecret({ name: 'big', data: { k: new Uint8Array(999_999).fill(2) } });
    expect((await read('big'))['k']).toHaveLength(999_999);
  });

  it('get a new version with other values, and none with the same', async () => {
    await aSecret('db', { user: bytes('app'), password: bytes('one') });
    const changed = await client.updateSecret({
      ...{ name: 'db', data: { password: bytes('two') } },
      ...{ keepOtherKeys: true, expectedGeneration: 1n },
    });
    expect(changed).toMatchObject({ generation: 2n, version: 2 });
    expect(await read('db')).toEqual({ user: 'app', password: 'two' });
    expect(await read('db', 1)).toEqual({ user: 'app', password: 'one' });
    const again = { user: bytes('app'), password: bytes('two') };
    expect(await client.updateSecret({ name: 'db', data: again })).toEqual(changed);
    await expect(
      client.updateSecret({ name: 'db', data: again, expectedGeneration: 1n }),
    ).rejects.toThrow('is at generation 2, not 1');
    expect(bed.auditRecords.slice(1)).toEqual([
      'UpdateSecret ok',
      'UpdateSecret unchanged',
      'UpdateSecret aborted',
    ]);
  });

  it('change the fields of the mask, and only these', async () => {
    await client.createSecret({
      ...{ name: 'db', data: { k: bytes('1') }, audiences: anAudience },
      ...{ labels: { team: 'a', tier: 'b' }, ttl: { seconds: 60n } },
    });
    const labelled = await client.updateSecret({ name: 'db', labels: { team: 'c' } });
    expect(labelled.labels).toEqual({ team: 'c' });
    const dryRun = { name: 'db', data: { k: bytes('2') }, dryRun: true };
    expect(await client.updateSecret(dryRun)).toMatchObject({ version: 2 });
    const replaced = await client.updateSecret({
      ...{ name: 'db', labels: { team: 'd' } },
      updateMask: { paths: ['labels', 'expires_at'] },
    });
    expect(replaced).toMatchObject({ labels: { team: 'd' }, version: 1, generation: 3n });
    expect(replaced.expiresAt).toBeUndefined();
    await expect(
      client.updateSecret({ name: 'db', updateMask: { paths: ['name'] } }),
    ).rejects.toThrow('"name" is not a field that can change');
    await expect(
      client.updateSecret({
        name: 'db',
        data: { k: bytes('2') },
        updateMask: { paths: ['labels'] },
      }),
    ).rejects.toThrow('data: has a value and is not in update_mask');
  });

  it('that are immutable keep their values', async () => {
    await aSecret();
    await client.updateSecret({ name: 'db', immutable: true });
    await expect(client.updateSecret({ name: 'db', data: { k: bytes('2') } })).rejects.toThrow(
      '[failed_precondition] secret "default/db" is immutable',
    );
    await expect(
      client.updateSecret({ name: 'db', updateMask: { paths: ['immutable'] } }),
    ).rejects.toThrow('immutable and stays so');
    expect(await client.updateSecret({ name: 'db', labels: { a: 'b' } })).toMatchObject({
      generation: 3n,
    });
  });

  it('that have expired give no values, until they get a later end', async () => {
    await client.createSecret({
      ...{ name: 'db', data: { k: bytes('1') }, audiences: anAudience, ttl: { seconds: 60n } },
    });
    expect(await read('db')).toEqual({ k: '1' });
    await bed.clock.advance(60_000);
    await expect(read('db')).rejects.toMatchObject({ reason: 'SECRET_EXPIRED' });
    await client.updateSecret({ name: 'db', ttl: { seconds: 60n } });
    expect(await read('db')).toEqual({ k: '1' });
  });

  it('keep their newest 10 versions', async () => {
    const { uid } = await aSecret();
    for (let count = 2; count <= 12; count += 1)
      await client.updateSecret({ name: 'db', data: { k: bytes(String(count)) } });
    const { secret } = await client.getSecret({ name: 'db' });
    expect(secret?.versions.map(({ version }) => version)).toEqual([
      3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
    ]);
    const get = (version: number) =>
      bed.state.readRecord('secretvalue', toValueKeyId(uid, version));
    expect(await get(2)).toBeUndefined();
    expect(await get(3)).toBeDefined();
    await expect(read('db', 2)).rejects.toMatchObject({ reason: 'SECRET_NOT_FOUND' });
  });

  it('are deleted with their values', async () => {
    const { uid } = await aSecret();
    await client.deleteSecret({ name: 'db' });
    expect(await bed.state.readRecord('secretvalue', toValueKeyId(uid, 1))).toBeUndefined();
    await expect(client.getSecret({ name: 'db' })).rejects.toThrow(
      '[not_found] secret "default/db" not found',
    );
    await expect(client.deleteSecret({ name: 'db' })).rejects.toThrow('not found');
  });

  it('are listed by namespace, labels and prefix, in pages', async () => {
    for (const [namespace, name] of [
      ['a', 'x-1'],
      ['a', 'x-2'],
      ['a', 'y-1'],
      ['b', 'x-1'],
    ] as const)
      await client.createSecret({
        ...{ namespace, name, data: { k: bytes('1') }, audiences: anAudience },
        labels: { app: name },
      });
    const list = async (request: Parameters<SecretsClient['listSecrets']>[0]) =>
      (await client.listSecrets(request)).secrets.map(
        (secret) => `${secret.namespace}/${secret.name}`,
      );
    expect(await list({})).toEqual(['a/x-1', 'a/x-2', 'a/y-1', 'b/x-1']);
    expect(await list({ namespace: 'a', namePrefix: 'x' })).toEqual(['a/x-1', 'a/x-2']);
    expect(await list({ labelSelector: 'app=x-1' })).toEqual(['a/x-1', 'b/x-1']);
    const first = await client.listSecrets({ pageSize: 3 });
    expect(await list({ pageSize: 3, pageToken: first.nextPageToken })).toEqual(['b/x-1']);
  });
});

describe('secrets that routes use', () => {
  let bed: ApiTestBed;
  let client: SecretsClient;
  let routes: Client<typeof NetworkService>;
  let pair: CertificateData;
  let other: CertificateData;
  const name = 'cert';
  const rules = [{ service: 'web', port: '80' }];
  const tls = { certificateSecret: name };

  beforeAll(async () => {
    [pair, other] = await Promise.all([createCertificate(), createCertificate()]);
  });
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    client = createSecretsClient(bed.transport);
    routes = createClient(NetworkService, bed.transport);
    await client.createSecret({ name, data: pair, audiences: ['route/*', 'workload/*'] });
  });
  afterEach(() => bed.stop());

  const aRoute = (route: string) =>
    routes.createRoute({ name: route, spec: { hosts: [`${route}.b`], rules, tls } });

  it('are deleted only when no route uses them, and the refusal names the routes', async () => {
    for (const route of ['g', 'f', 'e', 'd', 'c', 'b', 'a']) await aRoute(route);
    await expect(client.deleteSecret({ name })).rejects.toThrow(
      '[failed_precondition] secret "default/cert" is used by routes a, b, c, d, e and 2 others; name another secret in the routes, or remove their tls, then delete the secret',
    );
    for (const route of ['b', 'c', 'd', 'e', 'f', 'g']) await routes.deleteRoute({ name: route });
    const spec = { command: ['serve'], replicas: 1, secrets: [{ name }] };
    await bed.client.createWorkload({ name: 'web', spec });
    const refusal = await client.deleteSecret({ name }).catch(fromConnectError);
    expect(refusal).toMatchObject({
      reason: 'STILL_USED',
      message:
        'secret "default/cert" is used by workload web and route a; remove the secret from the workloads and wait for their rollouts, name another secret in the routes, or remove their tls, then delete the secret',
    });
    const updateMask = { paths: ['tls'] };
    await routes.updateRoute({ name: 'a', updateMask });
    await expect(client.deleteSecret({ name })).rejects.toThrow('is used by workload web; remove');
  });

  it('are not kept by routes of other namespaces', async () => {
    const namespace = 'other';
    await client.createSecret({ namespace, name, data: pair, audiences: ['route/*'] });
    await routes.createRoute({ namespace, name: 'a', spec: { hosts: ['a.b'], rules, tls } });
    expect((await client.getSecret({ name })).secret?.usedByRoutes).toEqual([]);
    await client.deleteSecret({ name });
    await expect(client.deleteSecret({ namespace, name })).rejects.toThrow('used by route a;');
  });

  it('refuse values that are no certificate with its key, also in a dry run', async () => {
    await aRoute('a');
    await aRoute('b');
    const refused = (data: Record<string, Uint8Array>, fields: object = {}) =>
      client.updateSecret({ name, data, ...fields }).catch((reason: unknown) => String(reason));
    const users = '; routes a, b of the namespace would have no certificate';
    for (const dryRun of [false, true]) {
      expect(await refused({ k: bytes('s3cret') }, { dryRun })).toContain(
        `[invalid_argument] data: secret "default/cert" needs the keys tls.crt and tls.key for a route; its keys are k${users}`,
      );
      const key = { 'tls.key': other['tls.key'] };
      expect(await refused(key, { dryRun, keepOtherKeys: true })).toContain(
        `[invalid_argument] data: tls.key of secret "default/cert" does not belong to the first certificate in tls.crt${users}`,
      );
    }
    const updated = await client.updateSecret({ name, data: other });
    expect(updated).toMatchObject({ version: 2, usedByRoutes: ['a', 'b'] });
    await routes.deleteRoute({ name: 'a' });
    await routes.deleteRoute({ name: 'b' });
    await client.updateSecret({ name, data: { k: bytes('1') } });
  });

  it('may lose the audience of a route, as of a workload', async () => {
    await aRoute('a');
    expect(await client.updateSecret({ name, audiences: ['ci'] })).toMatchObject({
      ...{ audiences: ['ci'], usedByRoutes: ['a'] },
    });
  });

  it('never vanish, nor lose their certificate, while calls change them and routes at once', async () => {
    const unfit = { k: bytes('1') };
    const calls: Readonly<Record<string, () => Promise<unknown>>> = {
      deleteSecret: () => client.deleteSecret({ name }),
      createSecret: () => client.createSecret({ name, data: pair, audiences: ['route/*'] }),
      updateSecret: () => client.updateSecret({ name, data: unfit }),
      repairSecret: () => client.updateSecret({ name, data: other }),
      createRoute: () => aRoute('a'),
      createOther: () => aRoute('b'),
      updateRoute: () => routes.updateRoute({ name: 'a', spec: { tls } }),
      deleteRoute: () => routes.deleteRoute({ name: 'a' }),
    };
    const { state } = bed;
    const commit = state.commit.bind(state);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.constantFrom(...Object.keys(calls)), { minLength: 1, maxLength: 6 }),
        fc.scheduler(),
        async (names, scheduler) => {
          const { routes: left } = await routes.listRoutes({});
          for (const route of left) await routes.deleteRoute({ name: route.name });
          await calls['deleteSecret']?.().catch(() => undefined);
          await calls['createSecret']?.();
          state.commit = (transaction) =>
            scheduler.schedule(Promise.resolve()).then(() => commit(transaction));
          let isDone = false;
          const all = Promise.allSettled(
            ['createOther', ...names].map(async (each) => calls[each]?.()),
          ).then(() => {
            isDone = true;
          });
          while (!isDone) {
            if (scheduler.count() > 0) await scheduler.waitOne();
            await bed.clock.advance(50);
          }
          await all;
          state.commit = commit;
          const view = state.view();
          const users = (await routes.listRoutes({})).routes;
          if (users.length > 0) {
            expect(view.secret('default/cert')).toBeDefined();
            const sizes = view.secret('default/cert')?.value.versions.at(-1)?.sizes ?? {};
            expect(Object.keys(sizes).sort()).toEqual(['tls.crt', 'tls.key']);
          }
        },
      ),
      { numRuns: 100 },
    );
  });
});

describe('secrets without the key-encryption key', () => {
  it('are refused with what to do', async () => {
    const bed = await ApiTestBed.open({ secretKeys: new SecretKeys() });
    const client = createSecretsClient(bed.transport);
    const refusal =
      '[failed_precondition] this coordinator has no key-encryption key; start it with';
    for (const call of [
      client.createSecret({ name: 'a', data: { k: bytes('1') }, audiences: anAudience }),
      client.getSecret({ name: 'a' }),
      client.listSecrets({}),
      client.updateSecret({ name: 'a' }),
      client.deleteSecret({ name: 'a' }),
    ])
      await expect(call).rejects.toThrow(refusal);
    await bed.close();
  });
});

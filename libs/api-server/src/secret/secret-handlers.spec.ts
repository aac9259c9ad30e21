import { createSecretsClient, type SecretsClient } from '@cloudless/api';
import { toValueKeyId } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';
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

import {
  WatchConfigsResponse_Kind as WatchKind,
  createConfigsClient,
  type ConfigsClient,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

const text = (value: string): Uint8Array => new TextEncoder().encode(value);

describe('configs', () => {
  let bed: ApiTestBed;
  let client: ConfigsClient;
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    client = createConfigsClient(bed.transport);
  });
  afterEach(() => bed.stop());

  const createConfig = (fields: object = {}) =>
    client.createConfig({ name: 'web', data: { 'app.conf': text('a=1') }, ...fields });

  it('are created with version 1, one audit record and one event', async () => {
    const config = await createConfig({ labels: { app: 'web' } });
    expect(config).toMatchObject({
      ...{ namespace: 'default', name: 'web', generation: 1n, version: 1, data: {} },
      versions: [{ version: 1, sizes: { 'app.conf': 3 } }],
    });
    expect(bed.auditRecords).toEqual(['CreateConfig ok']);
    expect(bed.events('ConfigCreated')[0]?.message).toBe('config default/web was created');
  });

  it('are created once for a request id, and once for a name', async () => {
    const first = await createConfig({ requestId: 'r1' });
    expect(await createConfig({ requestId: 'r1' })).toEqual(first);
    await expect(createConfig()).rejects.toThrow(
      '[already_exists] config "default/web" already exists; update it, or choose another name',
    );
  });

  it('return the values of the newest and of older versions', async () => {
    await createConfig();
    await client.updateConfig({ name: 'web', data: { 'app.conf': text('a=2') } });
    const read = async (version: number) =>
      Buffer.from((await client.getConfig({ name: 'web', version })).data['app.conf'] ?? []);
    expect([String(await read(0)), String(await read(1))]).toEqual(['a=2', 'a=1']);
    await expect(client.getConfig({ name: 'web', version: 3 })).rejects.toThrow(
      '[not_found] config "default/web" has no version 3; the kept versions are 1, 2',
    );
  });

  it('have no values in views, lists and watches', async () => {
    await createConfig();
    const { uid } = await client.getConfig({ name: 'web' });
    expect(bed.state.view().config('default/web')?.value.uid).toBe(uid);
    expect([...(await client.listConfigs({})).configs].map(({ data }) => data)).toEqual([{}]);
  });

  it('get a new version only with other values', async () => {
    await createConfig();
    const same = await client.updateConfig({ name: 'web', data: { 'app.conf': text('a=1') } });
    expect(same).toMatchObject({ version: 1, generation: 1n });
    const labelled = await client.updateConfig({ name: 'web', labels: { app: 'web' } });
    expect(labelled).toMatchObject({ version: 1, generation: 2n, labels: { app: 'web' } });
    await expect(
      client.updateConfig({ name: 'web', labels: {}, expectedGeneration: 1n }),
    ).rejects.toThrow('config "default/web" is at generation 2, not 1');
  });

  it('show the next version in a dry run, which changes nothing', async () => {
    await createConfig();
    const data = { 'app.conf': text('a=2') };
    expect(await client.updateConfig({ name: 'web', data, dryRun: true })).toMatchObject({
      version: 2,
    });
    expect(await client.getConfig({ name: 'web' })).toMatchObject({ version: 1, generation: 1n });
  });

  it('keep the newest 10 versions', async () => {
    await createConfig();
    for (let value = 2; value <= 12; value += 1)
      await client.updateConfig({ name: 'web', data: { 'app.conf': text(`a=${value}`) } });
    const { uid, versions } = await client.getConfig({ name: 'web' });
    expect(versions.map(({ version }) => version)).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    expect(await bed.state.readRecord('configvalue', `${uid}/0000000002`)).toBeUndefined();
    expect(await bed.state.readRecord('configvalue', `${uid}/0000000003`)).toBeDefined();
  });

  it('never change again when they are immutable', async () => {
    await createConfig({ immutable: true });
    await expect(
      client.updateConfig({ name: 'web', data: { 'app.conf': text('a=2') } }),
    ).rejects.toThrow('[failed_precondition] config "default/web" is immutable');
    const changed = await client.updateConfig({
      ...{ name: 'web', immutable: false, labels: { a: 'b' } },
      updateMask: { paths: ['immutable', 'labels'] },
    });
    expect(changed).toMatchObject({ immutable: true, labels: { a: 'b' } });
  });

  it.each([
    { data: {}, message: 'data: needs at least one key' },
    { data: { big: new Uint8Array(1_000_001) }, message: 'more than 1000000' },
    { data: { 'a/b': text('') }, message: 'data' },
  ])('refuse values: $message', async ({ data, message }) => {
    await expect(createConfig({ data })).rejects.toThrow(message);
  });

  it('are deleted with their values', async () => {
    const { uid } = await createConfig();
    await client.deleteConfig({ name: 'web' });
    expect(await bed.state.readRecord('configvalue', `${uid}/0000000001`)).toBeUndefined();
    await expect(client.getConfig({ name: 'web' })).rejects.toThrow(
      '[not_found] config "default/web" not found',
    );
  });

  it('are sent by watches: the current state, then changes and deletions', async () => {
    await createConfig();
    const items: string[] = [];
    const stopping = new AbortController();
    const watching = (async () => {
      for await (const { kind, config } of client.watchConfigs({}, { signal: stopping.signal }))
        if (kind !== WatchKind.BOOKMARK)
          items.push(`${WatchKind[kind]} ${config?.name ?? ''} ${config?.version ?? ''}`.trim());
    })().catch(() => undefined);
    await bed.settle();
    await client.updateConfig({ name: 'web', data: { 'app.conf': text('a=2') } });
    await bed.settle();
    await client.deleteConfig({ name: 'web' });
    await bed.settle();
    stopping.abort();
    await watching;
    expect(items).toEqual(['PUT web 1', 'SYNCED', 'PUT web 2', 'DELETED web 0']);
  });
});

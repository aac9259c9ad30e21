import { createClient } from '@connectrpc/connect';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  ConfigsService,
  Reload_Mode as Reload,
  ReplicaFilesVersion_Kind as Kind,
  SecretsService,
  type GetReplicaFilesResponse,
} from '@cloudless/api';
import type { GetReplicaFilesRequestSchema, WorkloadSpecSchema } from '@cloudless/api';
import { ControlRecordSchema } from '@cloudless/api/store';
import { toValueKeyId } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';

const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);
const toText = (value: Uint8Array | undefined): string => Buffer.from(value ?? []).toString();

describe('files of replicas', () => {
  let bed: ApiTestBed;
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    await secrets().createSecret({
      name: 'db',
      data: { user: bytes('u'), password: bytes('p1') },
      audiences: ['workload/*'],
    });
    const tls = { name: 'tls', data: { k: bytes('1') }, audiences: ['workload/*'] };
    await secrets().createSecret(tls);
    await configs().createConfig({ name: 'web', data: { 'a.conf': bytes('a=1') } });
  });
  afterEach(() => bed.stop());

  const secrets = () => createClient(SecretsService, bed.transport);
  const configs = () => createClient(ConfigsService, bed.transport);
  const createWorkload = (spec: MessageInitShape<typeof WorkloadSpecSchema>, name = 'web') =>
    bed.client.createWorkload({ name, spec: { command: ['serve'], replicas: 1, ...spec } });
  const getTemplate = (uid: string, version: number) =>
    bed.state.view().version(uid, version)?.template;

  /** A workload with a replica on node-1, by the id `<uid>-0`. */
  async function run(spec: MessageInitShape<typeof WorkloadSpecSchema>): Promise<string> {
    const { uid } = await createWorkload(spec);
    await bed.putReplica(`${uid}-0`);
    return `${uid}-0`;
  }

  async function fetch(
    replicaId: string,
    fields: MessageInitShape<typeof GetReplicaFilesRequestSchema> = {},
  ): Promise<GetReplicaFilesResponse[]> {
    const responses: GetReplicaFilesResponse[] = [];
    const request = { nodeId: 'node-1', replicaId, ...fields };
    for await (const response of bed.client.getReplicaFiles(request)) responses.push(response);
    return responses;
  }

  describe('references in a new spec', () => {
    it.each([
      {
        spec: { secrets: [{ name: 'none' }] },
        text: 'spec.secrets[0].name: secret "default/none" not found',
      },
      {
        spec: { configs: [{ name: 'none' }] },
        text: 'spec.configs[0].name: config "default/none" not found',
      },
      {
        spec: { configs: [{ name: 'web', version: 2 }] },
        text: 'spec.configs[0].version: config "default/web" has no version 2; the kept versions are 1',
      },
      {
        spec: { secrets: [{ name: 'db', keys: [{ key: 'x' }] }] },
        text: 'spec.secrets[0].keys[0].key: version 1 of secret "default/db" has no key "x"; its keys are password, user',
      },
      {
        spec: { secrets: [{ name: 'db', env: 'DB' }] },
        text: 'spec.secrets[0].env: version 1 of secret "default/db" has 2 keys',
      },
      {
        spec: { secrets: [{ name: 'db', audience: 'other' }] },
        text: 'spec.secrets[0].audience: secret "default/db" does not allow the audience other',
      },
      {
        spec: { image: 'web', command: [], imagePull: { secret: 'db' } },
        text: 'spec.image_pull.secret: secret "default/db" needs the keys username and password',
      },
    ])('are refused: $text', async ({ spec, text }) => {
      await expect(createWorkload(spec)).rejects.toThrow(`[failed_precondition] ${text}`);
      await expect(
        bed.client.planWorkload({ name: 'web', spec: { command: ['a'], ...spec } }),
      ).rejects.toThrow(text);
    });

    it('are refused for an expired secret, and scaling needs no check', async () => {
      await createWorkload({ secrets: [{ name: 'db' }] });
      await secrets().updateSecret({ name: 'db', ttl: { seconds: 10n } });
      await bed.clock.advance(11_000);
      await bed.client.scaleWorkload({ name: 'web', replicas: 2 });
      await expect(
        bed.client.updateWorkload({ name: 'web', spec: { env: { A: '1' } } }),
      ).rejects.toThrow('spec.secrets[0].name: secret "default/db" has expired');
    });
  });

  describe('versions of workloads', () => {
    it('keep the newest versions of their secrets and configs, apart from those without restart', async () => {
      const reload = { mode: Reload.SIGNAL };
      const { uid } = await createWorkload({
        secrets: [{ name: 'db' }],
        configs: [{ name: 'web', reload }],
      });
      expect(getTemplate(uid, 1)).toMatchObject({
        secrets: [{ name: 'db', version: 1 }],
        configs: [{ name: 'web', version: 0 }],
      });
      expect(bed.state.view().workload(uid)?.value.spec?.secrets[0]?.version).toBe(0);
      await secrets().updateSecret({ name: 'db', data: { password: bytes('p2') } });
      // An update of the spec that changes nothing makes no version.
      await bed.client.updateWorkload({ name: 'web', spec: { command: ['serve'] } });
      expect(bed.state.view().workload(uid)?.value.version).toBe(1);
      await bed.client.updateWorkload({ name: 'web', spec: { env: { A: '1' } } });
      expect(getTemplate(uid, 2)?.secrets[0]?.version).toBe(2);
    });

    it('get their former versions of secrets by an undo, which names them in the spec', async () => {
      const { uid } = await createWorkload({ configs: [{ name: 'web' }] });
      await configs().updateConfig({ name: 'web', data: { 'a.conf': bytes('a=2') } });
      await bed.client.updateWorkload({ name: 'web', spec: { env: { A: '1' } } });
      await bed.client.undoRollout({ name: 'web', toVersion: 1 });
      const view = bed.state.view();
      expect(view.workload(uid)?.value.spec?.configs[0]?.version).toBe(1);
      expect(view.version(uid, 3)).toMatchObject({ sameAs: 1, cause: 'undo to version 1' });
      expect(bed.events('WorkloadUpdated').at(-1)?.message).toContain(
        'undo to version 1); config web stays at version 1',
      );
    });

    it('never get the values of a secret or config that was deleted and created again', async () => {
      const { uid } = await createWorkload({
        secrets: [{ name: 'db' }],
        configs: [{ name: 'web' }],
      });
      const spec = { secrets: [], configs: [] };
      const updateMask = { paths: ['secrets', 'configs'] };
      await bed.client.updateWorkload({ name: 'web', spec, updateMask });
      await bed.state.commit(
        bed.state
          .transaction()
          .put(
            'control',
            uid,
            create(ControlRecordSchema, { uid, nextSequence: 1n, activeVersion: 2 }),
          ),
      );
      await secrets().deleteSecret({ name: 'db' });
      await configs().deleteConfig({ name: 'web' });
      const data = { password: bytes('other'), 'a.conf': bytes('other') };
      const secret = await secrets().createSecret({ name: 'db', data, audiences: ['workload/*'] });
      const config = await configs().createConfig({ name: 'web', data });
      expect([secret.version, config.version]).toEqual([2, 2]);
      await expect(bed.client.undoRollout({ name: 'web', toVersion: 1 })).rejects.toThrow(
        'secret "default/db" has no version 1',
      );
      expect(bed.state.view().workload(uid)?.value.version).toBe(2);
    });

    it('follow later versions after an undo to a version with the newest values', async () => {
      const { uid } = await createWorkload({ configs: [{ name: 'web' }] });
      await bed.client.updateWorkload({ name: 'web', spec: { env: { A: '1' } } });
      await bed.client.undoRollout({ name: 'web', toVersion: 1 });
      expect(bed.state.view().workload(uid)?.value.spec?.configs[0]?.version).toBe(0);
    });
  });

  describe('deletion and changes', () => {
    it('are refused while a workload uses the config, which shows its users', async () => {
      await createWorkload({ configs: [{ name: 'web' }] });
      await expect(configs().deleteConfig({ name: 'web' })).rejects.toThrow(
        '[failed_precondition] config "default/web" is used by workload web',
      );
      const data = { 'a.conf': bytes('a=2') };
      const { usedBy } = await configs().updateConfig({ name: 'web', data, dryRun: true });
      expect(usedBy).toMatchObject([{ namespace: 'default', name: 'web', effect: 1, version: 1 }]);
    });
  });

  describe('GetReplicaFiles', () => {
    it('sends the values of the named keys to the node of the replica', async () => {
      const replicaId = await run({
        secrets: [{ name: 'db', keys: [{ key: 'password', file: 'pw' }] }],
        configs: [{ name: 'web' }],
      });
      const [secret, config] = await fetch(replicaId);
      expect(secret?.version).toMatchObject({ kind: Kind.SECRET, name: 'db', version: 1 });
      expect(Object.keys(secret?.data ?? {})).toEqual(['password']);
      expect(toText(secret?.data['password'])).toBe('p1');
      expect(config?.version).toMatchObject({ kind: Kind.CONFIG, name: 'web', version: 1 });
      expect(toText(config?.data['a.conf'])).toBe('a=1');
    });

    it('sends the version of the workload with RESTART, the newest with SIGNAL, once', async () => {
      const replicaId = await run({
        secrets: [{ name: 'db' }],
        configs: [{ name: 'web', reload: { mode: Reload.NONE } }],
      });
      await secrets().updateSecret({ name: 'db', data: { password: bytes('p2') } });
      await configs().updateConfig({ name: 'web', data: { 'a.conf': bytes('a=2') } });
      const responses = await fetch(replicaId);
      expect(responses.map(({ version }) => version?.version)).toEqual([1, 2]);
      const known = responses.flatMap(({ version }) => version ?? []);
      expect((await fetch(replicaId, { known })).map(({ unchanged }) => unchanged)).toEqual([
        true,
        true,
      ]);
    });

    it.each<{ name: string; fields: { nodeId?: string; replicaId?: string }; move?: object }>([
      { name: 'another node', fields: { nodeId: 'node-2' } },
      { name: 'an unknown replica', fields: { replicaId: 'none' } },
      { name: 'the node from which the replica has moved', fields: {}, move: { nodeId: 'node-2' } },
      { name: 'a replica that has ended', fields: {}, move: { phase: 6 } },
      { name: 'a replica that is lost', fields: {}, move: { lost: true } },
    ])('refuses $name, with an event', async ({ fields, move }) => {
      const replicaId = await run({ secrets: [{ name: 'db' }] });
      if (move !== undefined) await bed.updateReplica(replicaId, move);
      await expect(fetch(replicaId, fields)).rejects.toThrow(
        /^\[permission_denied\] replica ".*" is not assigned to node "node-/,
      );
      expect(bed.events('ReplicaFilesRefused')).toHaveLength(1);
    });

    it('is recorded for each secret before the first value, with the versions that are sent', async () => {
      const replicaId = await run({
        secrets: [{ name: 'db' }, { name: 'tls', reload: { mode: Reload.NONE } }],
        configs: [{ name: 'web' }],
      });
      await secrets().updateSecret({ name: 'tls', data: { k: bytes('2') } });
      const stream = bed.client.getReplicaFiles({ nodeId: 'node-1', replicaId });
      expect(bed.events('GetReplicaFiles')).toEqual([]);
      const { value } = await stream[Symbol.asyncIterator]().next();
      expect((value as GetReplicaFilesResponse).version?.name).toBe('db');
      expect(bed.events('GetReplicaFiles')).toMatchObject([
        {
          ...{ namespace: 'default', workload: 'web', nodeId: 'node-1', replicaId },
          audit: { result: 'ok', secrets: ['default/db', 'default/tls'], secretVersions: [1, 2] },
        },
      ]);
      expect((await secrets().getSecretAuditLog({ name: 'tls' })).entries[0]).toMatchObject({
        ...{ operation: 'GetReplicaFiles', result: 'ok', version: 2, replicaId, tokenId: '' },
      });
    });

    it('is recorded without values that the agent has already, and merged for the same versions', async () => {
      const replicaId = await run({ secrets: [{ name: 'db' }, { name: 'tls' }] });
      const responses = await fetch(replicaId);
      const known = responses.flatMap(({ version }) => version ?? []);
      await fetch(replicaId, { known });
      await fetch(replicaId, { known: known.slice(0, 1) });
      const list = () => bed.events('GetReplicaFiles').map(({ audit }) => audit?.secrets.join());
      expect(list()).toEqual(['default/db,default/tls', 'default/tls']);
      for (let count = 1; count < 15; count += 1) await fetch(replicaId);
      expect(list()).toHaveLength(11);
      await bed.clock.advance(10_000);
      await fetch(replicaId);
      expect(bed.events('GetReplicaFiles').at(-1)?.count).toBe(6);
    });

    it('sends no value when the record cannot be committed', async () => {
      const replicaId = await run({ secrets: [{ name: 'db' }] });
      bed.state.commitObserved = () => Promise.reject(new Error('the store is full'));
      await expect(fetch(replicaId)).rejects.toThrow('[internal]');
    });

    it('is recorded for the secret that is refused, or whose values are lost', async () => {
      const replicaId = await run({ secrets: [{ name: 'db' }, { name: 'tls' }] });
      const list = async (name: string) =>
        (await secrets().getSecretAuditLog({ name, oldestFirst: true })).entries
          .filter(({ operation }) => operation === 'GetReplicaFiles')
          .map(({ result, version }) => `${result} ${version}`);
      await secrets().updateSecret({ name: 'tls', audiences: ['workload/default.other'] });
      await expect(fetch(replicaId)).rejects.toThrow('does not allow the audience');
      expect([await list('db'), await list('tls')]).toEqual([[], ['failed_precondition 0']]);
      await secrets().updateSecret({ name: 'tls', audiences: ['workload/*'] });
      const { uid = '' } = bed.state.view().secret('default/tls')?.value ?? {};
      const lost = bed.state.transaction().delete('secretvalue', toValueKeyId(uid, 1));
      await bed.state.commit(lost);
      await expect(fetch(replicaId)).rejects.toThrow('version 1 of secret "default/tls"');
      expect(await list('db')).toEqual(['ok 1']);
      expect(await list('tls')).toEqual(['failed_precondition 0', 'ok 1', 'not_found 0']);
      await expect(fetch(replicaId, { nodeId: 'node-2' })).rejects.toThrow('not assigned');
      expect(await list('db')).toEqual(['ok 1', 'permission_denied 0']);
    });

    it('refuses a secret that no longer allows the workload', async () => {
      const replicaId = await run({ secrets: [{ name: 'db' }] });
      await secrets().updateSecret({ name: 'db', audiences: ['workload/default.other'] });
      await expect(fetch(replicaId)).rejects.toThrow(
        'does not allow the audience workload/default.web',
      );
    });
  });

  it('notifies the agent of new versions that replicas get without a restart', async () => {
    const replicaId = await run({
      secrets: [{ name: 'db', reload: { mode: Reload.SIGNAL } }],
      configs: [{ name: 'web' }],
    });
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory([]);
    await bed.settle();
    const listNotified = () =>
      agent.received.flatMap(({ message }) =>
        message.case === 'filesChanged' ? message.value.replicaIds : [],
      );
    await configs().updateConfig({ name: 'web', data: { 'a.conf': bytes('a=2') } });
    await bed.settle();
    expect(listNotified()).toEqual([]);
    await bed.updateReplica(replicaId, { phase: 3 });
    await secrets().updateSecret({ name: 'db', data: { password: bytes('p2') } });
    await bed.settle();
    expect(listNotified()).toEqual([replicaId]);
  });
});

import fc from 'fast-check';
import {
  createSecretsClient,
  type RotateMasterKeyResponse,
  type SecretsClient,
} from '@cloudless/api';
import { MasterKeyRecord_State as State } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { decodeRecord, toValueKeyId } from '@cloudless/cluster-state';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { ApiTestBed, createTestSecretKeys } from '../testing/api-test-bed.js';
import { planMasterKeyStep } from './master-key-steps.js';
import { SecretKeys } from './secret-keys.js';
import { StoredSecretValues } from './secret-values.js';

const audiences = ['workload/*'];
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** The values that the calls of a test have stored in the newest versions, by name of the secret. */
type Model = Map<string, string>;

/** A store whose process ends at a commit of the rotation: nothing reaches the store after that. */
class CrashingStore {
  isCrashed = false;
  private commits = 0;

  /**
   * @param crashAt - Number of the commit of the rotation at which the process ends, from 1. 0: never.
   * @param isLost - True: the commit does not reach the store. False: only its answer is lost.
   */
  constructor(
    private readonly inner: StateStore,
    private readonly crashAt: number,
    private readonly isLost: boolean,
  ) {}

  get store(): StateStore {
    const { inner } = this;
    return {
      ...{ watch: (request) => inner.watch(request), revision: () => inner.revision() },
      ...{ get: (key) => inner.get(key), range: (request) => inner.range(request) },
      txn: (compares, operations) => {
        const isStep = operations.some((operation) => {
          const key = 'put' in operation ? operation.put : operation.delete;
          return key.startsWith('/masterkey/') || key.startsWith('/secretvalue/');
        });
        if (isStep) this.commits += 1;
        if (!this.isCrashed && (!isStep || this.commits !== this.crashAt))
          return inner.txn(compares, operations);
        const lost = this.isCrashed || this.isLost;
        this.isCrashed = true;
        const answer = lost ? Promise.resolve() : inner.txn(compares, operations);
        return answer.then(() => Promise.reject(new CloudlessError('STORE_UNAVAILABLE', 'crash')));
      },
      grantLease: (ttlMs) => inner.grantLease(ttlMs),
      keepAlive: (lease) => inner.keepAlive(lease),
      revokeLease: (lease) => inner.revokeLease(lease),
      close: () => Promise.resolve(),
    };
  }
}

/** Holds back the commits that write a key with each of the prefixes. */
class HoldingStore {
  /** Number of commits that wait, or have waited. */
  held = 0;
  release: () => void = () => undefined;
  private readonly released = new Promise<void>((resolve) => (this.release = resolve));

  constructor(
    private readonly inner: StateStore,
    private readonly prefixes: readonly string[],
  ) {}

  get store(): StateStore {
    const { inner } = this;
    return {
      ...{ watch: (request) => inner.watch(request), revision: () => inner.revision() },
      ...{ get: (key) => inner.get(key), range: (request) => inner.range(request) },
      txn: async (compares, operations) => {
        const keys = operations.flatMap((operation) => ('put' in operation ? operation.put : []));
        const rest = [...keys];
        const isHeld = this.prefixes.every((prefix) => {
          const index = rest.findIndex((key) => key.startsWith(prefix));
          return index >= 0 && rest.splice(index, 1).length > 0;
        });
        if (isHeld) {
          this.held += 1;
          await this.released;
        }
        return inner.txn(compares, operations);
      },
      grantLease: (ttlMs) => inner.grantLease(ttlMs),
      keepAlive: (lease) => inner.keepAlive(lease),
      revokeLease: (lease) => inner.revokeLease(lease),
      close: () => Promise.resolve(),
    };
  }
}

/** A cluster with secrets whose coordinator can be replaced. */
class SecretsCluster {
  readonly clock = new ManualClock();
  readonly raw = createMemoryStateStore({ clock: this.clock });
  readonly model: Model = new Map();
  bed!: ApiTestBed;
  client!: SecretsClient;

  private starts = 0;

  async start(store: StateStore = this.raw, secretKeys = createTestSecretKeys()): Promise<void> {
    const { clock } = this;
    this.starts += 1;
    this.bed = await ApiTestBed.open({ clock, store, secretKeys, seed: this.starts });
    this.client = createSecretsClient(this.bed.transport);
  }

  async restart(store?: StateStore, secretKeys?: SecretKeys): Promise<void> {
    await this.bed.stop();
    await this.start(store, secretKeys);
  }

  async put(name: string, value: string): Promise<void> {
    const data = { k: bytes(value) };
    if (this.model.has(name)) await this.client.updateSecret({ name, data });
    else await this.client.createSecret({ name, data, audiences });
    this.model.set(name, value);
  }

  async remove(name: string): Promise<void> {
    if (!this.model.has(name)) return;
    await this.client.deleteSecret({ name });
    this.model.delete(name);
  }

  /** Runs timers until the promise has settled. */
  async run<Result>(promise: Promise<Result>): Promise<Result> {
    let isSettled = false;
    const settled = promise.finally(() => (isSettled = true));
    settled.catch(() => undefined);
    for (let turn = 0; !isSettled && turn < 10_000; turn += 1) await this.clock.advance(5);
    return settled;
  }

  /** Decrypts all kept versions; those of the newest one must be the values of the model. */
  async checkValues(): Promise<void> {
    const { bed } = this;
    const values = new StoredSecretValues({ ...bed, keys: bed.secretKeys });
    const newest: Model = new Map();
    for (const { value: record } of bed.state.view().secrets())
      for (const { version } of record.versions) {
        const data = await values.readData(bed.state.view(), record, version);
        newest.set(record.name, Buffer.from(data.get('k') ?? []).toString());
      }
    expect(newest).toEqual(this.model);
  }

  /** The ids of the master keys of all stored values, and those of the records. */
  async listKeyIds(): Promise<{ values: readonly string[]; records: readonly string[] }> {
    const { entries } = await this.raw.range({ prefix: '/secretvalue/', limit: 10_000 });
    const values = entries.map(
      ({ key, value }) =>
        decodeRecord('secretvalue', key.slice('/secretvalue/'.length), value).masterKeyId,
    );
    const records = [...this.bed.state.view().secrets()].flatMap(({ value: { versions } }) =>
      versions.map(({ masterKeyId }) => masterKeyId),
    );
    return { values, records };
  }

  get keyStates(): readonly string[] {
    return [...this.bed.state.view().masterKeys()]
      .filter(({ value }) => value.id !== 'mac')
      .map(({ value }) => State[value.state])
      .sort();
  }

  get activeId(): string {
    const keys = [...this.bed.state.view().masterKeys()].map(({ value }) => value);
    return keys.find(({ id, state }) => id !== 'mac' && state === State.ACTIVE)?.id ?? '';
  }

  /** Nothing is left under an older key. */
  async checkRotated(formerId: string): Promise<void> {
    const { values, records } = await this.listKeyIds();
    expect(this.keyStates).toEqual(['ACTIVE']);
    expect(this.activeId).not.toBe(formerId);
    expect(new Set(values)).toEqual(new Set(this.model.size === 0 ? [] : [this.activeId]));
    expect(records.length).toBe(values.length);
    expect(new Set(records)).toEqual(new Set(values));
  }

  reasons(): readonly string[] {
    return this.bed
      .events()
      .map(({ reason }) => reason)
      .filter((reason) => reason.startsWith('MasterKey'));
  }
}

const counts = ({ began, reEncrypted, remaining, deletedKeys }: RotateMasterKeyResponse) => ({
  ...{ began, reEncrypted: Number(reEncrypted), remaining: Number(remaining), deletedKeys },
});

describe('rotation of the master key', () => {
  let cluster: SecretsCluster;
  beforeEach(async () => {
    cluster = new SecretsCluster();
    await cluster.start();
  });
  afterEach(() => cluster.bed.stop());

  const getInfo = () => cluster.client.getMasterKeyInfo({});
  const rotate = (reEncryptAll: boolean, requestId = '') =>
    cluster.client.rotateMasterKey({ reEncryptAll, requestId });

  it('encrypts all kept versions again, deletes the old key and tells both', async () => {
    for (let count = 0; count < 60; count += 1) await cluster.put(`s${count}`, `v${count}`);
    await cluster.put('s7', 'changed');
    const former = cluster.activeId;
    const answer = await rotate(true);
    expect(counts(answer)).toEqual({ began: true, reEncrypted: 61, remaining: 0, deletedKeys: 1 });
    expect(answer.masterKeyId).toBe(cluster.activeId);
    await cluster.checkRotated(former);
    await cluster.checkValues();
    expect(cluster.reasons()).toEqual(['MasterKeyRotationStarted', 'MasterKeyRotated']);
    expect(cluster.bed.auditRecords.slice(-1)).toEqual(['RotateMasterKey ok']);
    const info = await getInfo();
    expect(info).toMatchObject({ available: true, problem: '', rotating: false, remaining: 0n });
    expect(info.keys).toMatchObject([
      { id: answer.masterKeyId, state: 1, versionCount: 61n, provider: 'file' },
    ]);
    const { secret } = await cluster.client.getSecret({ name: 's7' });
    expect(secret?.generation).toBe(2n);
    expect(secret?.versions.map(({ masterKeyId }) => masterKeyId)).toEqual(
      Array(2).fill(answer.masterKeyId),
    );
  });

  it('keeps older keys without re-encryption until no version needs them', async () => {
    await cluster.put('db', 'v0');
    await cluster.put('web', 'v0');
    const former = cluster.activeId;
    const answer = await rotate(false);
    expect(counts(answer)).toEqual({ began: true, reEncrypted: 0, remaining: 2, deletedKeys: 0 });
    expect(cluster.keyStates).toEqual(['ACTIVE', 'RETIRING']);
    expect((await getInfo()).keys).toMatchObject([
      { id: former, state: 2, versionCount: 2n },
      { id: answer.masterKeyId, state: 1, versionCount: 0n },
    ]);
    await cluster.remove('web');
    // The tenth newer version removes the version of the old key.
    for (let version = 1; version <= 9; version += 1) await cluster.put('db', `v${version}`);
    await cluster.bed.settle();
    expect(cluster.keyStates).toEqual(['ACTIVE', 'RETIRING']);
    await cluster.put('db', 'v10');
    await cluster.bed.settle();
    await cluster.checkRotated(former);
    await cluster.checkValues();
    expect(cluster.reasons()).toEqual([
      ...['MasterKeyRotationStarted', 'MasterKeyRotated', 'MasterKeyDeleted'],
    ]);
  });

  it('deletes all older keys when a later rotation encrypts again', async () => {
    await cluster.put('a', '1');
    await rotate(false);
    await cluster.put('b', '2');
    await rotate(false);
    expect(cluster.keyStates).toEqual(['ACTIVE', 'RETIRING', 'RETIRING']);
    expect(counts(await rotate(true))).toMatchObject({ reEncrypted: 2, deletedKeys: 3 });
    await cluster.checkValues();
  });

  it('rotates the keys of a cluster without secrets', async () => {
    expect(await getInfo()).toMatchObject({ keys: [], available: true, rotating: false });
    const answer = await rotate(true);
    expect(counts(answer)).toEqual({ began: true, reEncrypted: 0, remaining: 0, deletedKeys: 1 });
    await cluster.put('db', 'v');
    await cluster.checkValues();
  });

  it('answers a repeated call with the same request id alike, also after a restart', async () => {
    await cluster.put('db', 'v');
    const [first, twin] = await Promise.all([rotate(true, 'r1'), rotate(true, 'r1')]);
    expect(twin).toEqual(first);
    expect(counts(first)).toMatchObject({ began: true, reEncrypted: 1, deletedKeys: 1 });
    await cluster.put('web', 'v');
    await cluster.restart();
    expect(await rotate(true, 'r1')).toEqual(first);
    await expect(rotate(false, 'r1')).rejects.toThrow('was used for another RotateMasterKey');
  });

  it('is joined by calls meanwhile, and encrypts again when one of them asks for that', async () => {
    await cluster.put('db', 'v');
    const activation = new HoldingStore(cluster.raw, ['/masterkey/', '/masterkey/']);
    await cluster.restart(activation.store);
    const first = rotate(false);
    await cluster.bed.settle();
    expect(cluster.keyStates).toEqual(['ACTIVE', 'PENDING']);
    expect(await getInfo()).toMatchObject({ rotating: true, remaining: 0n });
    const others = [rotate(true), rotate(false, 'r2')];
    await cluster.bed.settle();
    expect(await getInfo()).toMatchObject({ rotating: true, remaining: 1n });
    activation.release();
    const answers = await Promise.all([first, ...others]);
    expect(answers.map(({ began }) => began)).toEqual([true, false, false]);
    expect(new Set(answers.map(({ masterKeyId }) => masterKeyId)).size).toBe(1);
    expect(answers[1]).toMatchObject({ reEncrypted: 1n, remaining: 0n, deletedKeys: 1 });
    expect(cluster.keyStates).toEqual(['ACTIVE']);
    expect(cluster.bed.auditRecords.slice(-3).sort()).toEqual([
      ...['RotateMasterKey ok', 'RotateMasterKey ok', 'RotateMasterKey ok'],
    ]);
  });

  it('goes on when the call is aborted', async () => {
    await cluster.put('db', 'v');
    const former = cluster.activeId;
    const activation = new HoldingStore(cluster.raw, ['/masterkey/', '/masterkey/']);
    await cluster.restart(activation.store);
    const ending = new AbortController();
    const call = cluster.client.rotateMasterKey({ reEncryptAll: true }, { signal: ending.signal });
    call.catch(() => undefined);
    await cluster.bed.settle();
    expect(cluster.keyStates).toEqual(['ACTIVE', 'PENDING']);
    ending.abort();
    await expect(call).rejects.toThrow('canceled');
    activation.release();
    await cluster.bed.settle();
    await cluster.checkRotated(former);
  });

  it('takes two commits for a version that does not fit into one beside its secret', async () => {
    const keys = Array.from({ length: 100 }, (_none, index) => `${index}`.padEnd(253, 'k'));
    const toData = (size: number) =>
      Object.fromEntries(keys.map((key) => [key, new Uint8Array(size)]));
    const first = { name: 'big', data: toData(9_700), audiences };
    await cluster.client.createSecret(first);
    for (let version = 2; version <= 10; version += 1)
      await cluster.client.updateSecret({ name: 'big', data: toData(version) });
    const former = cluster.activeId;
    expect(counts(await rotate(true))).toMatchObject({ reEncrypted: 10, remaining: 0 });
    const { values, records } = await cluster.listKeyIds();
    expect(new Set([...values, ...records])).toEqual(new Set([cluster.activeId]));
    expect(cluster.activeId).not.toBe(former);
  });

  it('ends for a damaged version once the secret is deleted, and loses no other', async () => {
    for (const name of ['a', 'b', 'c']) await cluster.put(name, name);
    const former = cluster.activeId;
    const uid = cluster.bed.state.view().secret('default/b')?.value.uid ?? '';
    const key = `/secretvalue/${toValueKeyId(uid, 1)}`;
    const entry = await cluster.raw.get(key);
    const damaged = new Uint8Array(entry?.value ?? []);
    damaged[damaged.length - 1] = (damaged.at(-1) ?? 0) ^ 1;
    await cluster.raw.txn([], [{ put: key, value: damaged }]);
    const problem =
      'the rotation of the master key cannot end: version 1 of secret "default/b" cannot be decrypted';
    await expect(rotate(true)).rejects.toThrow(problem);
    await expect(rotate(true)).rejects.toThrow(problem);
    expect(await getInfo()).toMatchObject({ rotating: true, remaining: 1n });
    expect(cluster.reasons()).toEqual(['MasterKeyRotationStarted', 'MasterKeyRotationBlocked']);
    await cluster.remove('b');
    await cluster.bed.settle();
    await cluster.checkRotated(former);
    await cluster.checkValues();
    await cluster.restart();
  });

  it('waits for the key-encryption key, and tells what is missing', async () => {
    await cluster.put('db', 'v');
    const former = cluster.activeId;
    await cluster.restart(new CrashingStore(cluster.raw, 1, false).store);
    rotate(true).catch(() => undefined);
    await cluster.bed.settle();
    await cluster.restart(cluster.raw, new SecretKeys());
    await cluster.bed.settle();
    expect(cluster.keyStates).toEqual(['ACTIVE', 'PENDING']);
    expect(await getInfo()).toMatchObject({
      ...{ available: false, rotating: true, remaining: 1n },
      problem: expect.stringContaining('no key-encryption key; start it with --secrets-key-file'),
      keys: [{ id: former, state: 1, versionCount: 1n }, { state: 0 }],
    });
    await expect(rotate(true)).rejects.toThrow('no key-encryption key');
    await cluster.restart();
    await cluster.bed.settle();
    await cluster.checkRotated(former);
    await cluster.checkValues();
  });

  it('goes on after a crash at any commit, before or after the store has it', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 4 }),
        fc.array(fc.record({ at: fc.integer({ min: 1, max: 3 }), isLost: fc.boolean() }), {
          maxLength: 6,
        }),
        fc.boolean(),
        async (versionCounts, crashes, isLarge) => {
          const own = new SecretsCluster();
          await own.start();
          for (const [index, count] of versionCounts.entries())
            for (let version = 1; version <= count; version += 1)
              await own.put(
                `s${index}`,
                `value ${version}`.padEnd(isLarge && index === 0 ? 400_000 : 10),
              );
          const former = own.activeId;
          for (const [index, { at, isLost }] of crashes.entries()) {
            const crashing = new CrashingStore(own.raw, at, isLost);
            await own.restart(crashing.store);
            const call = own.client.rotateMasterKey({ reEncryptAll: true, requestId: 'r1' });
            call.catch(() => undefined);
            await own.bed.settle();
            await own.restart();
            await own.bed.settle();
            // Users go on between the crashes.
            if (index % 3 === 0) await own.put(`s${index}`, `changed ${index}`);
            if (index % 3 === 1) await own.remove(`s${index}`);
          }
          await own.restart();
          const answer = await own.run(
            own.client.rotateMasterKey({ reEncryptAll: true, requestId: 'r1' }),
          );
          expect(answer.remaining).toBe(0n);
          expect(planMasterKeyStep(own.bed.state.view()).kind).toBe('none');
          await own.checkRotated(former);
          await own.checkValues();
          await own.bed.stop();
        },
      ),
      { numRuns: 10 },
    );
  });

  it.each<{ name: string; change: (own: SecretsCluster) => Promise<void> }>([
    { name: 'new values', change: (own) => own.put('changed', 'second') },
    { name: 'a deletion', change: (own) => own.remove('changed') },
  ])('neither loses nor undoes $name while a step is being committed', async ({ change }) => {
    for (const name of ['changed', 'still']) await cluster.put(name, 'first');
    const former = cluster.activeId;
    const steps = new HoldingStore(cluster.raw, ['/secretvalue/', '/secretvalue/', '/secret/']);
    await cluster.restart(steps.store);
    const rotation = rotate(true);
    await cluster.bed.settle();
    expect(steps.held).toBe(1);
    await change(cluster);
    await cluster.put('new', 'first');
    steps.release();
    expect(await cluster.run(rotation)).toMatchObject({ remaining: 0n, deletedKeys: 1 });
    await cluster.checkRotated(former);
    await cluster.checkValues();
    await cluster.bed.close();
    await cluster.start();
  });

  it('is completed by the next leader, against the late commits of the former one', async () => {
    for (const name of ['a', 'b']) await cluster.put(name, name);
    const former = cluster.activeId;
    const steps = new HoldingStore(cluster.raw, ['/secretvalue/', '/secretvalue/', '/secret/']);
    await cluster.restart(steps.store);
    const call = rotate(true, 'r1');
    call.catch(() => undefined);
    await cluster.bed.settle();
    expect(steps.held).toBe(1);
    const { bed } = cluster;
    await cluster.start();
    expect(await rotate(true, 'r1')).toMatchObject({ began: true, remaining: 0n });
    await cluster.put('a', 'changed');
    steps.release();
    await expect(call).rejects.toThrow('no longer leads');
    await bed.stop();
    await cluster.checkRotated(former);
    await cluster.checkValues();
  });

  it.each([
    { name: 'first', secret: 'new' },
    { name: 'next', secret: 'changed' },
  ])('keeps the $name version of a secret whose commit began before it', async ({ secret }) => {
    await cluster.put('changed', 'first');
    const former = cluster.activeId;
    const changes = new HoldingStore(cluster.raw, ['/filesguard/', '/secretvalue/']);
    await cluster.restart(changes.store);
    const call = cluster.put(secret, 'second');
    await cluster.bed.settle();
    expect(changes.held).toBe(1);
    await rotate(true);
    expect(cluster.keyStates).toEqual(['ACTIVE']);
    changes.release();
    await cluster.run(call);
    await cluster.checkRotated(former);
    await cluster.checkValues();
    await cluster.bed.close();
    await cluster.start();
  });
});

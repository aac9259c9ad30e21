import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createKeyEncryption, type KeyEncryption } from '@cloudless/secrets';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { SecretKeys } from './secret-keys.js';

const clock = new ManualClock();
const aKek = (seed: number): KeyEncryption =>
  createKeyEncryption('file', createSeededRandom(seed).bytes(32), createSeededRandom(99));
const former = aKek(1);
const next = aKek(2);

describe('keys of several coordinators on one store', () => {
  let store: StateStore;
  const states: ClusterState[] = [];
  beforeEach(() => {
    store = createMemoryStateStore({ clock });
  });
  afterEach(async () => {
    await Promise.all(states.splice(0).map((state) => state.close()));
  });

  /** Opens the state of a coordinator, which leads from now on. */
  const lead = async (seed: number): Promise<ClusterState> => {
    const random = createSeededRandom(seed);
    const state = await openClusterState({ store, clock, random, log: silentLog, holder: 'test' });
    states.push(state);
    return state;
  };
  const openOrCreate = (keys: SecretKeys, state: ClusterState, seed: number) =>
    keys.openOrCreate({ state, clock, random: createSeededRandom(seed) });
  /** The bytes of all keys. */
  const listBytes = async (keys: SecretKeys, state: ClusterState): Promise<readonly string[]> => {
    const ring = await keys.require(state.view());
    return [...state.view().masterKeys()].map(({ value: { id } }) =>
      Buffer.from(ring.get(id)?.bytes ?? []).toString('hex'),
    );
  };

  it('are one set when both create the first keys at once', async () => {
    const state = await lead(1);
    const [first, second] = [
      new SecretKeys({ current: former }),
      new SecretKeys({ current: former }),
    ];
    const rings = await Promise.all([
      openOrCreate(first, state, 11),
      openOrCreate(second, state, 12),
    ]);
    expect(rings[0].active.id).toBe(rings[1].active.id);
    expect([...state.view().masterKeys()]).toHaveLength(2);
    expect(await listBytes(first, state)).toEqual(await listBytes(second, state));
  });

  it('are those of the store for the next leader, and not created by a former one', async () => {
    const before = await lead(1);
    const after = await lead(2);
    await expect(openOrCreate(new SecretKeys({ current: former }), before, 11)).rejects.toThrow(
      'no longer leads',
    );
    const ring = await openOrCreate(new SecretKeys({ current: former }), after, 12);
    const third = await lead(3);
    expect((await openOrCreate(new SecretKeys({ current: former }), third, 13)).mac).toEqual(
      ring.mac,
    );
  });

  it.each([
    { name: 'the right key', keys: new SecretKeys({ current: former }), problem: undefined },
    {
      name: 'another key',
      keys: new SecretKeys({ current: next }),
      problem: /^the key-encryption key of this coordinator \(file\) is not the key that .* start/,
    },
    { name: 'no key', keys: new SecretKeys({ problem: 'no key file' }), problem: /^no key file$/ },
  ])('report the problem of a coordinator with $name', async ({ keys, problem }) => {
    const state = await lead(1);
    expect(await keys.findProblem(state.view())).toBeUndefined(); // the cluster has no keys yet
    await openOrCreate(new SecretKeys({ current: former }), state, 11);
    expect(await keys.findProblem(state.view())).toEqual(
      problem === undefined ? undefined : expect.stringMatching(problem),
    );
  });

  it('change their key-encryption key for all, and a coordinator with the former key refuses', async () => {
    const first = await lead(1);
    const stale = new SecretKeys({ current: former });
    await openOrCreate(stale, first, 11);
    const bytes = await listBytes(stale, first);
    const second = await lead(2);
    const replacing = new SecretKeys({ current: next, previous: former });
    expect(await listBytes(replacing, second)).toEqual(bytes);
    await replacing.replaceKeyEncryption(second);
    // The former key is in the memory of the other coordinator, which must not use it.
    const third = await lead(3);
    await expect(stale.require(third.view())).rejects.toThrow(
      'is not the key that encrypts the secrets of the cluster: the keys of the cluster were encrypted with key',
    );
    // As soon as the other coordinator has both keys, or only the new one, the secrets are back.
    const both = new SecretKeys({ current: next, previous: former });
    const { revision } = third.view();
    await both.replaceKeyEncryption(third);
    expect(third.view().revision).toBe(revision);
    expect(await listBytes(both, third)).toEqual(bytes);
    expect(await listBytes(new SecretKeys({ current: next }), third)).toEqual(bytes);
  });

  it('change their key-encryption key while a rotation changes them', async () => {
    const state = await lead(1);
    await openOrCreate(new SecretKeys({ current: former }), state, 11);
    const commit = state.commit.bind(state);
    let isFirst = true;
    state.commit = async (transaction) => {
      if (isFirst) {
        isFirst = false;
        // Another commit changes the keys first.
        const rewrite = state.transaction();
        for (const { value } of state.view().masterKeys())
          rewrite.put('masterkey', value.id, value);
        await commit(rewrite);
      }
      return commit(transaction);
    };
    await new SecretKeys({ current: next, previous: former }).replaceKeyEncryption(state);
    expect(await listBytes(new SecretKeys({ current: next }), state)).toHaveLength(2);
  });

  it('are removed from memory when the store deletes them', async () => {
    const state = await lead(1);
    const keys = new SecretKeys({ current: former });
    const unfollow = keys.follow(state);
    const { active } = await openOrCreate(keys, state, 11);
    expect(keys.openedIds).toContain(active.id);
    await state.commit(state.transaction().delete('masterkey', active.id));
    expect(keys.openedIds).toEqual(['mac']);
    unfollow();
  });
});

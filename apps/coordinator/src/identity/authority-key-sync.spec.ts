import { mkdtempSync, rmSync } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { AuthorityKeysSchema } from '@cloudless/api';
import { CoordinatorRecordSchema } from '@cloudless/api/store';
import { CloudlessError, createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  CERTIFICATE_AUTHORITY_KEY,
  advanceRotation,
  getRotationProgress,
  openClusterState,
  startRotation,
  type ClusterState,
} from '@cloudless/cluster-state';
import { ClusterIdentities, type AuthorityKeys } from '@cloudless/controllers';
import {
  createAuthority,
  listGenerations,
  loadAuthority,
  readAuthorityPems,
  removeAuthoritiesBefore,
  storeAuthority,
} from '@cloudless/identity/files';
import { hashRoot } from '@cloudless/identity/x509';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { AuthorityKeySync, type FetchKeys } from './authority-key-sync.js';

const clock = new ManualClock(Date.UTC(2026, 0, 1));
const DAY_MS = 86_400_000;

let store: StateStore;
let leader: ClusterState;
let follower: ClusterState;
let directory: string;
let leaderKeys: AuthorityKeys;
let followerKeys: AuthorityKeys;
let leading: ClusterIdentities;
let following: ClusterIdentities;

/** The key files of one coordinator. */
function openKeys(coordinator: string): AuthorityKeys {
  const ca = join(directory, coordinator);
  const options = () => ({ trustDomain: 'cloudless', nowMs: clock.wallTime() });
  return {
    list: () => listGenerations(ca),
    load: (generation) => loadAuthority(ca, generation, options()),
    create: (generation) => createAuthority(ca, generation, options()),
    read: (generation) => readAuthorityPems(ca, generation),
    store: (generation, pems) => storeAuthority(ca, generation, pems, options()),
    removeBefore: (generation) => removeAuthoritiesBefore(ca, generation),
  };
}

const openState = (holder: string, leadership: 'takeAtStart' | 'follow') =>
  openClusterState({
    ...{ store, clock, random: createSeededRandom(1), log: silentLog, holder, leadership },
  });
const openIdentities = (state: ClusterState, name: string, keys: AuthorityKeys) =>
  ClusterIdentities.open({
    ...{ state, clock, log: silentLog, keys, trustDomain: 'cloudless', coordinatorName: name },
    tokenSecret: new Uint8Array(32).fill(7),
    lifetimes: { nodeMs: DAY_MS, userMs: DAY_MS, workloadMs: DAY_MS },
  });

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cloudless-keys-'));
  store = createMemoryStateStore({ clock });
  leader = await openState('one', 'takeAtStart');
  leaderKeys = openKeys('one');
  leading = await openIdentities(leader, 'one', leaderKeys);
  follower = await openState('two', 'follow');
  followerKeys = openKeys('two');
  await followerKeys.store(1, await leaderKeys.read(1)); // the copied identity directory
  following = await openIdentities(follower, 'two', followerKeys);
  for (const id of ['one', 'two'])
    await leader.commitObserved(
      leader
        .transaction()
        .put('coordinator', id, create(CoordinatorRecordSchema, { id, address: `https://${id}` })),
    );
});
afterEach(async () => {
  leading.close();
  following.close();
  await Promise.all([leader.close(), follower.close()]);
  await store.close();
  rmSync(directory, { recursive: true });
});

/** Begins a rotation, as the handler of the leader does. */
async function rotate(): Promise<void> {
  const { rootPem: pem } = await leading.createGeneration(2);
  const stored = leader.view().certificateAuthority();
  if (stored === undefined) throw new Error('there is no certificate authority');
  const after = startRotation(stored.value, { generation: 2, pem }, clock.wallTime(), 'one');
  await leader.commitObserved(leader.transaction().put('ca', CERTIFICATE_AUTHORITY_KEY, after));
}

const waiting = () =>
  getRotationProgress(leader.view(), clock.wallTime())?.waitingCoordinators ?? [];

/** Answers as the leader; also notes the caller as its handler does. */
const fetchFromLeader: FetchKeys = async (_address, _tls, stored) => {
  const wanted = [1, 2].filter((generation) => !stored.includes(generation));
  if (wanted.length === 0) {
    const current = leader.view().certificateAuthority();
    current?.value.rotation?.coordinators.push('two');
    return [];
  }
  return Promise.all(
    wanted.map(async (generation) => {
      const pems = await leading.exportKeys(generation);
      return create(AuthorityKeysSchema, {
        generation,
        rootCertificate: pems.rootPem,
        rootKey: pems.rootKeyPem,
        issuingCertificate: pems.issuingPem,
        issuingKey: pems.issuingKeyPem,
      });
    }),
  );
};

function startSync(fetchKeys: FetchKeys): AuthorityKeySync {
  const server = { getContext: () => ({ keyPem: 'key', chainPem: 'chain' }) };
  return new AuthorityKeySync({
    ...{ state: follower, clock, random: createSeededRandom(1), log: silentLog, server, fetchKeys },
    identities: following,
  });
}

/** Lets timers and promises run until a condition holds. */
async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (let round = 0; round < 2_000 && !(await isTrue()); round += 1) {
    await clock.advance(100);
    await new Promise((resolve) => setTimeout(resolve, 1)); // keys are created and written
  }
  expect(await isTrue()).toBe(true);
}

describe('AuthorityKeySync', () => {
  it('stores the keys of a new generation, and tells the leader', async () => {
    const calls: (readonly [string, readonly number[], string])[] = [];
    Object.defineProperty(follower, 'leader', {
      value: () => ({ epoch: 1n, address: 'https://one', coordinatorId: 'one' }),
    });
    const sync = startSync(async (address, tls, stored) => {
      calls.push([address, [...stored], tls.serverKinds?.join() ?? '']);
      return fetchFromLeader(address, tls, stored);
    });
    await rotate();
    expect(waiting()).toEqual(['two']);
    await until(async () => (await followerKeys.list()).includes(2));
    await until(() => calls.length > 1);
    await sync.close();
    expect(calls.slice(0, 2)).toEqual([
      ['https://one', [1], 'controller'],
      ['https://one', [1, 2], 'controller'],
    ]);
    expect(waiting()).toEqual([]);
  });

  it('tries again while no coordinator leads, or the leader does not answer', async () => {
    let leaderAddress = '';
    Object.defineProperty(follower, 'leader', {
      value: () => ({ epoch: 1n, address: leaderAddress, coordinatorId: 'one' }),
    });
    let failures = 0;
    const sync = startSync(async (...call) => {
      failures += 1;
      if (failures < 3) throw new CloudlessError('unavailable', 'no coordinator reached');
      return fetchFromLeader(...call);
    });
    await rotate();
    await clock.advance(5_000);
    expect(failures).toBe(0);
    leaderAddress = 'https://one';
    await until(async () => (await followerKeys.list()).includes(2));
    await sync.close();
  });

  it('refuses keys that are not those of the trusted root', async () => {
    const foreign = openKeys('foreign');
    await foreign.create(2);
    await rotate();
    await until(async () => (await following.listGenerations()).missing.includes(2));
    await expect(following.importKeys(2, await foreign.read(2))).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('not those of the root that the cluster trusts'),
    });
    expect(await followerKeys.list()).toEqual([1]);
  });

  it('replaces the keys that its own rotation without a record has left', async () => {
    Object.defineProperty(follower, 'leader', {
      value: () => ({ epoch: 1n, address: 'https://one', coordinatorId: 'one' }),
    });
    const unrecorded = await followerKeys.create(2);
    const calls: (readonly number[])[] = [];
    const sync = startSync(async (address, tls, stored) => {
      calls.push([...stored]);
      return fetchFromLeader(address, tls, stored);
    });
    await rotate();
    await until(() => calls.length > 1);
    await sync.close();
    expect(calls.slice(0, 2)).toEqual([[1], [1, 2]]);
    expect(await followerKeys.read(2)).toEqual(await leaderKeys.read(2));
    const names = await readdir(join(directory, 'two'));
    const aside = names.filter((name) => name.startsWith('2.'));
    expect(aside).toEqual([expect.stringMatching(/^2\.set-aside-\d+$/)]);
    const kept = await readFile(join(directory, 'two', aside.join(''), 'root.crt'), 'utf8');
    expect(hashRoot(kept)).toBe(unrecorded.rootSha256);
    expect(await followerKeys.list()).toEqual([1, 2]);
  });

  it('refuses to export keys of a rotation that was not recorded', async () => {
    const unrecorded = openKeys('unrecorded');
    await unrecorded.create(2);
    await followerKeys.store(2, await unrecorded.read(2));
    await rotate();
    await until(() => following.getTrustBundle().rootSha256s.length === 2);
    expect(await following.listGenerations()).toEqual({ stored: [1], missing: [2] });
    await expect(following.exportKeys(2)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('a rotation that was not recorded'),
    });
  });
});

describe('ClusterIdentities.open', () => {
  it('opens on a coordinator that was off when a rotation that still runs began', async () => {
    following.close();
    await rotate();
    const stored = leader.view().certificateAuthority();
    if (stored === undefined) throw new Error('there is no certificate authority');
    const reissuing = advanceRotation(stored.value, clock.wallTime());
    await leader.commitObserved(
      leader.transaction().put('ca', CERTIFICATE_AUTHORITY_KEY, reissuing),
    );
    await until(() => follower.view().certificateAuthority()?.value.issuingGeneration === 2);
    following = await openIdentities(follower, 'two', followerKeys);
    expect(await following.listGenerations()).toEqual({ stored: [1], missing: [2] });
    await following.importKeys(2, await leading.exportKeys(2));
    expect(following.issuingGeneration).toBe(2);
  });

  it('fails without keys that only another rotation could bring back', async () => {
    following.close();
    const none = openKeys('none');
    await expect(openIdentities(follower, 'two', none)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('copy it from another coordinator'),
    });
  });

  it('waits on a coordinator that follows until the leader has written the record', async () => {
    const fresh = createMemoryStateStore({ clock });
    const early = await openClusterState({
      ...{ store: fresh, clock, random: createSeededRandom(1), log: silentLog, holder: 'two' },
      leadership: 'follow',
    });
    let isOpen = false;
    const opening = openIdentities(early, 'two', followerKeys).then((identities) => {
      isOpen = true;
      return identities;
    });
    await clock.advance(10_000);
    expect(isOpen).toBe(false);
    const first = await openClusterState({
      ...{ store: fresh, clock, random: createSeededRandom(2), log: silentLog, holder: 'one' },
    });
    (await openIdentities(first, 'one', leaderKeys)).close();
    await until(() => isOpen);
    (await opening).close();
    await Promise.all([early.close(), first.close()]);
    await fresh.close();
  });
});

import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Role, UserCredential_Kind as CredentialKind } from '@cloudless/api';
import { CredentialRecordSchema, UserRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog, type Random } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { ClusterIdentities, type AuthorityKeys } from '@cloudless/controllers';
import { matchesToken, parseToken } from '@cloudless/identity';
import {
  createAuthority,
  listGenerations,
  loadAuthority,
  readAuthorityPems,
  removeAuthoritiesBefore,
  storeAuthority,
} from '@cloudless/identity/files';
import { createMemoryStateStore } from '@cloudless/state-store';
import { writeFirstCredentials } from './first-credentials.js';

const clock = new ManualClock();
const DAY_MS = 24 * 3_600_000;
let directory = '';
let state: ClusterState;
let identities: ClusterIdentities;
let logged: string[] = [];
let random: Random;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cloudless-first-'));
  logged = [];
  random = createSeededRandom(1);
  state = await openClusterState({
    ...{ store: createMemoryStateStore({ clock }), clock, random, log: silentLog },
    holder: 'test',
  });
  const ca = join(directory, 'ca');
  const options = () => ({ trustDomain: 'cloudless', nowMs: clock.wallTime() });
  const keys: AuthorityKeys = {
    list: () => listGenerations(ca),
    load: (generation) => loadAuthority(ca, generation, options()),
    create: (generation) => createAuthority(ca, generation, options()),
    read: (generation) => readAuthorityPems(ca, generation),
    store: (generation, pems) => storeAuthority(ca, generation, pems, options()),
    removeBefore: (generation) => removeAuthoritiesBefore(ca, generation),
  };
  identities = await ClusterIdentities.open({
    ...{ state, clock, log: silentLog, keys, trustDomain: 'cloudless' },
    coordinatorName: 'coordinator',
    tokenSecret: new Uint8Array(32).fill(7),
    lifetimes: { nodeMs: DAY_MS, userMs: DAY_MS, workloadMs: DAY_MS },
  });
});
afterEach(async () => {
  identities.close();
  await state.close();
  rmSync(directory, { recursive: true });
});

const write = (mustRenew = false) =>
  writeFirstCredentials({
    ...{ state, identities, clock, random, directory },
    log: {
      ...silentLog,
      info: (message, fields) => logged.push(JSON.stringify({ message, fields })),
    },
    joinUrl: 'https://10.0.0.5:8080',
    mustRenew,
  });
const read = (name: string) => readFileSync(join(directory, name), 'utf8');

describe('writeFirstCredentials', () => {
  it('writes a token of a cluster-wide admin and the command by which machines join', async () => {
    await write();
    const admin = parseToken(read('admin.credential').trim());
    const record = state.view().credential(admin?.id ?? '')?.value;
    expect(admin).toMatchObject({
      kind: 'user',
      caSha256s: identities.getTrustBundle().rootSha256s,
    });
    expect(record?.credential).toMatchObject({
      user: 'admin',
      createdBy: 'controller/coordinator',
    });
    expect(
      matchesToken(
        identities.tokenSecret,
        record?.hmac ?? new Uint8Array(),
        'user',
        admin?.id ?? '',
        admin?.secret ?? '',
      ),
    ).toBe(true);
    expect(state.view().user('admin')?.value.user?.grants).toMatchObject([
      { role: Role.ADMIN, namespace: '' },
    ]);
    const [, token = ''] =
      /^printf %s (\S+) \| cloudless-agent run --coordinator https:\/\/10\.0\.0\.5:8080 --join-token-file -\n$/.exec(
        read('join-command'),
      ) ?? [];
    const joining = state.view().joinToken(parseToken(token)?.id ?? '')?.value.token;
    expect(joining).toMatchObject({ maxUses: 10 });
  });

  it('makes both files readable only by their owner, and logs only their paths', async () => {
    await write();
    for (const name of ['admin.credential', 'join-command'])
      expect(statSync(join(directory, name)).mode & 0o777).toBe(0o600);
    const secrets = [read('admin.credential').trim(), read('join-command').split(' ')[2] ?? ''];
    const [events, lines] = [
      JSON.stringify(
        state
          .view()
          .events()
          .map(({ message }) => message),
      ),
      logged.join(),
    ];
    for (const secret of secrets) {
      const [, , random256 = ''] = secret.split('.');
      expect(random256).toHaveLength(43);
      expect(events + lines).not.toContain(random256);
    }
    expect(lines).toContain(join(directory, 'admin.credential'));
  });

  it('changes nothing at the next start', async () => {
    await write();
    const before = [read('admin.credential'), read('join-command'), state.view().revision];
    await write();
    expect([read('admin.credential'), read('join-command'), state.view().revision]).toEqual(before);
  });

  it('writes both files again after a crash between the files and the records', async () => {
    const { commitObserved } = state;
    state.commitObserved = () => Promise.reject(new Error('crash'));
    await expect(write()).rejects.toThrow('crash');
    state.commitObserved = commitObserved.bind(state);
    await write();
    const { id = '' } = parseToken(read('admin.credential').trim()) ?? {};
    expect(state.view().credential(id)).toBeDefined();
    expect([...state.view().credentials()]).toHaveLength(1);
  });

  it('writes a new credential, but no join command, when no administrator has a valid one', async () => {
    await write();
    const [before, command] = [read('admin.credential'), read('join-command')];
    await state.commit(
      state.transaction().put('user', 'ada', create(UserRecordSchema, { user: { name: 'ada' } })),
    );
    await clock.advance(91 * DAY_MS);
    await write();
    expect(read('admin.credential')).not.toBe(before);
    expect(read('join-command')).toBe(command);
    expect(
      state
        .view()
        .events()
        .map(({ message }) => message)
        .at(-1),
    ).toBe('no administrator had a valid credential; user admin got a credential of 90 days');
  });

  it('replaces a valid credential of admin, but no join command, when a new one is asked for', async () => {
    await write();
    const [before, command] = [read('admin.credential'), read('join-command')];
    const { id: old = '' } = parseToken(before.trim()) ?? {};
    await write(true);
    const { id = '' } = parseToken(read('admin.credential').trim()) ?? {};
    expect(id).not.toBe(old);
    expect(statSync(join(directory, 'admin.credential')).mode & 0o777).toBe(0o600);
    expect(state.view().credential(old)?.value.credential?.revokedAt).toBeDefined();
    expect(state.view().credential(id)?.value.credential).toMatchObject({ user: 'admin' });
    expect(state.view().credential(id)?.value.credential?.revokedAt).toBeUndefined();
    expect(read('join-command')).toBe(command);
    expect(state.view().events().at(-1)?.message).toBe(
      'the start of the coordinator renewed the way back; user admin got a credential of 90 days',
    );
  });

  it('makes no administrator of those who have a credential of a user with fewer roles', async () => {
    await state.commit(
      state
        .transaction()
        .put(
          'user',
          'admin',
          create(UserRecordSchema, {
            user: { name: 'admin', grants: [{ role: Role.VIEWER, namespace: 'shop' }] },
          }),
        )
        .put(
          'credential',
          'old',
          create(CredentialRecordSchema, {
            credential: {
              ...{ id: 'old', user: 'admin', kind: CredentialKind.TOKEN },
              expiresAt: timestampFromMs(clock.wallTime() + DAY_MS),
            },
          }),
        ),
    );
    await write();
    expect(state.view().credential('old')?.value.credential?.revokedAt).toBeDefined();
    const { id = '' } = parseToken(read('admin.credential').trim()) ?? {};
    expect(state.view().credential(id)?.value.credential?.revokedAt).toBeUndefined();
  });
});

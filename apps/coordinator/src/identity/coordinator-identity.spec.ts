import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { clone, create } from '@bufbuild/protobuf';
import {
  CertificateAuthorityRecordSchema,
  RootRecordSchema,
  UserRecordSchema,
} from '@cloudless/api/store';
import { createSeededRandom, silentLog, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  CERTIFICATE_AUTHORITY_KEY,
  openClusterState,
  type ClusterState,
} from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { parseCoordinatorConfig } from '../config.js';
import { openCoordinatorIdentity, type CoordinatorIdentity } from './coordinator-identity.js';

const clock = new ManualClock();
const random = createSeededRandom(1);
let directory = '';
let state: ClusterState;
let warnings: string[] = [];

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cloudless-identity-'));
  warnings = [];
  state = await openClusterState({
    ...{ store: createMemoryStateStore({ clock }), clock, random, log: silentLog },
    holder: 'test',
  });
});
afterEach(async () => {
  await state.close();
  rmSync(directory, { recursive: true });
});

const log: Log = { ...silentLog, warn: (message) => warnings.push(message), child: () => log };

/** Opens the identity of a coordinator, and closes it again by default. */
async function start(name: string, close = true): Promise<CoordinatorIdentity> {
  const values = { identityDir: join(directory, name) };
  const identity = await openCoordinatorIdentity(
    parseCoordinatorConfig([{ source: 'test', values }], directory),
    { ...{ clock, random, log }, hostname: 'test', pid: 1, version: '0.0.0-test' },
    state,
  );
  if (close) await identity.close();
  return identity;
}

describe('openCoordinatorIdentity', () => {
  it('creates no token secret when the keys of the certificate authority are missing', async () => {
    await start('first');
    await expect(start('other')).rejects.toMatchObject({ kind: 'precondition' });
    expect(readdirSync(join(directory, 'other'))).toEqual([]);
  });

  it('finds lost and replaced files, and a rotation makes all files again', async () => {
    const identity = await start('first', false);
    const path = join(directory, 'first');
    const secret = readFileSync(join(path, 'token-secret'), 'utf8');
    expect(await identity.findFileProblem()).toBeUndefined();
    writeFileSync(join(path, 'token-secret'), 'ab'.repeat(32));
    expect(await identity.findFileProblem()).toBe(
      `${path}/token-secret has changed, so every token becomes invalid`,
    );
    rmSync(path, { recursive: true });
    expect(await identity.findFileProblem()).toBe(
      `${path}/token-secret is missing, so every token becomes invalid`,
    );
    const { rootPem: pem } = await identity.identities.createGeneration(2);
    expect(readFileSync(join(path, 'token-secret'), 'utf8')).toBe(secret);
    expect(await identity.findFileProblem()).toBe(
      `the certificate authority has no directory ${path}/ca/1; restore the directory from the backup, or copy it from another coordinator of the cluster`,
    );
    const stored = state.view().certificateAuthority();
    const root = stored?.value.roots[0];
    if (stored === undefined || root === undefined) throw new Error('no record');
    const record = clone(CertificateAuthorityRecordSchema, stored.value);
    record.roots = [create(RootRecordSchema, { ...root, generation: 2 })];
    await state.commitObserved(state.transaction().put('ca', CERTIFICATE_AUTHORITY_KEY, record));
    expect(await identity.findFileProblem()).toBe(
      'the key files of generation 2 of the certificate authority belong to another cluster, or to a rotation that was not recorded; restore the identity directory that belongs to this state, or copy the directory of the generation from another coordinator',
    );
    const trusted = clone(CertificateAuthorityRecordSchema, record);
    trusted.roots = [create(RootRecordSchema, { generation: 2, pem })];
    await state.commitObserved(state.transaction().put('ca', CERTIFICATE_AUTHORITY_KEY, trusted));
    expect(await identity.findFileProblem()).toBeUndefined();
    await identity.close();
  });

  it('reports void tokens when the cluster has users and the token secret was created', async () => {
    const secret = join(directory, 'first', 'token-secret');
    expect(await start('first')).toMatchObject({ hasVoidTokens: false });
    await state.commit(
      state.transaction().put('user', 'ada', create(UserRecordSchema, { user: { name: 'ada' } })),
    );
    expect(await start('first')).toMatchObject({ hasVoidTokens: false });
    rmSync(secret);
    expect(warnings).toEqual([]);
    expect(await start('first')).toMatchObject({ hasVoidTokens: true });
    expect(existsSync(secret)).toBe(true);
    expect(warnings).toEqual(['a new token secret was created: all earlier tokens are refused']);
    expect(await start('first')).toMatchObject({ hasVoidTokens: false });
  });
});

import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { UserRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { parseCoordinatorConfig } from '../config.js';
import { openCoordinatorIdentity } from './coordinator-identity.js';

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

/** Opens and closes the identity of a coordinator. */
async function start(name: string): Promise<{ readonly hasVoidTokens: boolean }> {
  const values = { identityDir: join(directory, name) };
  const identity = await openCoordinatorIdentity(
    parseCoordinatorConfig([{ source: 'test', values }], directory),
    { ...{ clock, random, log }, hostname: 'test', pid: 1, version: '0.0.0-test' },
    state,
  );
  await identity.close();
  return identity;
}

describe('openCoordinatorIdentity', () => {
  it('creates no token secret when the keys of the certificate authority are missing', async () => {
    await start('first');
    await expect(start('other')).rejects.toMatchObject({ kind: 'precondition' });
    expect(readdirSync(join(directory, 'other'))).toEqual([]);
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

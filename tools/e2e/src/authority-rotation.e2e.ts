import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { SecureCluster } from './index.js';
import { openTokenClients } from './support/secure-client.js';

let cluster: SecureCluster;

beforeAll(async () => {
  cluster = await SecureCluster.start({ agents: ['node-1'] });
}, 60_000);
afterAll(() => cluster?.stop(), 60_000);

const listRoots = (token: string): number => token.split('.').length - 3;
const readJoinToken = (): string =>
  readFileSync(join(cluster.identityDir, 'join-command'), 'utf8').split(' ')[2] ?? '';

it('tokens that are created during a rotation of the authority outlive the old root', async () => {
  expect(await cluster.login()).toMatchObject({ code: 0 });
  const oldToken = cluster.adminToken;
  const { text: oldJoinToken } = await cluster.admin.identities.createJoinToken({});
  // The rotation waits for this node, so that the test decides when the phases end.
  await cluster.requireAgent('node-1').kill('SIGTERM');
  const started = await cluster.runCtl('admin', 'rotate-ca');
  expect(started).toMatchObject({ code: 0 });
  expect(started.stderr).toContain('Tokens that are created from now on name both roots.');
  expect(started.stdout).toContain('waiting for nodes node-1');

  const { text: userToken } = await cluster.admin.users.createUserToken({ user: 'admin' });
  while (listRoots(cluster.adminToken) !== 2 || listRoots(readJoinToken()) !== 2)
    await new Promise((resolve) => setTimeout(resolve, 20));
  const joinToken = readJoinToken();
  for (let phase = 1; phase <= 2; phase += 1)
    expect(await cluster.runCtl('admin', 'rotate-ca', '--skip-wait', '--yes')).toMatchObject({
      code: 0,
    });
  // The certificate of the login is of the old authority, and the file of the coordinator is not.
  expect(await cluster.login()).toMatchObject({ code: 0 });
  const repeated = await cluster.runCtl('admin', 'rotate-ca', '--wait');
  expect(repeated).toMatchObject({ code: 0 });
  expect(repeated.stderr).toContain('no other one has begun');
  while (listRoots(cluster.adminToken) !== 1)
    await new Promise((resolve) => setTimeout(resolve, 20));

  expect(readdirSync(join(cluster.identityDir, 'ca'))).toEqual(['2']);
  await expect(openTokenClients(cluster.url, oldToken)).rejects.toThrow('is not trusted');
  for (const token of [userToken, cluster.adminToken]) {
    const clients = await openTokenClients(cluster.url, token);
    expect((await clients.users.whoAmI({})).principal).toBe('user/admin');
    clients.close();
  }
  const stranger = cluster.spawnAgent('node-2', [], { CLOUDLESS_JOIN_TOKEN: oldJoinToken });
  const joining = cluster.spawnAgent('node-3', [], { CLOUDLESS_JOIN_TOKEN: joinToken });
  await joining.waitForLog('session established');
  await stranger.waitForLine((line) => line.includes('certificate authority that the token names'));
}, 60_000);

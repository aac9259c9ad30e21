import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { SecureCluster } from './support/secure-cluster.js';

/** Short, so that identities are renewed during the test. */
const CERTIFICATE_LIFETIME_MS = 6_000;

let cluster: SecureCluster;
beforeAll(async () => {
  cluster = await SecureCluster.start({
    agents: [],
    coordinatorFlags: ['--user-certificate-lifetime', `${CERTIFICATE_LIFETIME_MS}ms`],
  });
});
afterAll(() => cluster?.stop());

const identityFile = (): string =>
  join(cluster.directory, 'ctl', 'identities', 'test', 'identity.json');
const readEnd = (): number =>
  (JSON.parse(readFileSync(identityFile(), 'utf8')) as { readonly notAfterMs: number }).notAfterMs;

describe('cloudlessctl in a cluster with TLS', () => {
  it('logs in, and renews its identity in several processes during an open watch', async () => {
    expect(await cluster.login()).toMatchObject({ code: 0 });
    expect(statSync(identityFile()).mode & 0o777).toBe(0o600);
    expect(statSync(join(identityFile(), '..')).mode & 0o777).toBe(0o700);
    const firstEnd = readEnd();
    const watch = cluster.startCtl('get', 'nodes', '--watch');
    // Two processes at a time, until the certificate of the login has long expired.
    while (Date.now() < firstEnd + CERTIFICATE_LIFETIME_MS) {
      const results = await Promise.all([1, 2].map(() => cluster.runCtl('whoami', '-o', 'json')));
      for (const { code, stdout, stderr } of results) {
        expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
        expect(JSON.parse(stdout)).toMatchObject({ principal: 'user/admin' });
      }
    }
    expect(readEnd()).toBeGreaterThan(firstEnd + CERTIFICATE_LIFETIME_MS / 2);
    expect(watch.lines).toEqual([]);
    const revoked = Date.now();
    const { stdout } = await cluster.runCtl('user', 'token', 'list', '-o', 'json');
    const { credentials } = JSON.parse(stdout) as {
      readonly credentials: readonly { readonly id: string; readonly kind: string }[];
    };
    const ids = credentials.filter(({ kind }) => kind === 'CERTIFICATE').map(({ id }) => id);
    await cluster.runCtl('user', 'token', 'revoke', ...ids);
    expect(await watch.exited).toBe(1);
    expect(Date.now() - revoked).toBeLessThan(5_000);
    expect(watch.lines.join('\n')).toContain('the certificate of user/admin was revoked');
  });

  it('gives a job with only a token the roles of its user', async () => {
    const { coordinator, users } = cluster.admin;
    expect((await coordinator.getServerInfo({})).clusterId).not.toBe('');
    await users.createUser({ name: 'job' });
    await users.grant({ user: 'job', role: 1, namespace: 'shop' });
    const { text } = await users.createUserToken({ user: 'job' });
    const env = { CLOUDLESS_SERVER: cluster.url, CLOUDLESS_TOKEN: text };
    const own = await cluster.runCtlWith(env, 'get', 'workloads', '-n', 'shop');
    expect(own).toMatchObject({ code: 0, stderr: 'no workloads in namespace shop\n' });
    const other = await cluster.runCtlWith(env, 'get', 'workloads', '-n', 'bank');
    expect(other).toMatchObject({ code: 1 });
    expect(other.stderr).toContain('cloudlessctl user grant job viewer -n bank\n');
    const plaintext = await cluster.runCtlWith(
      { CLOUDLESS_SERVER: cluster.url.replace('https:', 'http:') },
      'get',
      'workloads',
    );
    expect(plaintext).toMatchObject({ code: 5 });
    expect(plaintext.stderr).toContain(`speaks TLS; use ${cluster.url}\n`);
  });
});

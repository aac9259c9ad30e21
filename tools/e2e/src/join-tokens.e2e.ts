import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { createKeyAndCsr } from '@cloudless/identity/x509';
import { RunningProgram, findBundle } from './support/processes.js';
import { openTokenClients, type SecureClients } from './support/secure-client.js';
import { SecureCluster } from './support/secure-cluster.js';

let cluster: SecureCluster;

beforeAll(async () => {
  cluster = await SecureCluster.start({ agents: [] });
});
afterAll(() => cluster.stop());

/** Joins a new machine. Resolves with `joined`, or with the error. */
async function enroll(
  { coordinator }: Pick<SecureClients, 'coordinator'>,
  nodeId: string,
  token: string,
): Promise<string> {
  const { csr } = await createKeyAndCsr();
  const request = { nodeId, instanceId: `instance-of-${nodeId}-0123456789`, csr, token };
  return coordinator.enrollNode(request).then(
    () => 'joined',
    (reason: unknown) => String(reason),
  );
}

const INVALID = expect.stringContaining('the join token is not valid') as unknown;

describe('join tokens', () => {
  it('keep their uses and revocations over a crash, and are part of a backup', async () => {
    const { identities } = cluster.admin;
    const { text: twice } = await identities.createJoinToken({ maxUses: 2 });
    const { text: once } = await identities.createJoinToken({});
    const { text: revoked, token } = await identities.createJoinToken({});
    await identities.revokeJoinToken({ id: token?.id ?? '' });
    expect(await enroll(cluster.admin, 'machine-1', twice)).toBe('joined');

    await cluster.coordinator.kill('SIGKILL');
    await cluster.startCoordinator();
    const clients = await openTokenClients(cluster.url, cluster.adminToken);
    expect(await enroll(clients, 'machine-2', twice)).toBe('joined');
    expect(await enroll(clients, 'machine-3', twice)).toEqual(INVALID);
    expect(await enroll(clients, 'machine-3', revoked)).toEqual(INVALID);
    clients.close();

    const file = join(cluster.directory, 'cluster.backup');
    const restored = join(cluster.directory, 'restored');
    expect(await cluster.login()).toMatchObject({ code: 0 });
    expect(await cluster.runCtl('admin', 'backup', file)).toMatchObject({ code: 0 });
    await cluster.coordinator.kill('SIGTERM');
    expect(await cluster.runCtl('admin', 'restore', file, '--data-dir', restored)).toMatchObject({
      code: 0,
    });
    // The keys are no part of the backup of the state.
    cpSync(cluster.identityDir, join(restored, 'identity'), { recursive: true });
    const flags = ['--port', '0', '--ops-port', '0', '--data-dir', restored];
    const other = RunningProgram.start(process.execPath, [findBundle('coordinator'), ...flags]);
    try {
      const { url } = await other.waitForLog('coordinator ready');
      const after = await openTokenClients(String(url), cluster.adminToken);
      expect(await enroll(after, 'machine-4', revoked)).toEqual(INVALID);
      expect(await enroll(after, 'machine-4', twice)).toEqual(INVALID);
      expect(await enroll(after, 'machine-4', once)).toBe('joined');
      after.close();
    } finally {
      await other.kill('SIGTERM');
    }
  });

  it('make a coordinator without the key files of its authority refuse to start', async () => {
    const restored = join(cluster.directory, 'restored');
    const flags = ['--port', '0', '--ops-port', '0', '--data-dir', restored];
    const empty = join(cluster.directory, 'no-keys');
    const program = RunningProgram.start(process.execPath, [
      ...[findBundle('coordinator'), ...flags, '--identity-dir', empty],
    ]);
    expect(await program.exited).toBe(1);
    expect(program.lines.join('\n')).toContain(
      `the certificate authority has no directory ${join(empty, 'ca', '1')}; restore the directory from the backup`,
    );
  });
});

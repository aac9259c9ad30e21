import { X509Certificate } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { createAgentClient, Event_Category, Role } from '@cloudless/api';
import { openTlsSocket } from '@cloudless/rpc-node/tls-client';
import { CertificateUser, SecureCluster, type RunningProgram } from './index.js';

/** Validity of the certificates of nodes. */
const LIFETIME = '5s';

describe('the identity of an agent', () => {
  let cluster: SecureCluster;
  beforeAll(async () => {
    cluster = await SecureCluster.start({
      agents: ['a1'],
      coordinatorFlags: ['--node-certificate-lifetime', LIFETIME],
    });
    await cluster.admin.coordinator.createWorkload({
      name: 'web',
      spec: { command: ['sleep', '1000'], replicas: 1 },
    });
    await cluster.waitUntilSettled('web');
  }, 120_000);
  afterAll(() => cluster?.stop(), 60_000);

  const pathOf = (agent: string, name: string): string =>
    join(cluster.directory, agent, 'identity', name);
  const readCertificate = (agent: string): X509Certificate =>
    new X509Certificate(readFileSync(pathOf(agent, 'node.crt')));
  const readContainer = async (): Promise<string | undefined> => {
    const { status } = await cluster.admin.coordinator.getWorkload({ name: 'web' });
    return status?.replicas[0]?.containerId;
  };
  const countLogs = (agent: RunningProgram, message: string): number =>
    agent.lines.filter((line) => line.includes(`"${message}"`)).length;
  const waitUntil = async (condition: () => boolean | Promise<boolean>): Promise<void> => {
    while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  it('is renewed within its session, and before a session when it expired meanwhile; the replica runs on', async () => {
    const container = await readContainer();
    const agent = cluster.requireAgent('a1');
    const serials = new Set<string>();
    await waitUntil(() => serials.add(readCertificate('a1').serialNumber).size >= 2);
    expect(countLogs(agent, 'session established')).toBe(1);
    expect(countLogs(agent, 'certificate not renewed')).toBe(0);
    await agent.kill('SIGKILL');
    const { validTo } = readCertificate('a1');
    await waitUntil(() => Date.now() > Date.parse(validTo) + 1_000);
    await cluster.startAgent('a1');
    await cluster.requireAgent('a1').waitForLog('expired certificate renewed');
    expect(await readContainer()).toBe(container);
  }, 60_000);

  it('serves AgentService to users as far as their roles go, with each command in the audit log', async () => {
    await cluster.requireAgent('a1').kill('SIGKILL');
    await cluster.startAgent('a1', '--listen', '127.0.0.1:0');
    // Until then the node may be lost, and its replica assigned to no node.
    await cluster.requireAgent('a1').waitForLog('session established');
    await cluster.waitUntilSettled('web');
    const { url } = await cluster.requireAgent('a1').waitForLog('AgentService listening');
    const execAs = async (token: string): Promise<string> => {
      const user = await CertificateUser.login(cluster.url, token);
      const { certificate, keyPem } = user;
      const serverIds = ['spiffe://cloudless/node/a1'];
      const tls = { ...certificate, keyPem, serverIds, trustDomain: 'cloudless' };
      const address = String(url);
      const sessions = new Http2SessionManager(
        address,
        {},
        { createConnection: () => openTlsSocket(address, tls) },
      );
      const agent = createAgentClient(
        createGrpcTransport({ baseUrl: address, sessionManager: sessions }),
      );
      try {
        return (await agent.execCommand({ name: 'web', command: ['echo', 'direct'] })).stdout;
      } finally {
        sessions.abort();
        await user.close();
      }
    };
    expect(await execAs(cluster.adminToken)).toBe('direct\n');
    expect(await execAs(cluster.adminToken)).toBe('direct\n');
    await cluster.admin.users.createUser({ name: 'eve' });
    await cluster.admin.users.grant({ user: 'eve', role: Role.VIEWER, namespace: 'default' });
    const { text } = await cluster.admin.users.createUserToken({ user: 'eve' });
    await expect(execAs(text)).rejects.toThrow(
      'user/eve does not have the role operator in any namespace',
    );
    const { events } = await cluster.admin.coordinator.listEvents({
      categories: [Event_Category.AUDIT],
    });
    const execs = events.filter(({ reason }) => reason === 'ExecCommand');
    expect(execs.map(({ audit }) => audit?.principal)).toEqual(['user/admin', 'user/admin']);
  }, 60_000);

  it('ends within 5 s of a ban, and comes back with a new token while the replica runs on', async () => {
    const container = await readContainer();
    const agent = cluster.requireAgent('a1');
    const bannedAt = Date.now();
    await cluster.admin.identities.banNode({ nodeId: 'a1', reason: 'test' });
    const refused = await agent.waitForLog('no session: the coordinator rejects this agent');
    expect(Date.now() - bannedAt).toBeLessThan(5_000);
    expect(refused['remedy']).toMatch(/^cloudlessctl node unban a1, then/);
    await cluster.admin.identities.unbanNode({ nodeId: 'a1' });
    const { text } = await cluster.admin.identities.createJoinToken({});
    writeFileSync(cluster.joinTokenFile, text);
    await agent.kill('SIGKILL');
    await cluster.startAgent('a1');
    await cluster.requireAgent('a1').waitForLog('node joined the cluster');
    await waitUntil(async () => (await readContainer()) === container);
  }, 90_000);

  it('comes from a join that is repeated after a lost reply with one use of the token', async () => {
    const { token, text } = await cluster.admin.identities.createJoinToken({ maxUses: 1 });
    writeFileSync(cluster.joinTokenFile, text);
    const launched = cluster.launchAgent('a2');
    let request = '';
    await waitUntil(() => {
      try {
        request = readFileSync(pathOf('a2', 'request.json'), 'utf8');
      } catch {
        // not yet written
      }
      return request !== '';
    });
    await launched;
    await cluster.requireAgent('a2').waitForLog('node joined the cluster');
    await cluster.requireAgent('a2').kill('SIGKILL');
    // What the disk holds when the reply never arrives: the request with its key.
    rmSync(join(cluster.directory, 'a2', 'identity'), { recursive: true });
    mkdirSync(join(cluster.directory, 'a2', 'identity'), { mode: 0o700 });
    writeFileSync(pathOf('a2', 'request.json'), request, { mode: 0o600 });
    await cluster.startAgent('a2');
    await cluster.requireAgent('a2').waitForLog('node joined the cluster');
    const { tokens } = await cluster.admin.identities.listJoinTokens({});
    expect(tokens.find(({ id }) => id === token?.id)?.uses).toMatchObject([{ nodeId: 'a2' }]);
    await cluster.requireAgent('a2').kill('SIGTERM');
  }, 60_000);
});

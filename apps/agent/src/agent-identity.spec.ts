import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import * as http2 from 'node:http2';
import * as https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import { createAgentClient, RenewCertificateSchema } from '@cloudless/api';
import type { TestCredential } from '@cloudless/identity/testing';
import { createGrpcTransportOver, openTlsSocket } from '@cloudless/rpc-node/client';
import { AgentProcess } from './testing/agent-process.js';
import { FakeCoordinatorServer } from './testing/fake-coordinator-server.js';
import { FakeIdentities } from './testing/fake-identities.js';

jest.setTimeout(60_000);

describe('cloudless-agent in a cluster with identities', () => {
  let identities: FakeIdentities;
  let coordinator: FakeCoordinatorServer;
  let directory: string;
  let dataDir: string;
  const agents: AgentProcess[] = [];

  const startAgent = (...args: readonly string[]): AgentProcess => {
    const agent = new AgentProcess(
      ...['run', '--name', 'agent-1', '--coordinator', coordinator.url, '--data-dir', dataDir],
      ...['--runtime', 'process', ...args],
    );
    agents.push(agent);
    return agent;
  };
  const writeToken = async (text: string): Promise<string> => {
    const path = join(directory, 'token');
    await writeFile(path, `${text}\n`, { mode: 0o600 });
    return path;
  };

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'agent-secure-'));
    dataDir = join(directory, 'agent');
    identities = await FakeIdentities.create();
    coordinator = new FakeCoordinatorServer(identities);
    await coordinator.listen();
  });

  afterEach(() => Promise.all(agents.map((agent) => agent.end('SIGKILL'))));

  afterAll(async () => {
    await Promise.all(agents.map((agent) => agent.end('SIGKILL')));
    await coordinator.close();
    await rm(directory, { recursive: true, force: true });
  });

  it('does not start without an identity and a token, and says what to do', async () => {
    const agent = startAgent();
    expect(await agent.waitForExit()).toBe(2);
    expect(agent.stderr).toEqual([
      'cloudless-agent: node agent-1 has not joined its cluster; create a join token with cloudlessctl token create, and start the agent with --join-token-file FILE',
    ]);
  });

  it('ends with exit code 2, with which systemd does not start it again, when its token is refused', async () => {
    const wrong = identities.token.replace('abcdefghij12', 'aaaaaaaaaaaa');
    const agent = startAgent('--join-token-file', await writeToken(wrong));
    expect(await agent.waitForExit()).toBe(2);
    expect(agent.stderr[0]).toMatch(
      /^cloudless-agent: the coordinator refuses the join token: .* create another one with cloudlessctl token create/,
    );
    expect(identities.enrolments).toBe(1);
    expect(JSON.stringify([agent.lines, agent.stderr])).not.toContain('aaaaaaaaaaaa.s');
  });

  it('sends nothing to a server of another cluster', async () => {
    const other = await FakeIdentities.create();
    const agent = startAgent('--join-token-file', await writeToken(other.token));
    const failure = await agent.waitForLog('no session: the coordinator rejects this agent');
    expect(String(failure['error'])).toMatch(
      /is not trusted: its certificate is not of the certificate authority that the token names; check the address/,
    );
    await agent.end('SIGTERM');
    expect(identities.enrolments).toBe(1);
  });

  it('joins over TLS after lost replies with one use of the token, and has no listening port', async () => {
    identities.losesReplies = true;
    const path = await writeToken(identities.token);
    const first = startAgent('--join-token-file', path);
    await first.waitForLog('no session; replicas keep running');
    await first.end('SIGKILL');
    const agent = startAgent('--join-token-file', path);
    await agent.waitForLog('no session; replicas keep running');
    identities.losesReplies = false;
    await agent.waitForLog('session established');
    expect(identities.joinedKeys).toHaveLength(1);
    expect(identities.enrolments).toBeGreaterThanOrEqual(3);
    const { pings } = coordinator;
    await coordinator.waitUntil(() => coordinator.pings > pings);
    const { pid } = await agent.waitForLog('agent started, connecting to coordinators');
    if (process.platform === 'linux') {
      const { stdout } = await promisify(execFile)('ss', ['-ltnpH']).catch(() => ({ stdout: '' }));
      expect(stdout.split('\n').filter((line) => line.includes(`pid=${String(pid)},`))).toEqual([]);
    }
    await agent.end('SIGTERM');
    expect(await readdir(join(dataDir, 'identity'))).toEqual(
      expect.arrayContaining(['ca.crt', 'identity.json', 'node.crt', 'node.key']),
    );
  });

  it('starts again with its identity, without the file of its token', async () => {
    const { enrolments } = identities;
    await rm(join(directory, 'token'));
    const agent = startAgent('--join-token-file', join(directory, 'token'));
    await agent.waitForLog(
      'this node has joined its cluster; its identity takes precedence over the join token',
    );
    await agent.waitForLog('session established');
    expect(identities.enrolments).toBe(enrolments);
    await agent.end('SIGTERM');
  });

  it('renews certificates that live for seconds within one session, and an expired one at its start', async () => {
    identities.lifetimeMs = 2_000;
    const { renewals } = identities;
    const agent = startAgent();
    await agent.waitForLog('session established');
    const { sessions } = coordinator;
    coordinator.send({ case: 'renewCertificate', value: create(RenewCertificateSchema) });
    await coordinator.waitUntil(() => identities.renewals >= renewals + 2);
    await agent.waitForLog('certificate renewed');
    identities.clockOffsetMs = -60 * 60_000; // from now on, certificates have expired
    await agent.waitForLog('the clock of this machine differs from the clock of the coordinator');
    expect(coordinator.sessions).toBe(sessions);
    await agent.end('SIGKILL');
    identities.lifetimeMs = 60 * 60_000;
    identities.clockOffsetMs = 0;
    const next = startAgent();
    await next.waitForLog('expired certificate renewed');
    await next.waitForLog('session established');
    await next.end('SIGTERM');
  });

  it('serves AgentService over TLS to users that the coordinator permits, and to no others', async () => {
    const agent = startAgent('--listen', '127.0.0.1:0', '--ops-listen', '0.0.0.0:0');
    const ready = await agent.waitForLog('agent started, connecting to coordinators');
    await agent.waitForLog('session established');
    const address = `https://${String(ready['address'])}`;
    expect(coordinator.agentAddresses.at(-1)).toBe(ready['address']);
    const call = async (name: string | undefined) => {
      const credential =
        name === undefined ? undefined : await identities.authority.issue('user', name);
      const session = http2.connect(address, {
        createConnection: () =>
          openTlsSocket(address, {
            bundlePem: identities.authority.bundlePem,
            serverIds: ['spiffe://cloudless/node/agent-1'],
            trustDomain: 'cloudless',
            keyPem: credential?.keyPem,
            chainPem: credential?.chainPem,
          }),
      });
      const client = createAgentClient(createGrpcTransportOver(session, address, 1_000_000));
      return client.listContainers({}).finally(() => session.destroy());
    };
    identities.allowedUsers.add('ada');
    expect((await call('ada')).containers).toEqual([]);
    await expect(call('bob')).rejects.toThrow('user/bob may not call ListContainers');
    await expect(call(undefined)).rejects.toThrow('the call has no identity');
    const ada = await identities.authority.issue('user', 'ada');
    const bob = await identities.authority.issue('user', 'bob');
    const port = new URL(String(ready['opsUrl'])).port;
    const readPage = (path: string, credential?: TestCredential): Promise<number> =>
      new Promise((resolve, reject) => {
        const options = {
          ca: identities.authority.bundlePem,
          checkServerIdentity: () => undefined,
          ...(credential === undefined
            ? {}
            : { key: credential.keyPem, cert: credential.chainPem }),
        };
        https
          .get(`https://127.0.0.1:${port}${path}`, options, (response) => {
            response.resume();
            resolve(response.statusCode ?? 0);
          })
          .once('error', reject);
      });
    expect([
      await readPage('/ready'),
      await readPage('/metrics'),
      await readPage('/metrics', bob),
      await readPage('/metrics', ada),
    ]).toEqual([200, 401, 403, 200]);
    await agent.end('SIGTERM');
  });

  it('tells how a banned node comes back, and uses a new token as soon as there is one', async () => {
    identities.refusal = new CloudlessError('NODE_BANNED', 'node agent-1 is banned');
    const agent = startAgent('--join-token-file', join(directory, 'token'));
    const failure = await agent.waitForLog('no session: the coordinator rejects this agent');
    expect(failure['remedy']).toMatch(
      /^cloudlessctl node unban agent-1, then cloudlessctl node join-command/,
    );
    await agent.end('SIGTERM');
    identities.refusal = undefined;
  });

  it('writes no key and no token to its output', async () => {
    const key = await readFile(join(dataDir, 'identity', 'node.key'), 'utf8');
    const output = agents.flatMap(({ lines, stderr }) => [JSON.stringify(lines), ...stderr]);
    const secrets = [identities.token.split('.')[2] ?? '', key.split('\n')[1] ?? ''];
    expect(secrets.every((secret) => secret.length > 20)).toBe(true);
    for (const secret of secrets) expect(output.join('\n')).not.toContain(secret);
  });

  it('reset removes the identity and says so', async () => {
    const reset = new AgentProcess('reset', '--data-dir', dataDir);
    expect(await reset.waitForExit()).toBe(0);
    expect(reset.lines.map(({ text }) => text)).toContain(
      'the identity was removed: to join again, the agent needs a join token',
    );
    expect(await readdir(dataDir)).not.toContain('identity');
  });
});

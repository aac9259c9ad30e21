import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import {
  Reload_Mode as ReloadMode,
  Role,
  CertificateAuthorityRotation_Phase as RotationPhase,
} from '@cloudless/api';
import { QUICK } from './support/cluster.js';
import { SecretScan } from './support/secret-scan.js';
import { SecureCluster } from './support/secure-cluster.js';
import { CertificateUser, openTokenClients } from './support/secure-client.js';
import { TraceReceiver } from './support/trace-receiver.js';

/** Prints its environment and that of its parent, then runs until it is stopped. */
const PRINTER = [
  'sh',
  '-c',
  'env; tr "\\0" "\\n" < /proc/$PPID/environ; tr "\\0" "\\n" < /proc/$PPID/cmdline; exec sleep 1000',
];

let cluster: SecureCluster;
let scan: SecretScan;
let user: CertificateUser | undefined;
/** Values of secrets. */
const values: string[] = [];
const traces = new TraceReceiver();
beforeAll(async () => {
  process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = await traces.listen();
  cluster = await SecureCluster.start({
    agents: ['agent-1'],
    coordinatorFlags: [...['--node-certificate-lifetime', '6s', '--log-level', 'debug']],
    agentFlags: ['--log-level', 'debug', '--ops-listen', '127.0.0.1:0'],
  });
  scan = new SecretScan();
  cluster.addSecretsTo(scan);
});
afterAll(async () => {
  delete process.env['OTEL_EXPORTER_OTLP_ENDPOINT'];
  await user?.close();
  await cluster.stop();
  traces.close();
});

/** Returns the token with another last character of its secret, which is searched for as well. */
function tamper(token: string): string {
  const tampered = token.replace(/(\.[A-Za-z0-9_-]{42})(.)(\.[0-9a-f]{64})$/, (_, head, last, ca) =>
    [head, last === 'A' ? 'Q' : 'A', ca].join(''),
  );
  expect(tampered).not.toBe(token);
  scan.addToken('a tampered token', tampered);
  return tampered;
}

/** Makes a call in JSON over HTTP/1.1 with a bearer token, and returns the whole answer. */
function callWithBearer(token: string, path: string, body = '{}'): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const url = new URL(path, cluster.url);
    const call = request(url, { method: 'POST', headers, rejectUnauthorized: false }, (answer) => {
      let text = JSON.stringify(answer.headers);
      answer.on('data', (chunk: Buffer) => (text += chunk.toString()));
      answer.on('end', () => resolve(`${answer.statusCode} ${text}`));
    });
    call.on('error', reject);
    call.end(body);
  });
}

async function messageOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => 'no error',
    (reason: unknown) => `${String(reason)} ${JSON.stringify(reason, replaceBigint)}`,
  );
}

const replaceBigint = (_key: string, value: unknown): unknown =>
  typeof value === 'bigint' ? String(value) : value;

/** Runs cloudlessctl, and searches everything that it prints. */
const runCtl = (...args: readonly string[]): Promise<string> => runCtlWithInput('', ...args);

async function runCtlWithInput(input: string, ...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await cluster.runCtlWithInput(input, ...args);
  scan.addText(`output of cloudlessctl ${args.slice(0, 3).join(' ')}`, stdout + stderr);
  return `${code} ${stdout}${stderr}`;
}

/** Creates a value of a secret, which is searched for from now on. */
function createValue(name: string): string {
  const value = randomBytes(24).toString('base64url');
  scan.addValue(name, Buffer.from(value));
  values.push(value);
  return value;
}

/** Returns the number of values that a scan of the files of replicas finds. */
function countDelivered(): number {
  const control = new SecretScan();
  for (const [index, value] of values.entries())
    control.addValue(`value ${index}`, Buffer.from(value));
  for (const directory of cluster.replicaFilesDirs)
    if (existsSync(directory)) control.addDirectory(directory);
  return new Set(control.findings.map(({ secret }) => secret)).size;
}

it('keys, tokens and secrets appear in no log, event, dump, backup, error, metric, trace or process', async () => {
  const { coordinator, users, identities } = cluster.admin;
  expect(scan.secrets.length).toBeGreaterThanOrEqual(6);

  // Credentials of every kind come into use: tokens of users, client certificates, join tokens.
  await users.createUser({ name: 'canary' });
  await users.grant({ user: 'canary', role: Role.ADMIN });
  const { text: userToken } = await users.createUserToken({ user: 'canary', description: 'test' });
  scan.addToken('token of the user', userToken);
  const joining = await identities.createJoinToken({ maxUses: 2, description: 'test' });
  scan.addToken('second join token', joining.text);
  user = await CertificateUser.login(cluster.url, userToken);
  scan.addPrivateKey('key of the user', user.keyPem);
  expect(await cluster.login()).toMatchObject({ code: 0 });
  const byEnvironment = cluster.spawnAgent('agent-2', [], { CLOUDLESS_JOIN_TOKEN: joining.text });
  await byEnvironment.waitForLog('session established');
  const fromStdin = ['--from-stdin', 'password'];
  const audiences = ['--audience', 'workload/*', '--audience', 'test'];
  const create = ['secret', 'create', 'canary', ...fromStdin, ...audiences];
  expect(await runCtlWithInput(createValue('first value'), ...create)).toMatch(/^0 /);
  const secrets = [{ name: 'canary', reload: { mode: ReloadMode.NONE } }];
  await coordinator.createWorkload({
    name: 'printer',
    spec: { ...QUICK, command: PRINTER, replicas: 2, secrets },
  });
  await cluster.waitUntilSettled('printer');
  expect(countDelivered()).toBe(1);
  const update = ['secret', 'update', 'canary', ...fromStdin, '--yes'];
  expect(await runCtlWithInput(createValue('second value'), ...update)).toMatch(/^0 /);
  // An agent that is killed delivers again what its replicas use.
  const killed = cluster.requireAgent('agent-1');
  await killed.kill('SIGKILL');
  scan.addText('log of the killed agent', killed.lines.join('\n'));
  await cluster.startAgent('agent-1');
  await cluster.waitUntilSettled('printer');
  const count = 'wc -c < "$CLOUDLESS_SECRETS_DIR/canary/password"';
  expect(await runCtl('exec', 'printer', '--', 'sh', '-c', count)).toMatch(/^0 32/);
  for (const args of [create, ['secret', 'update', 'none', ...fromStdin]])
    expect(await runCtlWithInput(createValue('refused value'), ...args)).toMatch(/^[34] /);
  const asTest = ['canary', '--audience', 'test'];
  const { stdout: accessToken } = await cluster.runCtl('secret', 'token', 'create', ...asTest);
  scan.addToken('access token', accessToken.trim());
  const read = ['secret', 'get', ...asTest, '--access-token-file', '-', '--key', 'password'];
  const { stdout: value } = await cluster.runCtlWithInput(accessToken, ...read);
  expect(value).toBe(values[1]);
  // The token is used up.
  expect(await runCtlWithInput(accessToken, ...read)).toMatch(/^1 /);
  const revoke = ['secret', 'token', 'revoke', 'canary', '--access-token-file', '-'];
  expect(await runCtlWithInput(accessToken, ...revoke)).toMatch(/^0 /);
  expect(await runCtl('secret', 'audit', 'canary')).toMatch(/used up/);

  // Mistakes with them: every error, audit record and log line of a refusal.
  const path = '/cloudless.api.UserService/WhoAmI';
  for (const token of [tamper(userToken), tamper(cluster.adminToken), joining.text]) {
    const answer = await callWithBearer(token, path);
    expect(answer).toMatch(/^401 /);
    scan.addText('answer to a wrong token', answer);
  }
  scan.addText('answer to a token', await callWithBearer(userToken, path));
  const createPath = '/cloudless.api.SecretsService/CreateSecret';
  const broken = `{"name":"x","data":{"key":"${createValue('malformed value')}"`;
  for (const body of [broken, `${broken}},"audiences":1}`]) {
    const answer = await callWithBearer(userToken, createPath, body);
    expect(answer).toMatch(/^400 /);
    scan.addText('answer to a malformed request', answer);
  }
  const wrong = await openTokenClients(cluster.url, tamper(userToken));
  scan.addText('error', await messageOf(wrong.coordinator.listWorkloads({})));
  wrong.close();
  const stranger = cluster.spawnAgent('agent-3', [], {
    CLOUDLESS_JOIN_TOKEN: tamper(joining.text),
  });
  expect(await stranger.exited).not.toBe(0);
  const named = [userToken, joining.text, cluster.joinToken];
  for (const name of named)
    scan.addText('error', await messageOf(users.revokeUserToken({ id: name })));
  for (const name of named)
    scan.addText('error', await messageOf(identities.revokeJoinToken({ id: name })));

  // Keys are replaced: those of nodes by renewals, those of the authority by hand.
  await identities.rotateCertificateAuthority({});
  for (;;) {
    const { rotation } = await identities.getCertificateAuthority({});
    if (rotation?.phase === RotationPhase.REISSUING) break;
    cluster.addSecretsTo(scan);
  }
  cluster.addSecretsTo(scan);
  await users.deleteUser({ name: 'canary' });

  const logs = await runCtl('logs', 'printer', '--tail', '500');
  expect(logs).toContain('CLOUDLESS_REPLICA_ID=');
  const backup = join(cluster.directory, 'backup.clb');
  expect(await runCtl('admin', 'backup', backup)).toMatch(/^0 /);
  for (const kind of ['events', 'nodes', 'workloads']) await runCtl('get', kind, '-o', 'json');
  await runCtl('events', '-o', 'yaml', '--since', '1h');
  await runCtl('admin', 'ca', '-o', 'json');
  await runCtl('token', 'list', '-o', 'json');
  await runCtl('user', 'token', 'list', 'admin', '-o', 'json');
  await runCtl('describe', 'node', 'agent-1');
  await runCtl('secret', 'describe', 'canary');
  const following = cluster.startCtl('logs', '-f', 'printer');
  await following.waitForLine((line) => line.includes('CLOUDLESS_REPLICA_ID='));
  scan.addProcesses([following.pid]);
  await following.kill('SIGTERM');
  const agentUrls = ['agent-1', 'agent-2'].map((name) => cluster.waitForOpsUrl(name));
  for (const url of [cluster.opsUrl, ...(await Promise.all(agentUrls))])
    scan.addText(`metrics of ${url}`, await (await fetch(`${url}/metrics`)).text());
  await traces.waitForTexts(
    ...['cloudless-coordinator', 'cloudless-agent', 'CreateSecret', 'RotateCertificateAuthority'],
  );
  scan.addBytes('traces', traces.received);
  cluster.addOutputsTo(scan, { environmentsOf: ['agent-2', 'agent-3'] });

  expect(scan.findings).toEqual([]);
  // The oracle would see the secrets: they are where they belong.
  const control = new SecretScan();
  cluster.addSecretsTo(control);
  control.addDirectory(cluster.identityDir);
  expect(countDelivered()).toBeGreaterThan(0);
  expect(control.findings.length).toBeGreaterThan(5);
  expect(readFileSync(backup).length).toBeGreaterThan(1_000);
  expect(scan.scannedBytes).toBeGreaterThan(100_000);
});

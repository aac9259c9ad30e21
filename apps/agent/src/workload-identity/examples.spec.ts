import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { silentLog } from '@cloudless/base';
import { CertificateAuthority, createKeyAndCsr, readCsr } from '@cloudless/identity/x509';
import { FileWorkloadIdentities } from './file-workload-identities.js';

const example = (name: string): string =>
  fileURLToPath(new URL(`../../../../examples/workload-identity/${name}`, import.meta.url));
const idOf = (workload: string): string => `spiffe://cloudless/workload/default.${workload}`;

let dataDir: string;
let authority: CertificateAuthority;
let files: FileWorkloadIdentities;
let children: ChildProcess[];

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'identity-example-'));
  authority = await createAuthority();
  const noMemory = {
    isAvailable: () => false,
    mount: async () => undefined,
    unmount: async () => undefined,
  };
  files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
  children = [];
});
afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  await rm(dataDir, { recursive: true, force: true });
});

async function createAuthority(): Promise<CertificateAuthority> {
  const options = { trustDomain: 'cloudless', generation: 1, nowMs: Date.now() };
  return (await CertificateAuthority.create(options)).authority;
}

/** Gives a replica a certificate and returns its directory. */
async function issue(workload: string, issuer = authority): Promise<string> {
  const { keyPem, csr } = await createKeyAndCsr();
  const { publicKey } = await readCsr(csr);
  const nowMs = Date.now();
  const { pem: chainPem } = await issuer.issue({
    id: { trustDomain: 'cloudless', kind: 'workload', id: `default.${workload}` },
    ...{ publicKey, lifetimeMs: 3_600_000, nowMs, usage: 'both' },
  });
  const { path } = await files.open(`${workload}-1`);
  const credential = { chainPem, keyPem, bundlePem: issuer.rootPem, obtainedAtMs: nowMs };
  await files.write(`${workload}-1`, credential, {});
  return path;
}

/** Starts the server of the example; returns its address and a function that awaits its next line. */
async function startServer(directory: string, client: string) {
  const env = { CLOUDLESS_IDENTITY_DIR: directory, CLIENT: client, PORT: '0', CHECK_MS: '20' };
  const server = spawn(process.execPath, [example('server.mjs')], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(server);
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  const nextLine = async (): Promise<string> => String((await lines.next()).value);
  const port = /^listening on (\d+)$/.exec(await nextLine())?.[1];
  return { url: `https://127.0.0.1:${port}/`, nextLine };
}

/** Runs the client of the example; returns its exit code and everything that it printed. */
async function runClient(directory: string, url: string, server: string) {
  const env = { CLOUDLESS_IDENTITY_DIR: directory, URL: url, SERVER: server };
  const client = spawn(process.execPath, [example('client.mjs')], { env, stdio: 'pipe' });
  children.push(client);
  let text = '';
  for (const stream of [client.stdout, client.stderr])
    stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const [exitCode] = (await once(client, 'close')) as [number];
  return { exitCode, text };
}

describe('Node.js example of workload identity', () => {
  it('lets the expected workload call the expected workload, also after a renewal of both', async () => {
    const backend = await issue('backend');
    const frontend = await issue('frontend');
    const { url, nextLine } = await startServer(backend, idOf('frontend'));
    const expected = { exitCode: 0, text: 'hello\n' };
    expect(await runClient(frontend, url, idOf('backend'))).toEqual(expected);
    await issue('backend');
    expect(await nextLine()).toBe('certificate replaced');
    await issue('frontend');
    expect(await runClient(frontend, url, idOf('backend'))).toEqual(expected);
  });

  it('refuses another workload of the cluster, on either side, and a workload of another cluster', async () => {
    const { url } = await startServer(await issue('backend'), idOf('frontend'));
    expect(await runClient(await issue('other'), url, idOf('backend'))).toEqual({
      exitCode: 1,
      text: `URI:${idOf('other')} may not call this server\n`,
    });
    expect(await runClient(await issue('frontend'), url, idOf('database'))).toEqual({
      exitCode: 1,
      text: `the server is URI:${idOf('backend')}, not ${idOf('database')}\n`,
    });
    const foreign = await issue('frontend', await createAuthority());
    expect(await runClient(foreign, url, idOf('backend'))).toMatchObject({ exitCode: 1 });
  });
});

import { readFileSync, statSync } from 'node:fs';
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  realpath,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { silentLog, type Log } from '@cloudless/base';
import { CertificateAuthority, createKeyAndCsr, readCsr } from '@cloudless/identity/x509';
import { mountMemory, unmountMemory } from '@cloudless/runtime-cri';
import { FileWorkloadIdentities, type MemoryMounts } from './file-workload-identities.js';

const NOW_MS = Date.UTC(2026, 0, 1);
const isRoot = process.getuid?.() === 0;
const noMemory: MemoryMounts = {
  isAvailable: () => false,
  mount: () => Promise.reject(new Error('not available')),
  unmount: async () => undefined,
};
const realMemory: MemoryMounts = {
  isAvailable: () => true,
  mount: (directory) => mountMemory('test', directory, { mode: 0o755, noSwap: true }),
  unmount: unmountMemory,
};

let dataDir: string;
let authority: CertificateAuthority;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'identities-'));
  ({ authority } = await CertificateAuthority.create({
    trustDomain: 'cloudless',
    generation: 1,
    nowMs: NOW_MS,
  }));
});
afterEach(async () => {
  await new FileWorkloadIdentities(dataDir, isRoot ? realMemory : noMemory, silentLog).removeAll();
  await rm(dataDir, { recursive: true, force: true });
});

const toPath = (replicaId: string, ...names: readonly string[]): string =>
  join(dataDir, 'workload-identities', replicaId, ...names);
const modeOf = (path: string): number => statSync(path).mode & 0o777;

/** Returns a new key with its certificate, valid for one hour. */
async function createCredential() {
  const { keyPem, csr } = await createKeyAndCsr();
  const { publicKey } = await readCsr(csr);
  const { pem: chainPem } = await authority.issue({
    id: { trustDomain: 'cloudless', kind: 'workload', id: 'default.web' },
    ...{ publicKey, lifetimeMs: 3_600_000, nowMs: NOW_MS, usage: 'both' },
  });
  return { chainPem, keyPem, bundlePem: authority.rootPem, obtainedAtMs: NOW_MS };
}

describe('FileWorkloadIdentities', () => {
  it('returns what it stores, with the validity of the certificate', async () => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    const credential = await createCredential();
    await files.open('web-1');
    expect(await files.read('web-1')).toBeUndefined();
    const stored = await files.write('web-1', credential, {});
    expect(stored).toMatchObject({ ...credential, notAfterMs: NOW_MS + 3_600_000 });
    expect(await files.read('web-1')).toEqual(stored);
    expect(await readFile(toPath('web-1', 'tls.key'), 'utf8')).toBe(credential.keyPem);
    expect(await readFile(toPath('web-1', 'tls.crt'), 'utf8')).toBe(credential.chainPem);
    expect(await readFile(toPath('web-1', 'ca.crt'), 'utf8')).toBe(credential.bundlePem);
  });

  it('never shows a reader the key of one certificate beside another certificate', async () => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await files.open('web-1');
    const credentials = await Promise.all(Array.from({ length: 5 }, createCredential));
    const keyOf = new Map(credentials.map(({ chainPem, keyPem }) => [chainPem, keyPem]));
    await files.write('web-1', credentials[0]!, {});
    let hasEnded = false;
    let readCount = 0;
    const reader = (async () => {
      while (!hasEnded) {
        const folder = await realpath(toPath('web-1', '..data'));
        const [chain, key] = await Promise.all(
          ['tls.crt', 'tls.key'].map((name) => readFile(join(folder, name), 'utf8')),
        );
        expect(keyOf.get(chain!)).toBe(key);
        readCount += 1;
      }
    })();
    for (const credential of credentials) {
      const before = readCount;
      await files.write('web-1', credential, {});
      while (readCount <= before) await new Promise((resolve) => setImmediate(resolve));
    }
    hasEnded = true;
    await reader;
    expect(readCount).toBeGreaterThan(4);
  });

  it('keeps the previous files for readers that have resolved their folder, and no older files', async () => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await files.open('web-1');
    for (let round = 0; round < 4; round += 1)
      await files.write('web-1', await createCredential(), {});
    expect((await readdir(toPath('web-1'))).sort()).toEqual([
      ...['..data', '..version-3', '..version-4'],
      ...['ca.crt', 'tls.crt', 'tls.key'],
    ]);
    expect(await readlink(toPath('web-1', '..data'))).toBe('..version-4');
  });

  it('goes on after a crash between two steps of a change', async () => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await files.open('web-1');
    const first = await createCredential();
    await files.write('web-1', first, {});
    await writeFile(toPath('web-1', '..data.draft'), 'left by a crash');
    await mkdir(toPath('web-1', '..version-7'));
    expect(await files.read('web-1')).toMatchObject({ keyPem: first.keyPem });
    const second = await createCredential();
    await files.write('web-1', second, {});
    expect(await files.read('web-1')).toMatchObject({ keyPem: second.keyPem });
    expect(await readdir(toPath('web-1'))).not.toContain('..version-7');
  });

  it.each(['tls.crt', 'tls.key', 'ca.crt'])('reads no credential without %s', async (name) => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await files.open('web-1');
    await files.write('web-1', await createCredential(), {});
    await rm(toPath('web-1', '..data', name));
    expect(await files.read('web-1')).toBeUndefined();
  });

  it('reads no credential from a damaged certificate', async () => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await files.open('web-1');
    await files.write('web-1', await createCredential(), {});
    await rm(toPath('web-1', '..data', 'tls.crt'));
    await writeFile(toPath('web-1', '..data', 'tls.crt'), 'no certificate');
    expect(await files.read('web-1')).toBeUndefined();
  });

  it('lets only the user of the agent enter the folder with all directories', async () => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await files.open('web-1');
    expect(modeOf(toPath('.'))).toBe(0o700);
  });

  it('lets every user of the container read the files when the user is not known', async () => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await files.open('web-1');
    await files.write('web-1', await createCredential(), {});
    expect(modeOf(toPath('web-1', 'tls.key'))).toBe(0o444);
    expect(modeOf(toPath('web-1', '..data'))).toBe(0o755);
  });

  (isRoot ? it : it.skip).each([
    { reader: { userId: 1000 }, mode: 0o400, owner: [1000, 0] },
    { reader: { userId: 1000, groupId: 7 }, mode: 0o440, owner: [1000, 7] },
  ])('gives the files to the reader $reader', async ({ reader, mode, owner }) => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await files.open('web-1');
    await files.write('web-1', await createCredential(), reader);
    for (const name of ['tls.crt', 'tls.key', 'ca.crt']) {
      const { uid, gid } = await stat(toPath('web-1', name));
      expect([name, modeOf(toPath('web-1', name)), uid, gid]).toEqual([name, mode, ...owner]);
    }
  });

  it('lists and removes the directories of replicas', async () => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    expect(await files.list()).toEqual([]);
    for (const replicaId of ['web-1', 'web-2']) await files.open(replicaId);
    await files.write('web-1', await createCredential(), {});
    await files.remove('web-1');
    await files.remove('unknown');
    expect(await files.list()).toEqual(['web-2']);
  });

  it.each(['..', '', '.hidden', 'a/b', '../x'])('rejects the replica id %j', async (replicaId) => {
    const files = new FileWorkloadIdentities(dataDir, noMemory, silentLog);
    await expect(files.open(replicaId)).rejects.toMatchObject({ kind: 'invalid' });
    await expect(files.remove(replicaId)).rejects.toMatchObject({ kind: 'invalid' });
  });

  (isRoot ? it : it.skip)(
    'keeps the files in memory, over a restart of the agent, until they are removed',
    async () => {
      const files = new FileWorkloadIdentities(dataDir, realMemory, silentLog);
      expect(await files.open('web-1')).toEqual({ path: toPath('web-1'), inMemory: true });
      await files.write('web-1', await createCredential(), {});
      const mounts = (): readonly string[] =>
        readFileSync('/proc/self/mountinfo', 'utf8')
          .split('\n')
          .filter((line) => line.includes(toPath('web-1')));
      expect(mounts()).toEqual([expect.stringMatching(/nosuid,nodev.* tmpfs /)]);
      const next = new FileWorkloadIdentities(dataDir, realMemory, silentLog);
      await next.open('web-1');
      expect(mounts()).toHaveLength(1);
      expect(await next.read('web-1')).toBeDefined();
      await next.remove('web-1');
      expect([mounts(), await next.list()]).toEqual([[], []]);
    },
  );

  it('stores the files on disk and warns once when no tmpfs can be mounted', async () => {
    const warnings: unknown[] = [];
    const log: Log = { ...silentLog, warn: (...args: unknown[]) => void warnings.push(args) };
    const memory = { ...noMemory, isAvailable: () => true };
    const files = new FileWorkloadIdentities(dataDir, memory, log);
    expect(await files.open('web-1')).toMatchObject({ inMemory: false });
    await files.open('web-2');
    expect(warnings).toEqual([
      [
        'keys of replicas are stored on disk, because no tmpfs can be mounted',
        expect.objectContaining({ directory: join(dataDir, 'workload-identities') }),
      ],
    ]);
  });
});

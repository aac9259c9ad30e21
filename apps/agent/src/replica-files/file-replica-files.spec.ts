import { readdirSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { create } from '@bufbuild/protobuf';
import type { FileSet, ReplicaValues } from '@cloudless/agent-core';
import { ReplicaFilesVersionSchema } from '@cloudless/api';
import { silentLog } from '@cloudless/base';
import { COPIES_FOLDER, COPIES_KEY } from './local-copies.js';
import { openReplicaFiles, readReplicaFilesPlace } from './open-replica-files.js';

const isRoot = process.getuid?.() === 0;
const CANARY = 'canary-7d1e';
const toBytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const modeOf = (path: string): number => statSync(path).mode & 0o777;
const aSet = (version: number, overrides: Partial<FileSet> = {}): FileSet => ({
  directory: 'secrets/db',
  revision: `uid ${version}`,
  files: new Map([['password', toBytes(`${CANARY}-${version}`)]]),
  mode: 0o400,
  reader: {},
  ...overrides,
});
const values = (version = 1): ReplicaValues => ({
  version: create(ReplicaFilesVersionSchema, { name: 'db', uid: 'uid', version }),
  data: new Map([['password', toBytes(CANARY)]]),
  signalPending: true,
});
const OPTIONS = { sizeBytes: 1024 * 1024, isPrivate: true };

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'replica-files-'));
});
afterEach(async () => {
  await openReplicaFiles(dataDir, readReplicaFilesPlace({}), silentLog).removeAll();
  await rm(dataDir, { recursive: true, force: true });
});

/** Opens files on disk, or in memory where this process may mount. */
const openFiles = (canMount = false) =>
  openReplicaFiles(dataDir, { canMount, memoryDirectories: [] }, silentLog);

/** Lists the files of the data directory that contain the value. */
const findLeaks = (): readonly string[] =>
  readdirSync(dataDir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => readFileSync(file).includes(CANARY));

describe('FileReplicaFiles', () => {
  it('replaces all files of a version at once, and removes the files of keys that are gone', async () => {
    const files = openFiles();
    const { path } = await files.open('web-1', OPTIONS);
    const both = new Map([
      ['user', toBytes('admin')],
      ['password', toBytes('old')],
    ]);
    await files.write('web-1', aSet(1, { files: both }));
    const folder = join(path, 'secrets', 'db');
    expect(await readFile(join(folder, 'user'), 'utf8')).toBe('admin');
    await files.write('web-1', aSet(2));
    expect(await readFile(join(folder, 'password'), 'utf8')).toBe(`${CANARY}-2`);
    expect((await readdir(folder)).filter((name) => !name.startsWith('..'))).toEqual(['password']);
    expect(modeOf(join(folder, 'password'))).toBe(0o400);
    expect(modeOf(path)).toBe(0o700);
    expect(modeOf(join(path, '..'))).toBe(0o700);
  });

  it('keeps the files of a version that is in place', async () => {
    const files = openFiles();
    const { path } = await files.open('web-1', OPTIONS);
    await files.write('web-1', aSet(1));
    const before = await readdir(join(path, 'secrets', 'db'));
    await files.write('web-1', aSet(1));
    expect(await readdir(join(path, 'secrets', 'db'))).toEqual(before);
  });

  it('returns the copy, in which no value is readable, only to its replica and unchanged', async () => {
    const files = openFiles();
    await files.saveCopy('web-1', [values()]);
    expect(await openFiles().readCopy('web-1')).toEqual([values()]);
    expect(findLeaks()).toEqual([]);
    expect(modeOf(join(dataDir, COPIES_KEY))).toBe(0o600);
    const file = join(dataDir, COPIES_FOLDER, 'web-1');
    expect(modeOf(file)).toBe(0o600);
    const text = await readFile(file, 'utf8');
    await writeFile(join(dataDir, COPIES_FOLDER, 'web-2'), text);
    expect(await files.readCopy('web-2')).toEqual([]);
    await writeFile(file, text.replace('"version":1', '"version":2'));
    expect(await files.readCopy('web-1')).toEqual([]);
    // The same check finds a planted value.
    await writeFile(join(dataDir, 'planted'), CANARY);
    expect(findLeaks()).toHaveLength(1);
  });

  it('uses no nonce twice', async () => {
    const files = openFiles();
    const nonces = new Set<string>();
    for (let round = 0; round < 20; round += 1) {
      await files.saveCopy('web-1', [values()]);
      const text = await readFile(join(dataDir, COPIES_FOLDER, 'web-1'), 'utf8');
      nonces.add(/"nonce":"([^"]+)"/.exec(text)?.[1] ?? '');
    }
    expect(nonces.size).toBe(20);
  });

  it('removes files and copy of a replica, and lists the others', async () => {
    const files = openFiles();
    await files.open('web-1', OPTIONS);
    await files.write('web-1', aSet(1));
    await files.saveCopy('web-2', [values()]);
    expect([...(await files.list())].sort()).toEqual(['web-1', 'web-2']);
    await files.remove('web-1');
    await files.remove('web-2');
    expect(await files.list()).toEqual([]);
    expect(findLeaks()).toEqual([]);
  });

  (isRoot ? it : it.skip)(
    'has the files in a tmpfs of the replica, of the user of the container',
    async () => {
      const files = openFiles(true);
      const { path, inMemory } = await files.open('web-1', { ...OPTIONS, isPrivate: false });
      expect(inMemory).toBe(true);
      await files.write('web-1', aSet(1, { reader: { userId: 70, groupId: 71 } }));
      const stats = statSync(join(path, 'secrets', 'db', 'password'));
      expect([stats.uid, stats.gid, stats.mode & 0o777]).toEqual([70, 71, 0o400]);
      await files.saveCopy('web-1', [values()]);
      expect(findLeaks().every((file) => file.startsWith(`${path}/`))).toBe(true);
      await files.remove('web-1');
      expect(findLeaks()).toEqual([]);
    },
  );
});

describe('openReplicaFiles', () => {
  it('prefers the first directory in memory for an agent that may not mount', async () => {
    const place = { canMount: false, memoryDirectories: [dataDir, '/dev/shm'] };
    const files = openReplicaFiles(dataDir, place, silentLog);
    const { path, inMemory } = await files.open('web-1', OPTIONS);
    // The temporary directory may be in memory, too.
    expect(path).toMatch(/\/cloudless-agent-\d+-[0-9a-f]{16}\/web-1$/);
    expect(inMemory).toBe(false);
    expect(modeOf(join(path, '..'))).toBe(0o700);
    await files.remove('web-1');
    expect(statSync(join(path, '..'), { throwIfNoEntry: false })).toBeUndefined();
  });
});

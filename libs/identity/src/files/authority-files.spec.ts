import {
  chmod,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  createAuthority,
  listGenerations,
  loadAuthority,
  removeAuthoritiesBefore,
} from './index.js';

const OPTIONS = { trustDomain: 'cloudless', nowMs: Date.UTC(2026, 0, 1) };
const FILES = ['issuing.crt', 'issuing.key', 'root.crt', 'root.key'];

describe('files of the certificate authority', () => {
  let parent = '';
  let directory = '';
  beforeEach(async () => {
    parent = await mkdtemp(join(tmpdir(), 'cloudless-ca-'));
    directory = join(parent, 'ca');
  });
  afterEach(() => rm(parent, { recursive: true, force: true }));

  const readFiles = (generation: number): Promise<string[]> =>
    Promise.all(FILES.map((name) => readFile(join(directory, String(generation), name), 'utf8')));

  it('creates a generation that loads with the same root, and changes no file by loading', async () => {
    const created = await createAuthority(directory, 1, OPTIONS);
    const files = await readFiles(1);
    const loaded = await loadAuthority(directory, 1, OPTIONS);
    expect(loaded.rootSha256).toBe(created.rootSha256);
    expect(loaded.generation).toBe(1);
    expect(await readFiles(1)).toEqual(files);
    expect(await readdir(directory)).toEqual(['1']);
    expect((await stat(join(directory, '1'))).mode & 0o777).toBe(0o700);
    for (const name of FILES)
      expect((await stat(join(directory, '1', name))).mode & 0o777).toBe(0o600);
  });

  it('lists generations by number, without drafts and other files', async () => {
    expect(await listGenerations(directory)).toEqual([]);
    for (const generation of [1, 2, 10]) await createAuthority(directory, generation, OPTIONS);
    await mkdir(join(directory, '11.new'));
    await mkdir(join(directory, '012'));
    await writeFile(join(directory, 'notes'), '');
    expect(await listGenerations(directory)).toEqual([1, 2, 10]);
    expect((await loadAuthority(directory, 10, OPTIONS)).generation).toBe(10);
    expect((await loadAuthority(directory, 2, OPTIONS)).generation).toBe(2);
  });

  it('never overwrites a generation, whatever is there', async () => {
    await createAuthority(directory, 1, OPTIONS);
    const files = await readFiles(1);
    const error = {
      kind: 'exists',
      message: `the certificate authority already has ${directory}/1, which is never overwritten`,
    };
    await expect(createAuthority(directory, 1, OPTIONS)).rejects.toMatchObject(error);
    expect(await readFiles(1)).toEqual(files);
    expect(await readdir(directory)).toEqual(['1']);
    await writeFile(join(directory, '2'), 'a file');
    await expect(createAuthority(directory, 2, OPTIONS)).rejects.toMatchObject({ kind: 'exists' });
    await symlink(parent, join(directory, '3'));
    await expect(createAuthority(directory, 3, OPTIONS)).rejects.toMatchObject({ kind: 'exists' });
  });

  it.each([0, 1, 2, 3, 4])(
    'completes a creation that was interrupted after %i files',
    async (count) => {
      await mkdir(join(directory, '1.new'), { recursive: true, mode: 0o700 });
      for (const name of FILES.slice(0, count))
        await writeFile(join(directory, '1.new', name), 'half');
      const { rootSha256 } = await createAuthority(directory, 1, OPTIONS);
      expect((await loadAuthority(directory, 1, OPTIONS)).rootSha256).toBe(rootSha256);
      expect(await readdir(directory)).toEqual(['1']);
    },
  );

  it.each(FILES)('refuses a generation without %s, and changes nothing', async (name) => {
    await createAuthority(directory, 1, OPTIONS);
    await rm(join(directory, '1', name));
    const path = join(directory, '1');
    await expect(loadAuthority(directory, 1, OPTIONS)).rejects.toMatchObject({
      kind: 'precondition',
      message: `the certificate authority is incomplete: ${path}/${name} is missing; restore the directory ${path} from the backup`,
    });
    expect(await readdir(path)).toEqual(FILES.filter((other) => other !== name));
  });

  it.each(FILES)('refuses a generation whose %s is damaged', async (name) => {
    await createAuthority(directory, 1, OPTIONS);
    await writeFile(join(directory, '1', name), 'damaged');
    await expect(loadAuthority(directory, 1, OPTIONS)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining(`${directory}/1: the `),
    });
    expect(await readFile(join(directory, '1', name), 'utf8')).toBe('damaged');
  });

  it('refuses keys and directories that other users can access', async () => {
    await createAuthority(directory, 1, OPTIONS);
    const key = join(directory, '1', 'root.key');
    await chmod(key, 0o640);
    await expect(loadAuthority(directory, 1, OPTIONS)).rejects.toThrow(`chmod 600 ${key}`);
    await chmod(key, 0o600);
    await chmod(directory, 0o770);
    await expect(loadAuthority(directory, 1, OPTIONS)).rejects.toThrow(`chmod 700 ${directory}`);
    await chmod(directory, 0o700);
    await chmod(join(directory, '1'), 0o701);
    await expect(loadAuthority(directory, 1, OPTIONS)).rejects.toThrow(`chmod 700 ${directory}/1`);
  });

  it('names the backup when the generation of the records is missing', async () => {
    await createAuthority(directory, 1, OPTIONS);
    await expect(loadAuthority(directory, 2, OPTIONS)).rejects.toThrow(
      `the certificate authority has no directory ${directory}/2; restore the directory from the backup`,
    );
    expect(await listGenerations(directory)).toEqual([1]);
  });

  it('refuses the authority of another trust domain', async () => {
    await createAuthority(directory, 1, OPTIONS);
    await expect(loadAuthority(directory, 1, { ...OPTIONS, trustDomain: 'other' })).rejects.toThrow(
      'is of the trust domain "cloudless", but --trust-domain is "other"',
    );
  });

  it('removes older generations with what interrupted removals left behind', async () => {
    for (const generation of [1, 3]) await createAuthority(directory, generation, OPTIONS);
    for (const name of ['1.removed', '2.removed']) {
      await mkdir(join(directory, name));
      await writeFile(join(directory, name, 'root.key'), 'half');
    }
    expect(await removeAuthoritiesBefore(directory, 3)).toEqual([1]);
    expect(await removeAuthoritiesBefore(directory, 3)).toEqual([]);
    expect(await readdir(directory)).toEqual(['3']);
    expect(await removeAuthoritiesBefore(join(parent, 'missing'), 3)).toEqual([]);
  });

  it('repeats no part of a key in an error', async () => {
    await createAuthority(directory, 1, OPTIONS);
    const key = await readFile(join(directory, '1', 'root.key'), 'utf8');
    const half = key.slice(0, 120);
    await writeFile(join(directory, '1', 'root.key'), half);
    const error: unknown = await loadAuthority(directory, 1, OPTIONS).catch(
      (reason: unknown) => reason,
    );
    expect(error).toMatchObject({ kind: 'precondition' });
    expect(JSON.stringify(error) + String(error)).not.toContain(half.split('\n')[1]);
    expect(error).not.toHaveProperty('cause');
  });
});
